package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/starling-host/starling/abi"
)

// session is the host's side of one call: everything that the guest can reach through an
// import, and the bounds on it. It belongs to the goroutine and the instance of the call.
type session struct {
	limits   Limits
	instance *instance

	// imports is nil during start-up: then clock and randomness are
	// constants and the three imports end the call.
	imports Imports
	phase   string // the export that runs, in words

	// What ends the guest while it computes; see refill.
	budget   uint64
	slice    uint64
	refilled time.Time // when the last slice began
	stopAt   uint64
	stop     error
	record   bool // the machine records what the guest does
	attended bool // the caller's context and the deadline count
	ctx      context.Context
	deadline time.Time // zero for no deadline
	limited  context.Context
	cancel   context.CancelFunc // of limited

	clock  clock
	random *rand.ChaCha8 // nil until the call's first random_get
	held   *held         // the unfetched rest of the last http

	effects, effectBytes uint64

	name   string   // args[0]
	args   []string // the others
	env    []string
	stdin  []byte // the unread rest
	stdout []byte // of a command; nil for a tool, whose fd 1 is a log
	rules  uint32 // of the call, see Call.Rules
	log    capture
	files  *filesystem // nil without files

	watch *watch // nil without observers
	fault any    // a panic of Imports that was not an error
}

// beginStart begins the start-up of an instance: clock and randomness are constants.
func (s *session) beginStart() {
	s.name = startName
	s.log = capture{limit: s.limits.LogBytes}
	s.random = rand.NewChaCha8(startSeed)
	s.clock.observe(startTime)
}

// endStart ends the start-up: from here on clock and randomness are the call's
// and the log is the call's own. The monotonic clock continues, since runtimes
// keep readings of it.
func (s *session) endStart() {
	s.random = nil
	s.clock.forget()
	s.log = capture{limit: s.limits.LogBytes}
}

// attend lets the caller's context and the deadline end the guest.
func (s *session) attend(ctx context.Context, timeout bool) {
	s.attended, s.ctx, s.refilled = true, ctx, time.Now()
	if timeout {
		s.deadline = s.refilled.Add(time.Duration(s.limits.TimeoutMs) * time.Millisecond)
	}
}

// over reports whether the context or the deadline has ended the call.
func (s *session) over(now time.Time) bool {
	return s.ctx.Err() != nil || !s.deadline.IsZero() && !now.Before(s.deadline)
}

// outside is the context that imports get: the caller's, until the deadline. It
// is made when it is first needed, since most calls have no effects.
func (s *session) outside() context.Context {
	if s.limited == nil {
		if s.deadline.IsZero() {
			s.limited, s.cancel = context.WithCancel(s.ctx)
		} else {
			s.limited, s.cancel = context.WithDeadline(s.ctx, s.deadline)
		}
	}
	return s.limited
}

// meter returns the consumption of the call so far.
func (s *session) meter() Meter {
	return Meter{
		Fuel:       s.instance.fuel.Get(),
		PeakMemory: uint64(s.instance.memory.Size()), // memory never shrinks in a call
		Log:        s.log.text(),
	}
}

// guestStopped is the panic that unwinds a guest. The engine returns it, wrapped,
// as the error of the guest's export.
type guestStopped struct{ err error }

func (e *guestStopped) Error() string { return e.err.Error() }

func (s *session) end(err error) { panic(&guestStopped{err}) }

// interruption is the error of an interrupted call.
func (s *session) interruption() error {
	if s.ctx.Err() != nil {
		return abi.ErrCancelled
	}
	return fmt.Errorf("%w: the call took longer than %d ms", abi.ErrTimeout, s.limits.TimeoutMs)
}

// effect counts one recorded effect before it happens. During start-up it refuses it.
func (s *session) effect(name string, bytes uint64) {
	if s.imports == nil {
		s.end(s.failure(abi.ErrPanicked, name+" was called during "+s.phase+", which may have no effects"))
	}
	if s.effects++; s.effects > s.limits.Effects {
		s.end(fmt.Errorf("%w: more than %d effects", abi.ErrEffects, s.limits.Effects))
	}
	s.recorded(bytes)
}

