package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/runtime/tool"
)

// Compiler compiles modules in processes that end with the compilation. The
// engine's compiler cannot be interrupted, and the module determines its
// cost: a process can be bounded and may die of it.
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

// Compile compiles a rewritten module into dir. A module whose compilation is too much
// for its bounds, or that the compiler does not accept, is refused with a
// *rewrite.Refusal. A failure of the host, such as a full disk, is a tool.ErrHost, and a
// process that could not be started an [ErrNoProcess] besides. It fits the field Compile
// of a sandbox.Config.
func (c Compiler) Compile(ctx context.Context, rewritten []byte, dir string) error {
	var failed *failure
	err := c.alone(ctx, settings{Compile: true, Folder: dir}, maxCompileAnswer, func(p *process) (err error) {
		failed, _, err = p.load(rewritten)
		return err
	})
	switch {
	case err != nil:
		return err
	case failed != nil && failed.class == classHost:
		return hostFailed(failed)
	case failed != nil:
		return &rewrite.Refusal{What: "the engine cannot compile it: " + failed.text, Func: -1, Offset: -1}
	}
	return nil
}

// Link returns the module that a component or a plug-in for Extism becomes. The errors are as for
// Compile.
func (c Compiler) Link(ctx context.Context, b []byte) (module []byte, err error) {
	var refused rewrite.Refusal
	most := uint64(rewrite.DefaultLimits().ModuleBytes + maxCompileAnswer)
	err = c.alone(ctx, settings{Compile: true}, most, func(p *process) error {
		answer, err := p.exchange(kindModule, b, kindDone)
		f := fields{b: answer}
		refused = rewrite.Refusal{What: f.text(), Func: -1, Offset: -1, Hint: f.text()}
		module = f.bytes()
		return cmp.Or(err, f.end())
	})
	if err == nil && refused.What != "" {
		err = &refused
	}
	if err != nil {
		return nil, err
	}
	return module, nil
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

// maxCompileAnswer bounds the answer of a compiling process.
const maxCompileAnswer = 64 << 10

// exceeded is the refusal of a module that its compiler died of.
func (c Compiler) exceeded() error {
	return &rewrite.Refusal{
		What: fmt.Sprintf("its compilation takes more than %s of processor time or %d MiB of memory", c.CPU, c.Memory>>20),
		Func: -1, Offset: -1,
		Hint: "split the largest functions, or build with less inlining",
	}
}

// load sends a module and waits for the result.
func (p *process) load(body []byte) (*failure, *loaded, error) {
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
