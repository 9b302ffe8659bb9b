package sandbox

import (
	"encoding/binary"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/wasm"
)

// Observers receive what the calls of an engine do. Nil ones receive nothing.
type Observers struct {
	// Profile is called at the beginning of each call and receives the reports of that
	// call's functions. Modules are rewritten for it, and run some fifteen times slower,
	// with the same fuel. It may return nil.
	Profile func(tool string) Profiler

	// Source is called after each call, and receives what its module says of its source and which lines
	// of it were executed. Only the machine counts. It may return nil.
	Source func(tool string) Source

	// Progress receives the fuel that a call has spent since the last report: every few
	// milliseconds, and at its end. All calls in progress use it.
	Progress func(fuel uint64)
}

// Profiler receives the functions that a call enters and leaves, with the fuel
// spent by then. It is used from one goroutine. A function entered and not
// left when the call ends was ended by a trap or from outside.
type Profiler interface {
	// Enter reports a function of the module by its index.
	Enter(function uint32, fuel uint64)
	// EnterImport reports a function of the host.
	EnterImport(name string, fuel uint64)
	// Line reports that from now on so many functions of a script run, and where the innermost of them
	// is. Only the machine reads that, from the memory of an interpreter it knows, and it then
	// reports no function of the interpreter itself. Texts have at most 1 KiB.
	Line(depth int, function, file string, line int, fuel uint64)
	// Leave reports the return of the function entered last.
	Leave(fuel uint64)
	// End reports the end of the call.
	End(fuel uint64)
}

// Source receives what a module says of its source. Texts may be hostile, and have at most 1 KiB.
type Source interface {
	// Module reports how many functions the module has, how many of these, the first ones, are imports,
	// the language of the scripts that it interprets, such as "Python", or "", and why names and lines
	// are missing, or "".
	Module(functions, imports int, language, problem string)
	// Function reports the name of a function, or "", and how many source lines it has. That is reported
	// once for each place where a module is loaded.
	Function(index uint32, name string, lines int)
	// SourceLine reports a line of a function that was called.
	SourceLine(l SourceLine)
}

// SourceLine is a source line of a function.
type SourceLine struct {
	Function uint32 // index of the one that it was compiled into
	Name     string // of the function of the source
	File     string
	Line     int
	Executed uint64 // how often, at most, one of its instructions was
	Fuel     uint64 // that its instructions cost, but for the bytes that bulk operations move
}

// TraceEvent is one call of an import.
type TraceEvent struct {
	Tool     string
	Function string   // as module.name
	Fuel     uint64   // spent before the call
	Params   []uint64 // as many bits as their types have
	Result   uint64   // the same; zero if the function has none
	Returned bool     // false if it ended the guest
	In       []byte   // read from memory, for http and fd_write
	Out      []byte   // its result: the answer of http, the bytes of random_get, the time of clock_time_get
}

// watch holds the observers of one call.
type watch struct {
	profiler Profiler // or nil
	trace    func(TraceEvent)
	progress func(fuel uint64)
	told     uint64 // fuel already reported to progress
	script   bool   // the profiler receives lines of a script instead of functions of the module
}

// watched returns the observers of a call of a tool, or nil.
func (e *Engine) watched(tool string) *watch {
	o := e.observers
	if o.Profile == nil && e.trace == nil && o.Progress == nil {
		return nil
	}
	w := &watch{trace: e.trace, progress: o.Progress}
	if o.Profile != nil {
		w.profiler = o.Profile(tool)
	}
	return w
}

// entered is the import by which a profiled module reports.
func entered(s *session, a args) {
	if s.watch != nil && s.watch.profiler != nil && !s.watch.script {
		s.watch.profiler.Enter(a.u32(0), s.instance.fuel.Get())
	}
}

// left is the other one.
func left(s *session, _ args) {
	if s.watch != nil && s.watch.profiler != nil && !s.watch.script {
		s.watch.profiler.Leave(s.instance.fuel.Get())
	}
}

// spent reports the fuel that the call has spent by now.
func (w *watch) spent(fuel uint64) {
	if w != nil && w.progress != nil {
		w.progress(fuel - w.told)
		w.told = fuel
	}
}

// end closes the profile of the call.
func (w *watch) end(s *session) {
	w.spent(s.instance.fuel.Get())
	if w != nil && w.profiler != nil {
		w.profiler.End(s.instance.fuel.Get())
	}
}

// call makes the call of an import and reports it, also when it ends the guest.
func (w *watch) call(s *session, f imported, stack []uint64) {
	if w.profiler == nil && w.trace == nil {
		f.answer(s, stack)
		return
	}
	ev := TraceEvent{
		Tool: s.name, Function: f.module + "." + f.name, Fuel: s.instance.fuel.Get(), Params: values(f.t.Params, stack),
	}
	ev.In = s.reads(f.name, ev.Params)
	if w.profiler != nil {
		w.profiler.EnterImport(ev.Function, ev.Fuel)
	}
	defer func() {
		if w.trace != nil {
			w.trace(ev)
		}
	}()
	f.answer(s, stack)
	ev.Returned = true
	if len(f.t.Results) > 0 {
		ev.Result = values(f.t.Results, stack)[0]
	}
	ev.Out = s.writes(f.name, ev)
	if w.profiler != nil {
		w.profiler.Leave(s.instance.fuel.Get())
	}
}

// values returns parameters or results without the bits that their types do
// not have.
func values(types []wasm.ValType, stack []uint64) []uint64 {
	out := make([]uint64, len(types))
	for i, t := range types {
		if out[i] = stack[i]; t == wasm.I32 || t == wasm.F32 {
			out[i] = uint64(uint32(stack[i]))
		}
	}
	return out
}

// mostTraced bounds the memory copied into an event.
const mostTraced = 1 << 16

// peek returns a copy of guest memory, or nil if the area is outside.
func (s *session) peek(address, length uint64) []byte {
	length = min(length, mostTraced)
	if length == 0 || !s.instance.has(uint32(address), length) {
		return nil
	}
	return s.copyOut(uint32(address), uint32(length))
}

// reads returns the bytes that a function is about to read.
func (s *session) reads(name string, params []uint64) []byte {
	switch name {
	case abi.ImportHTTP:
		return s.peek(params[0], params[1])
	case "fd_write":
		var text []byte
		vectors := s.peek(params[1], 8*params[2])
		for ; len(vectors) >= 8 && len(text) < mostTraced; vectors = vectors[8:] {
			text = append(text, s.peek(uint64(binary.LittleEndian.Uint32(vectors)), uint64(binary.LittleEndian.Uint32(vectors[4:])))...)
		}
		return text
	}
	return nil
}

// writes returns the bytes that a function has written.
func (s *session) writes(name string, ev TraceEvent) []byte {
	switch {
	case name == abi.ImportHTTP && s.held != nil:
		return s.held.data[:min(len(s.held.data), mostTraced)]
	case name == abi.ImportHTTP && int64(ev.Result) > 0:
		return s.peek(ev.Params[2], ev.Result)
	case name == "random_get" && ev.Result == 0:
		return s.peek(ev.Params[0], ev.Params[1])
	case name == "clock_time_get" && ev.Result == 0:
		return s.peek(ev.Params[2], 8)
	}
	return nil
}
