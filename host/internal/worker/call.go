package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// Call makes one call in a process of its own. Results and errors are as for
// sandbox.Module.Call, plus tool.ErrLost when the process died. Its meter is
// then the reading at the last effect, also when a process had to be killed at
// the end of its time or after a cancellation. In a replay, the death of the process is
// a tool.ErrHost: it is not what happened on record.
func (m *Module) Call(ctx context.Context, c sandbox.Call, imports sandbox.Imports) (sandbox.Result, error) {
	h := &call{module: m, Call: c, ctx: ctx, imports: imports}
	if c.Probe != nil {
		c.Probe(func() sandbox.Meter { return h.meter })
	}
	if err := h.refuses(); err != nil {
		return sandbox.Result{}, err
	}
	leave, err := m.engine.enter(ctx)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer leave()
	h.slot.scheduler = m.engine.config.Scheduler
	defer h.slot.release()
	if err := h.place(); err != nil {
		return sandbox.Result{}, err
	}
	if c.Begin != nil {
		err = c.Begin()
	}
	var result sandbox.Result
	if err == nil {
		result, err = h.run()
	}
	m.giveBack(h.process)
	if h.fault != nil {
		panic(h.fault)
	}
	result.Meter = h.meter
	return result, err
}

// call is the host's side of one call. What comes from the process is hostile:
// it is held to the limits that the sandbox inside should keep.
type call struct {
	sandbox.Call
	module  *Module
	ctx     context.Context
	imports sandbox.Imports
	process *process
	slot    callSlot

	meter                sandbox.Meter // as of the last reading
	effects, effectBytes uint64
	seen                 seen // by the observers
	files                files

	deadline time.Time       // zero for no deadline
	limited  context.Context // the context of exchanges; created when first needed
	cancel   context.CancelFunc

	ended error // the error with which an import panicked, if it ended the guest
	fault any   // any other value of the panic
}

// refuses returns why a call ends before it begins, as the sandbox would.
func (h *call) refuses() error {
	switch {
	case h.StopErr != nil && h.StopAt == 0:
		return h.StopErr
	case h.ctx.Err() != nil:
		return tool.ErrCancelled
	}
	return nil
}

// place waits for a CPU slot and then takes a process: waiting calls have no process, so a
// module needs only as many as compute at the same time. If there is no idle process,
// other calls can use the slot until one has been started.
func (h *call) place() (err error) {
	m := h.module
	if err := h.slot.acquire(h.ctx); err != nil {
		return unscheduled(h.ctx, err)
	}
	if h.process = m.engine.take(m); h.process != nil {
		h.slot.runsIn(h.process)
		return nil
	}
	h.slot.release()
	if h.process, err = m.acquire(h.ctx); err != nil {
		return err
	}
	h.slot.runsIn(h.process)
	if err := h.slot.acquire(h.ctx); err != nil {
		m.giveBack(h.process)
		return unscheduled(h.ctx, err)
	}
	return nil
}

// unscheduled is the error of a wait for a slot that failed. The call is cancelled if its context has
// ended. Any other error is the host's, and is not recorded as a cancellation that nobody asked for.
func unscheduled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return tool.ErrCancelled
	}
	return hostFailed(err)
}

// run sends the call and serves it until it has ended. The process does not know
// deadlines: it gets a message when the time is over.
func (h *call) run() (answer sandbox.Result, err error) {
	p := h.process
	if h.Files != nil {
		h.files = newFiles(h.Files.Root)
		p.frames.limit += maxContent
		defer func() { p.frames.limit -= maxContent }()
	}
	p.run.Store(tool.GetRunID(h.ctx))
	p.calls++
	number, w := p.calls, p.watch
	if !h.NoTimeout {
		h.deadline = time.Now().Add(time.Duration(h.module.prepared.Limits.TimeoutMs) * time.Millisecond)
	}
	w.begin(number, h)
	defer w.end()
	if err := p.say(kindCall, func(b []byte) []byte { return request{number, h.Call}.append(b) }); err != nil {
		return answer, h.died()
	}
	defer context.AfterFunc(h.ctx, func() { w.cancel(number) })() // not before the call itself is sent
	r, err := h.serve()
	if h.cancel != nil {
		h.cancel()
	}
	if err == nil && r.err == nil {
		answer.Output, answer.Contents = r.output, h.files.contents
		answer.Left, err = h.tree(r.left)
	} else if err == nil && len(h.files.contents) > 0 {
		err = errProtocol
	}
	if err != nil {
		return sandbox.Result{}, h.died()
	}
	return answer, h.outcome(r.err)
}

// serve answers the guest's imports until it has ended.
func (h *call) serve() (result, error) {
	for {
		k, body, err := h.process.frames.next()
		if err != nil {
			return result{}, err
		}
		switch k {
		case kindEffect:
			err = h.effect(body)
		case kindObserved:
			err = h.observed(body)
		case kindContent:
			err = h.content(body)
		case kindLeft:
			err = h.leaves(body)
		case kindResult:
			return h.finish(body)
		default:
			err = errProtocol
		}
		if err != nil {
			return result{}, err
		}
	}
}

