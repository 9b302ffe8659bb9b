package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
)

// Compiler reads modules in processes that end with it: it links components, gates,
// rewrites and compiles. The engine's compiler cannot be interrupted, and the module
// determines the cost of all of it: a process can be bounded and may die of it.
type Compiler struct {
	// CPU is how much processor time a compilation may take, over all processors. Zero
	// means 30 s: a 15 MB Go program with net/http takes 7 s.
	CPU time.Duration

	// Memory is how many bytes the process may have. Zero means 1 GiB: on four
	// processors that program compiles in 448 MiB and not in 384 MiB.
	Memory uint64

	// Foreground is for programs of one user, who waits. Otherwise the process computes
	// only when other processes are idle.
	Foreground bool
}

const (
	defaultCompileCPU    = 30 * time.Second
	defaultCompileMemory = 1 << 30

	// waiting is how many times more wall-clock than processor time a compilation
	// may take, on a busy machine.
	waiting = 8
)

// Read gates, rewrites and compiles a module in a process of its own. It fits the field Read of a
// sandbox.Config, and its refusals are those of sandbox.Read, and of a module that is too much for the
// bounds of the process. A failure of the host, such as a full disk, is a tool.ErrHost, and a process
// that could not be started an [ErrNoProcess] besides.
func (c Compiler) Read(ctx context.Context, module []byte, o sandbox.RewriteOptions, dir string, missing func(*sandbox.Prepared) bool) (read *sandbox.Prepared, err error) {
	most := work.ForSize(len(module)).Bytes
	if dir != "" { // bodies of some bytes become traps of some bytes, and nothing else grows
		most = int64(4 * len(module))
	}
	var failed *failure
	err = c.alone(ctx, settings{Compile: true, Rewrite: o, Folder: dir}, uint64(most+maxCompileAnswer), func(p *process) (err error) {
		if failed, read, err = p.load(module); err != nil || failed != nil || dir == "" || !missing(read) {
			return err
		}
		p.frames.body = bytes.Buffer{} // which read belongs to
		answer, err := p.exchange(kindCompile, nil, kindDone)
		if err == nil {
			failed, _, err = parseDone(answer)
		}
		return err
	})
	if err = cmp.Or(err, failed.cause()); err != nil {
		return nil, err
	}
	return read, nil
}

// Link returns the module that a component or a plug-in for Extism becomes. Before the module is sent,
// room hears of its size; an error of it is returned. Other errors are as for Read.
func (c Compiler) Link(ctx context.Context, b []byte, room func(bytes int) error) (module []byte, err error) {
	var refused error
	err = c.alone(ctx, settings{Compile: true, Link: true}, maxCompileAnswer, func(p *process) error {
		answer, err := p.exchange(kindModule, b, kindDone)
		if err != nil {
			return err
		}
		f := fields{b: answer}
		failed, size := f.failure(), f.uint()
		if f.end() != nil || size > uint64(rewrite.DefaultLimits().ModuleBytes) {
			return errProtocol
		}
		if refused = cmp.Or(failed.cause(), room(int(size))); refused != nil {
			return nil
		}
		p.frames.limit = size
		k, linked, err := p.frames.next()
		if module = linked; err == nil && k != kindLinked {
			err = errProtocol
		}
		return err
	})
	if err = cmp.Or(err, refused); err != nil {
		return nil, err
	}
	return module, nil
}

// cause returns the refusal of a module or the failure of the host that stopped its process, nil for none.
func (f *failure) cause() error {
	switch {
	case f == nil:
		return nil
	case f.refusal != nil:
		return f.refusal
	}
	return hostFailed(f)
}

// alone starts a process for one compilation or one linking, which work asks for and waits for.
func (c Compiler) alone(ctx context.Context, s settings, answer uint64, work func(*process) error) error {
	c.CPU, c.Memory = cmp.Or(c.CPU, defaultCompileCPU), cmp.Or(c.Memory, defaultCompileMemory)
	s.Foreground, s.Memory, s.CPU = c.Foreground, c.Memory, c.CPU
	p, err := start(ctx, s, answer, 0, slog.New(slog.DiscardHandler), func() {})
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	if err != nil {
		return hostFailed(err, ErrNoProcess)
	}
	p.frames.honest = true // the limit is what the caller has room for
	defer p.end()
	defer context.AfterFunc(ctx, p.kill)()
	timer := time.AfterFunc(waiting*c.CPU, p.kill)
	err = work(p)
	inTime := timer.Stop()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !inTime: // it used less processor time than it may, so the module is not at fault
		return hostFailed(fmt.Errorf("worker: this machine is too busy: a compilation did not end within %v", waiting*c.CPU))
	}
	return c.exceeded()
}

// ErrNoProcess is why a compilation or a call has not begun.
var ErrNoProcess = errors.New("worker: no process could be started")

// maxCompileAnswer bounds what a compiling process sends beside a module: a refusal lists 32 imports,
// with names of 1 KiB each, and quotes control characters.
const maxCompileAnswer = 256 << 10

// exceeded is the refusal of a module that its compiler died of.
func (c Compiler) exceeded() error {
	return &rewrite.Refusal{
		What: fmt.Sprintf("its compilation takes more than %s of processor time or %d MiB of memory", c.CPU, c.Memory>>20),
		Func: -1, Offset: -1,
		Hint: "split the largest functions, or build with less inlining",
	}
}

// load sends a module and waits for the result.
func (p *process) load(body []byte) (*failure, *sandbox.Prepared, error) {
	answer, err := p.exchange(kindModule, body, kindDone)
	if err != nil {
		return nil, nil, err
	}
	return parseDone(answer)
}

// hostFailure is a failure of the host, independent of the module, in the words of its cause. It
// matches further errors as well.
type hostFailure struct {
	error
	as []error
}

func hostFailed(cause error, also ...error) error {
	return &hostFailure{cause, append(also, tool.ErrHost, cause)}
}

func (e *hostFailure) Unwrap() []error { return e.as }
