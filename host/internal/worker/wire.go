package worker

import (
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// Bodies are fields one after another: integers little-endian in eight bytes,
// flags and classes in one, texts and documents behind their length in four.

func appendUint(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func appendBytes[T ~[]byte | ~string](b []byte, v T) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
}

func appendTexts(b []byte, texts []string) []byte {
	b = appendUint(b, uint64(len(texts)))
	for _, text := range texts {
		b = appendBytes(b, text)
	}
	return b
}

func appendFlag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// fields takes a body apart. After the first missing field all others are zero
// and bad is set. What bytes returns belongs to the frame.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) take(n uint64) []byte {
	if n > uint64(len(f.b)) {
		f.b, f.bad = nil, true
		return nil
	}
	taken := f.b[:n:n]
	f.b = f.b[n:]
	return taken
}

func (f *fields) uint() uint64 {
	if b := f.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (f *fields) byte() byte {
	if b := f.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) uvarint() uint64 {
	v, n := binary.Uvarint(f.b)
	f.bad = f.bad || n <= 0
	f.take(uint64(max(n, 0)))
	return v
}

func (f *fields) flag() bool {
	v := f.byte()
	f.bad = f.bad || v > 1
	return v == 1
}

func (f *fields) bytes() []byte {
	if b := f.take(4); b != nil {
		return f.take(uint64(binary.LittleEndian.Uint32(b)))
	}
	return nil
}

// text returns a text. It must be UTF-8, because everything recorded must be.
func (f *fields) text() string {
	b := f.bytes()
	f.bad = f.bad || !utf8.Valid(b)
	return string(b)
}

// texts returns at most so many.
func (f *fields) texts(most int) (texts []string) {
	n := f.uint()
	for f.bad = f.bad || n > uint64(most); n > 0 && !f.bad; n-- {
		texts = append(texts, f.text())
	}
	return texts
}

// end reports whether the body was exactly the fields read.
func (f *fields) end() error {
	if f.bad || len(f.b) > 0 {
		return errProtocol
	}
	return nil
}

// appendDone writes the body of kindDone: why there is no result for the module, or what the process
// knows of it. That is what sandbox.Read returns. Of a module that it has loaded, it is the start that
// other processes may begin with, or ABI and imports if the host has not had the module read.
func appendDone(b []byte, failed *failure, p *sandbox.Prepared) []byte {
	b = appendBytes(failed.append(b), p.Start)
	b = appendUint(b, uint64(len(p.Data)))
	for _, d := range p.Data {
		b = appendBytes(appendUint(b, uint64(d.Offset)), d.Bytes)
	}
	b = appendTexts(appendTexts(appendTexts(appendBytes(b, p.ABI), p.Imports), p.Globals), p.First)
	b = appendBytes(appendBytes(b, p.Wasm), p.Code[:])
	return appendUint(appendUint(b, uint64(p.Size)), p.Reserve)
}

// parseDone reads the body of kindDone. What it returns belongs to the frame.
func parseDone(body []byte) (*failure, *sandbox.Prepared, error) {
	f := fields{b: body}
	failed, p, limits := f.failure(), &sandbox.Prepared{Start: f.bytes()}, rewrite.DefaultLimits()
	n := f.uint()
	if f.bad = f.bad || n > uint64(limits.DataSegments); !f.bad { // a start has one for each page at most
		p.Data = make([]rewrite.Segment, 0, min(n, uint64(len(f.b))/12)) // which each takes at least
	}
	for ; n > 0 && !f.bad; n-- {
		offset := f.uint()
		f.bad = f.bad || offset > math.MaxUint32
		p.Data = append(p.Data, rewrite.Segment{Offset: uint32(offset), Bytes: f.bytes()})
	}
	p.ABI, p.Imports, p.Globals, p.First = f.text(), f.texts(limits.Imports), f.texts(limits.Globals), f.texts(limits.Exports)
	p.Wasm = f.bytes()
	f.bad = copy(p.Code[:], f.bytes()) != len(p.Code) || f.bad
	p.Size, p.Reserve = int(f.uint()), f.uint()
	return failed, p, f.end()
}

// request is the body of kindCall.
type request struct {
	number uint64 // of the call, for its cancellation
	call   sandbox.Call
}

func (r request) append(b []byte) []byte {
	b = appendFlag(appendUint(b, r.number), r.call.StopErr != nil)
	b = appendUint(appendUint(b, r.call.StopAt), uint64(r.call.Rules))
	b = appendTexts(appendTexts(appendBytes(b, r.call.Tool), r.call.Args), r.call.Env)
	return appendBytes(appendFiles(b, r.call.Files), r.call.Input)
}

// parseRequest reads a call. The input belongs to the frame.
func parseRequest(body []byte) (request, error) {
	f := fields{b: body}
	r := request{number: f.uint()}
	r.call.NoTimeout = true // the host has the clock
	if f.flag() {
		r.call.StopErr = errStopped
	}
	r.call.StopAt, r.call.Rules = f.uint(), uint32(f.uint())
	r.call.Tool = f.text()
	r.call.Args, r.call.Env = f.texts(math.MaxInt), f.texts(math.MaxInt)
	r.call.Files, r.call.Input = f.files(), f.bytes()
	return r, f.end()
}

// appendMeter writes a reading. The log is only there when it has changed since
// the reading before, because most effects add nothing to it.
func appendMeter(b []byte, m sandbox.Meter, changed bool) []byte {
	b = appendFlag(appendUint(appendUint(b, m.Fuel), m.PeakMemory), changed)
	if changed {
		b = appendBytes(b, m.Log)
	}
	return b
}

// meter reads a reading that follows last.
func (f *fields) meter(last sandbox.Meter) sandbox.Meter {
	m := sandbox.Meter{Fuel: f.uint(), PeakMemory: f.uint(), Log: last.Log}
	if f.flag() {
		m.Log = f.text()
	}
	return m
}

// effect is the body of kindEffect.
type effect struct {
	op      op
	meter   sandbox.Meter
	request []byte // of HTTP; belongs to the frame
}

// op is a method of sandbox.Imports.
type op byte

const (
	opNow op = iota + 1
	opRandom
	opSeed
	opHTTP
)

func parseEffect(body []byte, last sandbox.Meter) (effect, error) {
	f := fields{b: body}
	e := effect{op: op(f.byte()), meter: f.meter(last), request: f.bytes()}
	if err := f.end(); err != nil {
		return effect{}, err
	}
	// A host call costs fuel, and replay relies on no two having the same.
	if e.op < opNow || e.op > opHTTP || e.meter.Fuel <= last.Fuel {
		return effect{}, errProtocol
	}
	return e, nil
}

// result is the body of kindResult.
type result struct {
	meter  sandbox.Meter
	err    *failure // nil for a success
	output []byte   // belongs to the frame
	left   []byte   // sandbox.Result.Left, or nothing; the same
}

func (r result) append(b []byte, changed bool) []byte {
	return appendBytes(appendBytes(r.err.append(appendMeter(b, r.meter, changed)), r.output), r.left)
}

func parseResult(body []byte, last sandbox.Meter) (result, error) {
	f := fields{b: body}
	r := result{meter: f.meter(last), err: f.failure(), output: f.bytes(), left: f.bytes()}
	if err := f.end(); err != nil {
		return result{}, err
	}
	if r.meter.Fuel < last.Fuel {
		return result{}, errProtocol
	}
	return r, nil
}

// failure is an error that has been in another process: its class and its text,
// which is all that is ever recorded of an error. A refusal is there as a whole.
type failure struct {
	class   class
	text    string
	refusal *rewrite.Refusal // of classRefused
}

// class is a sentinel of package tool, or the side that has the error itself.
type class byte

const (
	classNone     class = iota // no failure
	classOwn                   // of no class: the tool's own
	classPanicked              // tool.ErrPanicked
	classFuel
	classMemory
	classEffects
	classLimit // any other
	classTimeout
	classCancelled
	classSpoiled // sandbox.ErrSpoiled, which is a tool.ErrHost as well
	classHost
	classStopped // Call.StopErr
	classEnded   // the error with which the import panicked
	classRefused // a *rewrite.Refusal
	classes      // their number
)

var sentinels = [classes]error{
	classPanicked:  tool.ErrPanicked,
	classFuel:      tool.ErrFuel,
	classMemory:    tool.ErrMemory,
	classEffects:   tool.ErrEffects,
	classLimit:     tool.ErrLimit,
	classTimeout:   tool.ErrTimeout,
	classCancelled: tool.ErrCancelled,
	classSpoiled:   sandbox.ErrSpoiled,
	classHost:      tool.ErrHost,
	classStopped:   errStopped,
	classEnded:     errEnded,
}

// Placeholders in a worker's sandbox for errors that only the host has.
var (
	errStopped = errors.New("worker: stopped as recorded")
	errEnded   = errors.New("worker: ended by the host")
)

// failureOf returns the failure for err, nil for nil.
func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{class: classOwn, text: err.Error()}
	for c, sentinel := range sentinels {
		if sentinel != nil && errors.Is(err, sentinel) {
			f.class = class(c)
			return f // spoiled code looks like a refusal, too
		}
	}
	if r, refused := errors.AsType[*rewrite.Refusal](err); refused {
		f.class, f.refusal = classRefused, r
	}
	return f
}

