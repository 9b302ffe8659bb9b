// Package work bounds what reading somebody else's data may cost.
//
// Whatever reads data that the host did not write (a module, a component, debug information, an
// archive, the answer of a registry, a document of an API) draws from a [Budget] of its caller. It
// charges what it does, not what it is given: [Budget.Spend] for each item it visits, as often as
// it visits it, and [Budget.Hold] for the bytes it keeps. So a small input that multiplies (names
// times uses, aliases of aliases, nested archives) ends at the same bound as a large one. The
// budget ends with its context, too, and an ended budget stays ended.
package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
)

// ErrExceeded is the error of a budget that is used up. Errors that wrap it say which part of the
// budget it was, and its limit.
var ErrExceeded = errors.New("the input costs more than its size allows")

// Limits bound one reading. A field of zero allows nothing.
type Limits struct {
	Steps int64 // items visited, of any kind, each as often as it is visited
	Bytes int64 // bytes held at the same time
}

// ForSize returns the limits of an input of n bytes: both grow as the input does. They are some
// ten times what real inputs need, so only an input that multiplies reaches them.
func ForSize(n int) Limits {
	return Limits{Steps: 1<<20 + stepsPerByte*int64(n), Bytes: 16<<20 + bytesPerByte*int64(n)}
}

const (
	stepsPerByte = 64
	bytesPerByte = 32
)

// Budget counts the work of one reading. Its methods may be called by several goroutines. It has
// no useful zero value; see [New] and [Trusted].
type Budget struct {
	ctx              context.Context
	limits           Limits
	steps, held, fed atomic.Int64
}

// New returns a budget that ends when l is used up or ctx is done.
func New(ctx context.Context, l Limits) *Budget { return &Budget{ctx: ctx, limits: l} }

// For returns the budget of an input of n bytes, with the limits of [ForSize].
func For(ctx context.Context, n int) *Budget { return New(ctx, ForSize(n)) }

// Trusted returns a budget without limits, for data that the host itself wrote. It ends with ctx.
func Trusted(ctx context.Context) *Budget {
	return New(ctx, Limits{math.MaxInt64, math.MaxInt64})
}

// Feed raises the limits as [ForSize] does for n more bytes. A reader that does not know the size of
// its input begins with [For] of no bytes, and calls Feed as it reads.
func (b *Budget) Feed(n int) { b.fed.Add(int64(n)) }

// stride is how many steps pass at most until a budget looks at its context.
const stride = 1 << 12

// Spend charges n steps. It returns an error that wraps [ErrExceeded], or the cause of the
// context's end. Each call looks at the sum, and one in some thousand steps at the context. A call
// with zero asks whether the budget has ended.
func (b *Budget) Spend(n int) error {
	now := b.steps.Add(int64(n))
	if most := b.limits.Steps + stepsPerByte*b.fed.Load(); now > most || now < 0 {
		return fmt.Errorf("%w: more than %d steps", ErrExceeded, most)
	}
	if n == 0 || n >= stride || now%stride < int64(n) {
		return context.Cause(b.ctx)
	}
	return nil
}

// Hold charges n bytes that the reader keeps until it calls [Budget.Release]. A reader calls it
// before it allocates.
func (b *Budget) Hold(n int) error {
	most := b.limits.Bytes + bytesPerByte*b.fed.Load()
	if now := b.held.Add(int64(n)); now > most || now < 0 {
		return fmt.Errorf("%w: more than %d bytes of memory", ErrExceeded, most)
	}
	return context.Cause(b.ctx)
}

// Release gives back n bytes that were held.
func (b *Budget) Release(n int) { b.held.Add(-int64(n)) }

// Room returns how many bytes may still be held.
func (b *Budget) Room() int {
	return int(max(b.limits.Bytes+bytesPerByte*b.fed.Load()-b.held.Load(), 0))
}

// Context returns the context with which the budget ends.
func (b *Budget) Context() context.Context { return b.ctx }

// Steps returns how many steps were charged.
func (b *Budget) Steps() int64 { return b.steps.Load() }

// ReadAll reads r to its end and holds what it read. It charges a step for each 64 bytes. On an
// error it returns what it read before.
func (b *Budget) ReadAll(r io.Reader) ([]byte, error) {
	var all []byte
	for {
		if len(all) == cap(all) {
			more := max(512, cap(all)) // doubles, as append would
			if err := b.Hold(more); err != nil {
				return all, err
			}
			all = append(make([]byte, 0, cap(all)+more), all...)
		}
		n, err := r.Read(all[len(all):cap(all)])
		all = all[:len(all)+n]
		if spent := b.Spend(n/64 + 1); spent != nil {
			return all, spent
		}
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}
