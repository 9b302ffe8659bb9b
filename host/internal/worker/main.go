package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/host/internal/jail"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/work"
)

// called is set once Main has found that this process is not a worker. A program that does
// not call Main would run as a whole in each of its workers.
var called atomic.Bool

// Main makes a worker of this process if it was started as one, and does not
// return then. Every program that uses this package, and every test that does,
// calls it before anything else.
func Main() {
	s, marked, err := ownSettings()
	if !marked {
		called.Store(true)
		return
	}
	if err == nil {
		err = s.serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve locks this process down and serves the host until its input ends. The
// engine starts first: it has to try out the machine's abilities, and it sees
// nothing of a module.
func (s settings) serve() error {
	runtime.GOMAXPROCS(s.Processors)
	debug.SetMemoryLimit(int64(s.Memory / 2))
	ctx := context.Background()
	w := &worker{out: os.Stdout, inbox: newInbox(os.Stdin)}
	if !s.Compile {
		engine, err := sandbox.New(ctx, sandbox.Config{Machine: s.Machine, Observers: s.observers(w)})
		if err != nil {
			return err
		}
		w.engine = engine
	}
	report, err := jail.Enter(s.jail())
	if err != nil {
		return err
	}
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	if err := w.send(append(begin(nil, kindReady), text...)); err != nil {
		return err
	}
	switch {
	case s.Link:
		return w.link(ctx)
	case s.Compile:
		return w.read(ctx, s)
	}
	return w.run(ctx, s.Folder)
}

// maxFromHost bounds a frame from the host: a module, or an answer.
const maxFromHost = 1 << 30

// worker is the state of a worker process. Only the goroutine that runs the
// guest writes.
type worker struct {
	out    io.Writer
	inbox  *inbox
	frame  []byte // for the next thing to say
	engine *sandbox.Engine
	module *sandbox.Module
	report *reporter
}

func (w *worker) send(frame []byte) error {
	w.frame = frame
	if cap(w.frame) > maxKept {
		w.frame = nil
	}
	return send(w.out, frame)
}

var errUnexpected = errors.New("worker: the host said something that it must not say now")

// expect returns the next message, which must be of the given kind.
func (w *worker) expect(k kind) (message, error) {
	m, err := w.inbox.next()
	if err == nil && m.kind != k {
		err = errUnexpected
	}
	return m, err
}

// read reads one module. It sends what the module becomes before it compiles it: once the compiler,
// which a module might take over, has begun, the host believes nothing but that there is code.
func (w *worker) read(ctx context.Context, s settings) error {
	m, err := w.expect(kindModule)
	if err != nil {
		return err
	}
	result := &sandbox.Prepared{}
	p, err := sandbox.Read(ctx, runtime.GOMAXPROCS(0), m.body, s.Rewrite, s.Folder, func(p *sandbox.Prepared) bool {
		err := w.send(appendDone(begin(w.frame, kindDone), nil, p))
		if err == nil {
			_, err = w.expect(kindCompile)
		}
		runtime.GC() // or the heap grows to twice what the rewriter held, before the compiler reuses any of it
		return err == nil
	})
	if err == nil && s.Folder == "" {
		result = p
	}
	return w.send(appendDone(begin(w.frame, kindDone), failureOf(err), result))
}

// link links one component. It sends why the component is refused, or the size of the module and then
// the module.
func (w *worker) link(ctx context.Context) error {
	m, err := w.expect(kindModule)
	if err != nil {
		return err
	}
	module, err := component.Link(work.For(ctx, len(m.body)), m.body)
	err = cmp.Or(w.send(appendUint(failureOf(err).append(begin(w.frame, kindDone)), uint64(len(module)))), err)
	if err != nil {
		return err
	}
	return w.send(append(begin(nil, kindLinked), module...))
}

// run loads one module, whose code is in the folder, and then makes one call after the other.
func (w *worker) run(ctx context.Context, folder string) error {
	m, err := w.expect(kindModule)
	if err != nil {
		return err
	}
	collect := debug.SetGCPercent(-1) // hardly anything is garbage yet, and SetMemoryLimit holds
	prepared, err := sandbox.DecodePrepared(m.body)
	if err != nil {
		return err
	}
	prepared.Wasm = bytes.Clone(prepared.Wasm) // the module keeps it, and the next message replaces the frame
	prepared.Module = bytes.Clone(prepared.Module)
	prepared.Folder = folder
	asItCame, known := prepared.Wasm == nil, len(prepared.Start) > 0
	w.module, err = w.engine.LoadPrepared(ctx, prepared)
	report := &sandbox.Prepared{}
	switch {
	case err != nil:
	case asItCame: // the host keeps nothing else of the module, so each process makes the start
		report.ABI, report.Imports = w.module.ABI(), w.module.Imports()
	case !known && len(prepared.Start) > 0:
		report.Start, report.Data = prepared.Start, prepared.Data
	}
	debug.SetGCPercent(collect)
	if err := w.send(appendDone(begin(w.frame, kindDone), failureOf(err), report)); err != nil {
		return err
	}
	for {
		m, err := w.inbox.next()
		if err != nil {
			return nil // the host is gone
		}
		if err := w.one(ctx, m); err != nil {
			return err
		}
	}
}

// one does one thing that the host asks for.
func (w *worker) one(ctx context.Context, m message) error {
	switch {
	case w.module == nil:
		return errUnexpected
	case m.kind == kindCall:
		return w.call(m)
	case m.kind == kindDescribe:
		doc, err := w.module.Describe(ctx)
		return w.send(result{err: failureOf(err), output: doc}.append(begin(w.frame, kindResult), false))
	}
	return errUnexpected
}

func (w *worker) call(m message) error {
	r, err := parseRequest(m.body)
	if err != nil {
		return err
	}
	r.call.Input = append([]byte(nil), r.call.Input...) // an answer replaces the frame
	ctx, cancel := w.inbox.begin(r.number)
	defer cancel()
	world := &asking{worker: w}
	r.call.Probe = func(meter func() sandbox.Meter) { world.meter = meter }
	w.inbox.compute()
	out, err := w.module.Call(ctx, r.call, world)
	w.report.send() // the rest
	answer := result{meter: out.Meter, err: failureOf(err), output: out.Output}
	return w.send(answer.append(begin(w.frame, kindResult), world.changed(out.Meter)))
}

// asking is the world as a guest in a worker sees it: it asks the host, with the
// meter's reading, and waits for the answer.
type asking struct {
	worker *worker
	meter  func() sandbox.Meter
	log    string // as of the last reading that was sent
}

// changed reports whether a reading has another log than the one before. A log
// only ever grows.
func (a *asking) changed(m sandbox.Meter) bool {
	changed := m.Log != a.log
	a.log = m.Log
	return changed
}

// ask sends an effect and returns the answer, which is valid until the next
// one. A worker that has lost its host has nothing left to do.
func (a *asking) ask(o op, request []byte) []byte {
	w, m := a.worker, a.meter()
	frame := appendMeter(append(begin(w.frame, kindEffect), byte(o)), m, a.changed(m))
	if err := w.send(appendBytes(frame, request)); err != nil {
		os.Exit(1)
	}
	answer, err := w.inbox.next()
	if err != nil {
		os.Exit(0)
	}
	w.inbox.compute()
	switch answer.kind {
	case kindAnswer:
		return answer.body
	case kindEnd:
		panic(errEnded)
	}
	panic(errUnexpected)
}

// Now is the import starling:v1.now.
func (a *asking) Now(context.Context) int64 {
	f := fields{b: a.ask(opNow, nil)}
	return int64(f.uint())
}

// Random is the import starling:v1.random.
func (a *asking) Random(context.Context) uint64 {
	f := fields{b: a.ask(opRandom, nil)}
	return f.uint()
}

// Seed is the key behind WASI's random_get.
func (a *asking) Seed(context.Context) (seed [32]byte) {
	copy(seed[:], a.ask(opSeed, nil))
	return seed
}

// HTTP is the import starling:v1.http.
func (a *asking) HTTP(_ context.Context, request []byte) ([]byte, abi.Status, time.Duration) {
	f := fields{b: a.ask(opHTTP, request)}
	status, took := abi.Status(int64(f.uint())), time.Duration(f.uint())
	return append([]byte(nil), f.b...), status, took
}
