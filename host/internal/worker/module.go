package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/runtime/tool"
)

// Module is a loaded module. Each call in progress has a process that has no
// other module and no other call. It is safe for concurrent use.
type Module struct {
	engine   *Engine
	prepared sandbox.Prepared // without Wasm and Data, which are in loading
	loading  []byte           // the body of kindModule for its processes
	code     *sandbox.Code    // which these find in its folder
	closed   atomic.Bool
	long     atomic.Bool   // the last call was demoted, or would have been
	starting chan struct{} // has an element while a process is started for a call
}

// Digest returns the module's identity: the BLAKE3-256 of its bytes.
func (m *Module) Digest() sandbox.Digest { return m.prepared.Digest }

// ABI returns abi.Version, or abi.Command for a WASI command.
func (m *Module) ABI() string { return m.prepared.ABI }

// Imports returns what the module imports, as module.name, sorted.
func (m *Module) Imports() []string { return slices.Clone(m.prepared.Imports) }

// Limits returns the bounds of each call, the defaults filled in.
func (m *Module) Limits() sandbox.Limits { return m.prepared.Limits }

// Size returns how many bytes are kept of the module here, to start processes with.
func (m *Module) Size() int { return len(m.loading) }

// Close ends the module's idle processes. Those with calls end with them.
func (m *Module) Close(context.Context) error {
	if m.closed.Swap(true) {
		return nil
	}
	m.engine.drop(func(p *idleProcess) bool { return p.module == m })
	return m.code.Close()
}

// loadTimeout is how long a process may take to load a module. It finds the
// compiled code, and fuel bounds the module's own start.
const loadTimeout = time.Minute

// maxStart is how much longer the frame may be in which a process sends a start.
const maxStart = sandbox.MaxStart + 1<<20

// start starts a process with the module. That takes processor time: many calls that begin
// at the same time take a quarter of the processors for it, and leave the others to calls
// that have their processes. The process of a module with long calls is demoted from the
// beginning, and waits apart from processes with short calls. If that fails, for instance
// because a busy machine never schedules it, it is started like any other.
func (m *Module) start(ctx context.Context) (*process, error) {
	if !m.long.Load() {
		slot, err := m.engine.starts.Acquire(ctx)
		if err != nil {
			return nil, unscheduled(ctx, err)
		}
		defer slot.Release()
		if !m.long.Load() { // still
			return m.startNow(ctx, false)
		}
		slot.Release()
	}
	slot, err := m.engine.demotedStarts.Acquire(ctx)
	if err != nil {
		return nil, unscheduled(ctx, err)
	}
	defer slot.Release()
	if p, err := m.startNow(ctx, true); err == nil {
		return p, nil
	}
	return m.startNow(ctx, false)
}

// startNow starts a process within the module's bounds, demoted from the beginning or not.
func (m *Module) startNow(ctx context.Context, demoted bool) (*process, error) {
	e, l := m.engine, m.prepared.Limits
	s := settings{
		Machine: e.config.Machine, Folder: m.prepared.Folder, Demoted: demoted,
		Profile: e.config.Profile != nil, Source: e.config.Source != nil, Progress: e.config.Progress != nil,
		// Two instances: one makes the start, and one is called.
		Memory: ownMemory + 2*uint64(l.MemoryPages)*wasm.PageSize,
		CPU:    processorBound(l.Fuel),
	}
	e.reapers.Add(1)
	p, err := start(ctx, s, l.EffectBytes+l.OutputBytes+l.LogBytes+maxTexts, e.config.Grace, e.config.Logger, e.reapers.Done)
	if ctx.Err() != nil && err != nil {
		return nil, tool.ErrCancelled
	}
	if err != nil {
		return nil, hostFailed(err, ErrNoProcess)
	}
	defer time.AfterFunc(p.within(loadTimeout), p.kill).Stop()
	undo := context.AfterFunc(ctx, p.kill)
	limit := p.frames.limit
	p.frames.limit += maxStart
	failed, loaded, err := p.load(m.loading)
	p.frames.limit = limit
	if undo() && err == nil && failed == nil {
		p.loaded = loaded
		return p, nil
	}
	p.end()
	if ctx.Err() != nil {
		return nil, tool.ErrCancelled
	}
	if err != nil {
		return nil, hostFailed(errors.New("worker: the process ended while it loaded the module"), sandbox.ErrSpoiled) // its code may be at fault
	}
	if failed.refusal != nil {
		return nil, failed.refusal
	}
	return nil, hostFailed(fmt.Errorf("worker: loading the module: %w", failed))
}

// acquire returns a process for one call. A module has one process started at a time, so
// that many calls of one module take a single place in the queue for starts.
func (m *Module) acquire(ctx context.Context) (p *process, err error) {
	if m.closed.Load() {
		return nil, ErrClosed
	}
	if p := m.engine.take(m); p != nil {
		return p, nil
	}
	select {
	case m.starting <- struct{}{}:
		defer func() { <-m.starting }()
	case <-ctx.Done():
		return nil, tool.ErrCancelled
	}
	if p := m.engine.take(m); p != nil { // a call has ended meanwhile
		return p, nil
	}
	err = m.code.Load(ctx, func() error {
		p, err = m.start(ctx)
		return err
	})
	if err != nil && ctx.Err() != nil {
		err = tool.ErrCancelled
	}
	return p, err
}

// giveBack keeps a process for the next call, unless it is unusable.
func (m *Module) giveBack(p *process) {
	if p.spent() {
		p.end()
		return
	}
	m.engine.put(m, p)
	if m.closed.Load() { // since before put, perhaps
		m.engine.drop(func(p *idleProcess) bool { return p.module == m })
	}
}

// Describe returns the document of starling_describe.
func (m *Module) Describe(ctx context.Context) ([]byte, error) {
	if m.prepared.ABI != abi.Version {
		return nil, errors.New("worker: a WASI command has no description")
	}
	leave, err := m.engine.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	p, err := m.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer m.giveBack(p)
	defer time.AfterFunc(loadTimeout, p.kill).Stop()
	defer context.AfterFunc(ctx, p.kill)()
	var r result
	body, err := p.exchange(kindDescribe, nil, kindResult)
	if err == nil {
		r, err = parseResult(body, sandbox.Meter{})
	}
	if err != nil {
		p.kill()
		return nil, lost()
	}
	if r.err != nil {
		return nil, r.err
	}
	return slices.Clone(r.output), nil
}

// lost is the error of a call whose process has ended.
func lost() error { return fmt.Errorf("%w: its process ended", tool.ErrLost) }