// Error returns the text of the error.
func (f *failure) Error() string { return f.text }

// Unwrap returns the sentinel of the class or the refusal, nil for a tool's own failure.
func (f *failure) Unwrap() error {
	if f.refusal != nil {
		return f.refusal
	}
	return sentinels[f.class]
}

func (f *failure) append(b []byte) []byte {
	if f == nil {
		return append(b, byte(classNone))
	}
	b = appendBytes(append(b, byte(f.class)), f.text)
	if r := f.refusal; r != nil {
		b = appendTexts(b, []string{r.What, r.FuncName, r.Hint})
		for _, n := range []uint64{uint64(r.Func), uint64(r.Offset), r.Limit, r.Value} {
			b = appendUint(b, n)
		}
	}
	return b
}

func (f *fields) failure() *failure {
	c := class(f.byte())
	if c == classNone {
		return nil
	}
	if c >= classes {
		f.bad = true
		return nil
	}
	failed := &failure{class: c, text: f.text()}
	if c == classRefused {
		const texts = 3
		all := append(f.texts(texts), make([]string, texts)...)
		failed.refusal = &rewrite.Refusal{
			What: all[0], FuncName: all[1], Hint: all[2], Func: int(f.uint()), Offset: int(f.uint()), Limit: f.uint(), Value: f.uint(),
		}
	}
	return failed
}