// recorded counts the recorded bytes of an effect.
func (s *session) recorded(bytes uint64) {
	if s.effectBytes += bytes; s.effectBytes > s.limits.EffectBytes {
		s.end(fmt.Errorf("%w: effects of more than %d bytes", abi.ErrLimit, s.limits.EffectBytes))
	}
}

// cross calls into Imports. If it panics with an error, that ends the guest and is the
// error of the call. Any other panic is a bug in the host and propagates to Call's caller,
// instead of being recorded as the guest's.
func cross[T any](s *session, f func() T) T {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case runtime.Error:
			s.fault = v
			s.end(errFault)
		case error:
			s.end(v)
		default:
			s.fault = v
			s.end(errFault)
		}
	}()
	return f()
}

var errFault = errors.New("sandbox: the host's import panicked")

// The rewriter makes a module count its own instructions in one global and
// compare the count with another, the limit. Above the limit the module calls
// refill, here. The limit is only ever moved a slice ahead, so that the host
// looks at the clock, and the Go scheduler and collector run, every
// few milliseconds for any guest. Compiled code cannot be preempted
// otherwise, and one guest that spins would stop the whole process.
const (
	// A slice is the distance that the limit moves at a time. It adapts to the guest: a
	// unit takes a fraction of a nanosecond in one loop, and a hundred in another that
	// misses all caches. The guest cannot tell where slices end, so replay need not have
	// the same ones.
	firstSlice = 500_000
	leastSlice = 20_000
	mostSlice  = 5_000_000
	sliceTime  = 2 * time.Millisecond

	// prepareFuel bounds what runs before a call: start function, _initialize
	// and starling_warmup together.
	prepareFuel = 1_000_000_000
)

// allow starts the count at zero with a new budget.
func (s *session) allow(budget uint64) {
	s.budget, s.slice = budget, firstSlice
	if s.record { // so that a refill is no part of the recording, but at its end
		s.slice = budget
	}
	s.clock.recount(s.instance.fuel.Get())
	s.instance.fuel.Set(0)
	s.instance.limit.Set(s.nextLimit(0))
}

// nextLimit returns the next limit: a slice ahead, but never past the budget, and in the
// replay of a stop never past the last count before it.
func (s *session) nextLimit(used uint64) uint64 {
	limit := s.budget
	if s.stop != nil && s.stopAt > 0 {
		limit = min(limit, s.stopAt-1)
	}
	if limit-min(used, limit) > s.slice {
		return used + s.slice
	}
	return limit
}

// refill runs when the count is above the limit: it ends the call or lets it
// continue for a slice. The count grows between any two checks, so "the first
// check above stopAt-1" names the one check that saw stopAt when the call was
// recorded, whatever the slices were then.
func (s *session) refill() {
	used, now := s.instance.fuel.Get(), time.Now()
	s.watch.spent(used)
	switch {
	case used > s.budget:
		s.end(fmt.Errorf("%w: more than %d units", abi.ErrFuel, s.budget))
	case s.stop != nil && used >= s.stopAt:
		s.end(s.stop)
	case s.attended && s.over(now):
		s.end(s.interruption())
	}
	runtime.Gosched()
	s.adapt(now)
	s.instance.limit.Set(s.nextLimit(used))
}

// adapt chooses the next slice by the time that the last one took.
func (s *session) adapt(now time.Time) {
	took := now.Sub(s.refilled)
	s.refilled = now
	switch {
	case took > 2*sliceTime:
		s.slice = max(s.slice*uint64(sliceTime)/uint64(took), leastSlice)
	case took < sliceTime:
		s.slice = min(2*s.slice, mostSlice)
	}
}

// charge adds the bytes that the host will read from or write to guest memory
// to the count, and checks like the module's own code. Without it a guest
// could make the host fill its memory with random bytes all day for the price
// of a few instructions.
func (s *session) charge(bytes uint64) {
	if bytes == 0 {
		return // the count has to grow between two checks
	}
	used := s.instance.fuel.Get() + bytes
	s.instance.fuel.Set(used)
	if used > s.instance.limit.Get() {
		s.refill()
	}
}
