package worker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
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
	m, err := w.expect(kindModule)
	switch {
	case err != nil:
		return err
	case s.Link:
		return w.link(ctx, m.body)
	case s.Compile:
		return w.read(ctx, s, m.body)
	}
	return w.run(ctx, s.Folder, m.body)
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
func (w *worker) read(ctx context.Context, s settings, module []byte) error {
	result := &sandbox.Prepared{}
	p, err := sandbox.Read(ctx, runtime.GOMAXPROCS(0), module, s.Rewrite, s.Folder, func(p *sandbox.Prepared) bool {
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
func (w *worker) link(ctx context.Context, from []byte) error {
	module, err := component.Link(work.For(ctx, len(from)), from)
	err = cmp.Or(w.send(appendUint(failureOf(err).append(begin(w.frame, kindDone)), uint64(len(module)))), err)
	if err != nil {
		return err
	}
	return w.send(append(begin(nil, kindLinked), module...))
}

// run loads one module, whose code is in the folder, and then makes one call after the other.
func (w *worker) run(ctx context.Context, folder string, module []byte) error {
	collect := debug.SetGCPercent(-1) // hardly anything is garbage yet, and SetMemoryLimit holds
	prepared, err := sandbox.DecodePrepared(module)
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
	if r.call.Files != nil {
		r.call.Files.Get = world.content
	}
	out, err := w.module.Call(ctx, r.call, world)
	w.report.send() // the rest
	answer := result{meter: out.Meter, err: failureOf(err), output: out.Output}
	if err == nil && r.call.Files != nil {
		answer.left = out.Left[:]
	}
	if err := w.leave(out.Contents); err != nil {
		return err
	}
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
	m := a.meter()
	frame := appendMeter(append(begin(a.worker.frame, kindEffect), byte(o)), m, a.changed(m))
	return a.exchange(appendBytes(frame, request))
}

func (a *asking) exchange(frame []byte) []byte {
	w := a.worker
	if err := w.send(frame); err != nil {
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

// A frame is one message on a pipe: the length of its body in four bytes,
// little-endian, its kind in one, and the body.
const headerBytes = 5

// kind is the type of a frame.
type kind byte

// The kinds. At any time only one side may speak, except that the host may
// cancel a call while the worker is busy with it.
const (
	kindReady    kind = iota + 1 // worker: it is locked down
	kindModule                   // host: a module to load, to read or to link
	kindDone                     // worker: the result for the module
	kindCall                     // host: one call
	kindEffect                   // worker: the guest calls an import
	kindAnswer                   // host: the result of an effect
	kindEnd                      // host: the guest ends where it stands
	kindCancel                   // host: the call is not wanted any more
	kindResult                   // worker: how the call ended
	kindDescribe                 // host: the module's description is wanted
	kindObserved                 // worker: reports to the observers of a call
	kindCompile                  // host: the module that was read is to be compiled
	kindLinked                   // worker: the module that a component has become
	kindContent                  // worker: the content of a digest is wanted
	kindLeft                     // worker: a content that the call leaves, before its result
)

// errProtocol is why a worker is not listened to any more.
var errProtocol = errors.New("worker: the process broke the protocol")

// frameReader reads frames whose bodies have at most limit bytes.
type frameReader struct {
	r      *bufio.Reader
	limit  uint64
	honest bool // lengths are believed
	header [headerBytes]byte
	body   bytes.Buffer
}

func newFrameReader(r io.Reader, limit uint64) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// maxKept is the size up to which a buffer is kept for the next frame.
const maxKept = 1 << 20

// next returns the next frame. The body is valid until the next call.
func (f *frameReader) next() (kind, []byte, error) {
	if _, err := io.ReadFull(f.r, f.header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.LittleEndian.Uint32(f.header[:])
	if uint64(length) > f.limit {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, more than %d", errProtocol, length, f.limit)
	}
	if f.body.Cap() > maxKept {
		f.body = bytes.Buffer{}
	}
	f.body.Reset()
	room := int(length)
	if !f.honest { // it grows with what comes, so that a false length takes no more memory
		room = min(room, maxKept)
	}
	f.body.Grow(room + bytes.MinRead) // so that reading an honest one never grows it
	if _, err := io.CopyN(&f.body, f.r, int64(length)); err != nil {
		return 0, nil, err
	}
	return kind(f.header[4]), f.body.Bytes(), nil
}

// begin starts a frame in a buffer that may be used again.
func begin(buffer []byte, k kind) []byte {
	return append(buffer[:0], 0, 0, 0, 0, byte(k))
}

// send completes a frame and writes it in one piece.
func send(w io.Writer, frame []byte) error {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-headerBytes))
	_, err := w.Write(frame)
	return err
}

// message is a frame from the host.
type message struct {
	kind kind
	body []byte // valid until the next message
}

// inbox is where a worker reads the host's messages. The goroutine that runs
// the guest reads for itself, since taking a frame from another goroutine
// costs as much again as the way through the pipe. Only after the guest has
// computed for some time does a listener read, so that a cancellation is
// heard, and the worker ends with the host in any case.
type inbox struct {
	frames *frameReader
	heard  chan message // read by the listener

	mu        sync.Mutex  // guards what follows
	timer     *time.Timer // calls listen
	armed     bool        // it will
	computing bool        // the guest runs
	since     time.Time   // then it began to
	listening bool        // only the listener may read
	number    uint64      // of the call that may be cancelled
	cancel    context.CancelFunc
}

// listenAfter is how long a guest computes before the worker listens.
const listenAfter = time.Millisecond

func newInbox(in *os.File) *inbox {
	frames := newFrameReader(in, maxFromHost)
	frames.honest = true
	i := &inbox{frames: frames, heard: make(chan message), cancel: func() {}}
	i.timer = time.AfterFunc(time.Hour, i.listen)
	i.timer.Stop()
	return i
}

// next returns the host's next message.
func (i *inbox) next() (message, error) {
	i.mu.Lock()
	i.computing = false
	listening := i.listening
	i.mu.Unlock()
	if listening {
		m := <-i.heard
		i.mu.Lock()
		i.listening = false
		i.mu.Unlock()
		return m, nil
	}
	for {
		m, cancelled, err := i.read()
		if err != nil || !cancelled {
			return m, err
		}
	}
}

// compute means that the guest runs from now on, until next is called again. A
// running timer is left alone: setting and stopping one for each call costs more
// than a short call.
func (i *inbox) compute() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.computing, i.since = true, time.Now()
	i.arm(listenAfter)
}

// arm sets the timer unless it is set. The caller holds mu.
func (i *inbox) arm(d time.Duration) {
	if !i.armed {
		i.armed = true
		i.timer.Reset(d)
	}
}

// begin makes the context of a call. Messages about earlier calls are ignored.
func (i *inbox) begin(number uint64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	i.mu.Lock()
	defer i.mu.Unlock()
	i.number, i.cancel = number, cancel
	return ctx, cancel
}

// read reads a frame. A cancellation is carried out at once.
func (i *inbox) read() (m message, cancelled bool, err error) {
	if m.kind, m.body, err = i.frames.next(); err != nil || m.kind != kindCancel {
		return m, false, err
	}
	f := fields{b: m.body}
	number := f.uint()
	i.mu.Lock()
	defer i.mu.Unlock()
	if number == i.number {
		i.cancel()
	}
	return m, true, nil
}

// listen reads until there is something for the goroutine that runs the guest, if
// that has computed for long enough.
func (i *inbox) listen() {
	if !i.begins() {
		return
	}
	for {
		m, cancelled, err := i.read()
		if err != nil {
			os.Exit(0) // the host is gone
		}
		if !cancelled {
			i.heard <- m
			return
		}
	}
}

// begins reports whether a listener should begin now.
func (i *inbox) begins() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.armed = false
	if !i.computing || i.listening {
		return false
	}
	if rest := listenAfter - time.Since(i.since); rest > 0 {
		i.arm(rest)
		return false
	}
	i.listening = true
	return true
}