// finish reads how the call ended.
func (h *call) finish(body []byte) (result, error) {
	r, err := parseResult(body, h.meter)
	if err != nil {
		return result{}, err
	}
	l := h.module.prepared.Limits
	if uint64(len(r.output)) > l.OutputBytes && h.module.prepared.ABI == abi.Version || uint64(len(r.meter.Log)) > l.LogBytes {
		return result{}, errProtocol
	}
	h.meter = r.meter
	if r.err == nil {
		r.output = slices.Clone(r.output)
	}
	return r, nil
}

// outcome turns the process's message into the error of the call.
func (h *call) outcome(f *failure) error {
	switch {
	case f == nil:
		return nil
	case f.class == classStopped && h.StopErr != nil:
		return h.StopErr
	case f.class == classEnded && h.ended != nil:
		return h.ended
	case f.class == classCancelled:
		return h.interruption()
	}
	return f
}

// interruption is the error of an interrupted call.
func (h *call) interruption() error {
	if late, _ := h.process.watch.ended(); late && h.ctx.Err() == nil {
		return fmt.Errorf("%w: the call took longer than %d ms", tool.ErrTimeout, h.module.prepared.Limits.TimeoutMs)
	}
	return tool.ErrCancelled
}

// died is the error of a call whose process has ended, or has to because it
// broke the protocol.
func (h *call) died() error {
	first := !h.process.killed.Swap(true)
	h.process.kill()
	switch _, killed := h.process.watch.ended(); {
	case h.ended != nil:
		return h.ended
	case killed:
		return h.interruption()
	}
	if first {
		<-h.process.exited
		h.process.logDeath()
	}
	if h.NoTimeout { // a replay, of a call whose process did not end here: it has no outcome
		return hostFailed(lost())
	}
	return lost()
}

// effect carries out one effect.
func (h *call) effect(body []byte) error {
	e, err := parseEffect(body, h.meter)
	if err != nil {
		return err
	}
	l := h.module.prepared.Limits
	h.effects++
	h.effectBytes += uint64(len(e.request))
	if h.ended != nil || h.effects > l.Effects || h.effectBytes > l.EffectBytes || uint64(len(e.meter.Log)) > l.LogBytes {
		return errProtocol
	}
	h.meter = e.meter
	h.process.watch.pause(1)
	k, answer := h.perform(e)
	h.process.watch.resume()
	if h.fault != nil {
		return errFault
	}
	return h.process.say(k, func(b []byte) []byte { return append(b, answer...) })
}

var errFault = errors.New("worker: the host's import panicked")

// perform answers an effect. Those of demoted calls are paced: they share a few slots, and
// each waits a moment first unless nothing else computes. An exchange waits for a server, so it keeps no slot.
func (h *call) perform(e effect) (kind, []byte) {
	if h.process.demoted.Load() {
		if slot, err := h.module.engine.demotedEffects.Acquire(h.outside()); err == nil { // otherwise the process was asked to end the call
			defer slot.Release()
			if engine := h.module.engine; !engine.config.Scheduler.Idle() {
				engine.pause(effectPause)
			}
			if e.op == opHTTP {
				slot.Release()
			}
		}
	}
	return h.answer(e)
}

// answer calls into Imports. An error that it panics with ends the guest and is
// the error of the call; any other panic is a mistake in the host, and Call
// panics with it.
func (h *call) answer(e effect) (k kind, body []byte) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case runtime.Error:
			h.fault = v
		case error:
			h.ended, k = v, kindEnd
		default:
			h.fault = v
		}
	}()
	switch e.op {
	case opNow:
		body = appendUint(nil, uint64(h.imports.Now(h.ctx)))
	case opRandom:
		body = appendUint(nil, h.imports.Random(h.ctx))
	case opSeed:
		seed := h.imports.Seed(h.ctx)
		body = seed[:]
	case opHTTP:
		data, status, took := h.exchange(slices.Clone(e.request))
		h.effectBytes += uint64(len(data))
		body = append(appendUint(appendUint(nil, uint64(status)), uint64(took)), data...)
	}
	return kindAnswer, body
}

// exchange makes an HTTP exchange. The call waits for a server, so it releases its CPU
// slot and acquires another one afterwards. Its deadline does not move.
func (h *call) exchange(request []byte) ([]byte, abi.Status, time.Duration) {
	ctx := h.outside()
	h.slot.release()
	defer h.slot.acquire(ctx) // which fails only if the call is about to end
	return h.imports.HTTP(context.WithValue(ctx, placeKey{}, h.module.engine), request)
}

// outside is the context of an exchange: the caller's, until the deadline. What
// takes no time has the caller's own.
func (h *call) outside() context.Context {
	if h.limited == nil {
		if h.deadline.IsZero() {
			h.limited, h.cancel = context.WithCancel(h.ctx)
		} else {
			h.limited, h.cancel = context.WithDeadline(h.ctx, h.deadline)
		}
	}
	return h.limited
}
