package debug

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/source"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
)

// Options configure [Open].
type Options struct {
	// Modules has the modules of the run.
	Modules eventlog.ModuleReader
	// Other, unless it is nil, replaces every module of the run.
	Other []byte
	// Symbols, unless it is empty, is a module with the same code that describes its source, where
	// the recorded one does not.
	Symbols []byte
	// Engine executes the other calls of the run. Nil executes them as the call itself.
	Engine guest.Engine
	// Native supplies the tools of the run that are not modules, see [guest.NewRecorded].
	Native guest.Native
	// Own, unless it is nil, reports whether the user has a source file. Motions by lines then stop
	// only in such files, if there are any.
	Own func(file string) bool
	// Progress, unless it is nil, receives the fuel that the call has spent since the last report.
	Progress func(fuel uint64)
}

// Session is one recorded call at one of its instructions. It is for one goroutine at a time.
type Session struct {
	target  Target
	rec     *machine.Recording
	table   *source.Table
	limits  work.Limits // of reading what the module says of its source
	offsets *rewrite.Offsets
	module  *wasm.Module

	effects  []Effect
	outcome  string
	diverged bool
	returned bool // from its export, perhaps with an error of the tool

	breaks []*Breakpoint
	lastID int
	spots  map[uint32]spot // by offset in the rewritten module
	own    map[string]bool // the files to stop in; nil for all
	heads  []uint32        // where functions begin that have a line to stop in, in the rewritten module
	lines  map[Place]int32

	ownFunctions map[int]bool // those with heads
	byID         []Place      // the lines, by their numbers less one
}

// Effect is a recorded host call, and where the call made it.
type Effect struct {
	Seq  uint64 // of its event
	Name string
	Text string // the essence of the event
	At   uint64 // the position of the instruction that called the host
	Fuel uint64 // spent there
}

// Place is a line of the source, and Variable a variable there. Texts come from the module and may
// be hostile.
type (
	Place    = source.Place
	Variable = source.Variable
)

// Frame is a function that runs.
type Frame struct {
	Place                // without a File where the module does not tell it
	Offset    uint32     // of its instruction in the module
	Inlined   bool       // into the next frame
	Own       bool       // its file is one to stop in
	Script    bool       // it is a function of the script that the module interprets, and has no Offset
	physical  int        // index of the machine's frame
	variables []Variable // of a script
}

// Open replays the run that has these events up to the end of a call, and returns a session at
// the place that the target names. If the replay leaves the log before the call, the error is an
// [*agent.Divergence].
func Open(ctx context.Context, events []event.Event, t Target, o Options) (*Session, error) {
	started, err := events[0].AsRunStarted()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(started.ToolSchemas, func(ref event.ToolSchemaRef) bool { return ref.Name == t.Call.Name })
	if i < 0 || started.ToolSchemas[i].Sandbox == nil {
		return nil, &NoCallError{Reason: fmt.Sprintf("tool %q is not a module, so there is nothing to execute", t.Call.Name)}
	}
	engine, err := sandbox.New(ctx, sandbox.Config{Machine: true, Observers: sandbox.Observers{Progress: o.Progress}})
	if err != nil {
		return nil, err
	}
	defer engine.Close(ctx)
	s := &Session{target: t, spots: map[uint32]spot{}, lines: map[Place]int32{}, ownFunctions: map[int]bool{}}
	l := &loader{s: s, module: started.ToolSchemas[i].Sandbox.Module, machine: guest.Inline(engine), others: o.Engine}
	if l.others == nil {
		l.others = l.machine
	}
	if o.Other != nil {
		digest := sandbox.Sum(o.Other)
		l.module = digest[:]
	}
	modules := guest.NewRecorded(l, o.Modules, o.Other, o.Native)
	defer modules.Close()
	lease := modules.Lease()
	defer lease.Release()
	replaying, stop := context.WithCancel(ctx)
	defer stop()
	ended := false
	v, err := agent.Replay(replaying, events, lease.Resolve, agent.ReplayOptions{OtherModule: o.Other != nil, Matched: func(ev event.Event) {
		if ev.Seq == t.Call.Last { // the rest of the run does not matter
			ended = true
			stop()
		}
	}})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case s.rec == nil && v.Divergence != nil:
		return nil, v.Divergence
	case s.rec == nil && t.Call.Last == 0:
		return nil, &NoCallError{Reason: fmt.Sprintf("call %s of %q has not ended, and the log does not say how far it came", t.Call.CallID, t.Call.Name)}
	case s.rec == nil && (ended || err == nil):
		return nil, &NoCallError{Reason: fmt.Sprintf("call %s of %q executed nothing: %s", t.Call.CallID, t.Call.Name, firstLines(t.Call.Error))}
	case s.rec == nil:
		return nil, err
	case v.Divergence != nil && !ended:
		s.outcome, s.diverged = v.Divergence.MismatchError.Error(), true
	}
	if err := s.describe(ctx, l.wasm, o.Symbols, started.ToolSchemas[i].Sandbox.Limits); err != nil {
		return nil, err
	}
	if t.Call.State != span.OK && !s.diverged && t.Call.Error != "" {
		s.outcome = t.Call.ErrorType + ": " + firstLines(strings.TrimPrefix(t.Call.Error, "tool: "))
	}
	s.choose(o.Own)
	s.place(events)
	told := "" // by a tool that failed itself: a limit stops anywhere
	if last := slices.IndexFunc(events, func(ev event.Event) bool { return ev.Seq == t.Call.Last }); last >= 0 && !s.diverged {
		if failed, err := events[last].AsToolCallFailed(); err == nil && failed.ErrorType == event.ErrorTool {
			told = failed.Log + "\n" + failed.Error
		}
	}
	return s, s.begin(ctx, told)
}

// ErrOtherCode is returned for symbols that describe other code than the recorded module's.
var ErrOtherCode = errors.New("the module with the symbols has other code than the recorded one")

// firstLines joins the reason of a failure and the first line of what a runtime explains of it.
func firstLines(text string) string {
	lines := strings.SplitN(text, "\n", 3)
	return strings.TrimSuffix(strings.Join(lines[:min(len(lines), 2)], ": "), ": ")
}

// describe reads what the module, or the one with the symbols, says of its source.
func (s *Session) describe(ctx context.Context, module, symbols []byte, limits event.SandboxLimits) (err error) {
	b := work.For(ctx, len(module)+len(symbols))
	rewritten, err := rewrite.Rewrite(b, module, rewrite.DefaultLimits(), rewrite.Options{MemoryPages: limits.MemoryPages, Depth: limits.Depth, Offsets: true})
	if err != nil {
		return err
	}
	s.offsets = rewritten.Offsets
	if s.module, err = wasm.Decode(b, module); err != nil {
		return err
	}
	if len(symbols) > 0 {
		other, err := wasm.Decode(b, symbols)
		if err != nil {
			return err
		}
		own, same := s.module.Section(wasm.SectionCode), other.Section(wasm.SectionCode)
		if same == nil || own.Offset != same.Offset || !bytes.Equal(own.Body, same.Body) {
			return ErrOtherCode
		}
		module = symbols
	}
	s.limits = work.ForSize(len(module))
	s.table, err = source.Open(work.New(ctx, s.limits), module)
	return err
}

// choose decides which files motions by lines stop in.
func (s *Session) choose(own func(string) bool) {
	files := map[string]bool{}
	for _, file := range s.table.Files() {
		if own != nil && own(file) {
			files[file] = true
		}
	}
	if len(files) > 0 {
		s.own = files
	}
	for _, offset := range s.table.Begins(func(file string) bool { return s.own == nil || s.own[file] }) {
		if at, ok := s.rewritten(offset); ok {
			function, _ := s.function(offset)
			s.heads, s.ownFunctions[function] = append(s.heads, at), true
		}
	}
}

// rewritten returns where the code at an offset of the module begins in the rewritten module. A line
// may begin before the first instruction of its function.
func (s *Session) rewritten(offset uint32) (uint32, bool) {
	at, ok := s.offsets.Rewritten(offset)
	if function, known := s.function(offset); !ok && known {
		if _, it, err := s.module.Body(function-s.module.NumImportedFuncs(), nil); err == nil && it.Next() && offset < uint32(it.Instr.Pos) {
			return s.offsets.Rewritten(uint32(it.Instr.Pos))
		}
	}
	return at, ok
}

// place finds the effects of the call in its recording. The host charges its calls before it answers,
// so an effect is that of the last call of its import with less fuel.
func (s *Session) place(events []event.Event) {
	calls := s.rec.Effects()
	imports := map[string]string{event.EffectNow: "now clock_time_get poll_oneoff", event.EffectRandom: "random", event.EffectSeed: "random_get"}
	last := s.target.Call.Last
	for _, ev := range events[s.target.Call.First:] {
		effect, err := ev.AsSideEffectRecorded()
		if ev.Seq == last {
			return
		} else if ev.Kind != event.KindSideEffectRecorded || err != nil || effect.CallID != s.target.Call.CallID || effect.Name == event.EffectIntent {
			continue
		}
		names, ok := imports[effect.Name]
		if !ok {
			names = "http"
		}
		i := -1
		for j, c := range calls {
			if slices.Contains(strings.Fields(names), c.Name) && c.Fuel < effect.Fuel {
				i = j
			}
		}
		if i < 0 {
			continue // the call has diverged before, or the log is too old to have the fuel
		}
		s.effects = append(s.effects, Effect{Seq: ev.Seq, Name: effect.Name, Text: event.Line(ev, 300), At: calls[i].At, Fuel: calls[i].Fuel})
		calls = calls[i+1:]
	}
}

// begin goes to the place that the target names. A tool that failed has told what is in its log and error.
func (s *Session) begin(ctx context.Context, told string) error {
	i := slices.IndexFunc(s.effects, func(e Effect) bool { return e.Seq == s.target.seq })
	switch {
	case s.target.fuel != nil:
		return s.rec.SeekFuel(ctx, *s.target.fuel)
	case s.target.head:
		return s.rec.Seek(ctx, 0)
	case i >= 0:
		return s.rec.Seek(ctx, s.effects[i].At)
	}
	if err := s.rec.Seek(ctx, s.rec.End()); err != nil || s.own == nil && !s.interpreted() || slices.ContainsFunc(s.Frames(), func(f Frame) bool { return f.Own }) {
		return err
	}
	stop, err := s.Move(ctx, Line, true) // the last line of the user's files that began
	switch {
	case err == nil && stop.Reason != Stepped:
		err = s.rec.Seek(ctx, s.rec.End())
	case err == nil && s.interpreted():
		err = s.blame(ctx, told)
	}
	return err
}

// blame goes from the last line of a script that began to the one that failed, which may have called the
// function of the other for the text of its error. A traceback names it, and its function still runs.
func (s *Session) blame(ctx context.Context, told string) error {
	named, began, frames := s.named(told), s.rec.At(), s.Frames()
	i := slices.IndexFunc(frames, func(f Frame) bool { return f.Script && named[Place{File: f.File, Line: f.Line}] })
	if i <= 0 {
		return nil
	}
	s.breaks = []*Breakpoint{{script: Place{File: frames[i].File, Line: frames[i].Line}}}
	stop, err := s.Move(ctx, Continue, true)
	s.breaks = nil
	if err == nil && stop.Reason != Hit {
		err = s.rec.Seek(ctx, began)
	}
	return err
}

// The lines of tracebacks: those of Python, of JavaScript, and of the programs of run_py and run_js.
var (
	pythonLine  = lazy.Regexp(`(?m)^ *File "(.+)", line (\d{1,9})(?:, in|$)`)
	scriptLine  = lazy.Regexp(`(?m)^ +at (?:.* \()?([^()\n]+):(\d{1,9}):\d+\)?$`)
	programLine = lazy.Regexp(`(?m)^ +at line (\d{1,9}), column \d+`)
)

// named returns the lines that tracebacks name. The text comes from the guest, and decides nothing but where a
// session begins.
func (s *Session) named(told string) map[Place]bool {
	traced, program, before := pythonLine(), "<program>", 0
	if s.table.Format() == source.JavaScript {
		traced, program, before = scriptLine(), "<input>", programBegins
	}
	places := map[Place]bool{}
	add := func(file, line string, before int) {
		n, _ := strconv.Atoi(line) // nine digits at most
		places[Place{File: file, Line: n + before}] = true
	}
	for _, m := range traced.FindAllStringSubmatch(told, -1) {
		add(m[1], m[2], 0)
	}
	for _, m := range programLine().FindAllStringSubmatch(told, -1) {
		add(program, m[1], before)
	}
	return places
}

// programBegins is how many lines run_js has before those of its program.
const programBegins = 2

// Outcome describes how the executed call ended, and whether that differs from the log.
func (s *Session) Outcome() (text string, diverged bool) { return s.outcome, s.diverged }

// Returned reports whether the executed call returned, perhaps with an error of the tool.
func (s *Session) Returned() bool { return s.returned }

// Effects returns the recorded effects of the call in their order.
func (s *Session) Effects() []Effect { return slices.Clone(s.effects) }

// Source names where lines come from, such as "DWARF" or "Go", or is empty if the module has none.
func (s *Session) Source() string { return s.table.Format() }

// Position returns the number of the next instruction, of the one that ended the call, and the fuel
// spent before it.
func (s *Session) Position() (at, end, fuel uint64) { return s.rec.At(), s.rec.End(), s.rec.Fuel() }

// Memory returns a copy of n bytes of the memory at an address, or fewer at its end.
func (s *Session) Memory(address, n uint32) []byte {
	size := s.rec.Size()
	if address >= size {
		return nil
	}
	b, _ := s.rec.Read(address, min(n, size-address))
	return slices.Clone(b)
}

// Frames returns the functions that run, innermost first.
func (s *Session) Frames() (frames []Frame) {
	all := s.rec.Frames()
	if s.interpreted() {
		locals := lists.Map(all, func(f machine.Frame) []uint64 { return f.Locals })
		for _, c := range s.table.Interpreted(s.memory(), locals...) {
			frames = append(frames, Frame{Place: c.Place, Script: true, Own: s.lineID(c.Place) > 0, variables: c.Variables})
		}
	}
	for i, f := range all {
		offset, ok := s.offsets.Original(f.Offset)
		function, known := s.function(offset)
		if !ok || !known {
			continue // the rewriter added it
		}
		places := s.table.Lines(offset, f.Locals...)
		if len(places) == 0 || i == 0 && s.returned && s.rec.At() == s.rec.End() {
			places = []Place{{}} // what returns has the line of the code before it, if any
		}
		if outer := &places[len(places)-1]; outer.Function == "" {
			outer.Function = s.name(function)
		}
		for j, p := range places {
			frames = append(frames, Frame{Place: p, Offset: offset, Inlined: j < len(places)-1, Own: s.lineID(p) > 0, physical: i})
		}
	}
	return frames
}

// function returns the index of the function with an offset of the module.
func (s *Session) function(offset uint32) (index int, ok bool) {
	i := s.table.Body(offset)
	return s.module.NumImportedFuncs() + i, i >= 0
}

func (s *Session) name(function int) string {
	if name := s.table.Function(uint32(function)); name != "" {
		return name
	}
	return fmt.Sprintf("function %d", function)
}

// Locals returns the variables of a frame that the module describes.
func (s *Session) Locals(f Frame) []Variable {
	return slices.DeleteFunc(s.variables(f), func(v Variable) bool {
		return v.Function != "" && v.Function != f.Function || v.Function == "" && f.Inlined
	})
}

// variables returns the variables of a frame, also those of the functions around it that it was
// inlined into, and of its file.
func (s *Session) variables(f Frame) []Variable {
	if f.Script || f.physical >= s.rec.Depth() {
		return slices.Clone(f.variables)
	}
	machine := s.rec.Frames()[f.physical]
	return s.table.Variables(work.New(context.Background(), s.limits), f.Offset, source.State{Locals: machine.Locals, Globals: s.rec.Globals(), Memory: s.memory()})
}

// Slots returns the locals of WebAssembly of a frame, as local0. The address of one is what it points to.
func (s *Session) Slots(f Frame) (all []Variable) {
	function, ok := s.function(f.Offset)
	if !ok || f.Script || f.physical >= s.rec.Depth() {
		return nil
	}
	types := slices.Clone(s.module.Types[s.module.FuncTypeIndex(function)].Params)
	groups, _, _ := s.module.Body(function-s.module.NumImportedFuncs(), nil)
	for _, g := range groups {
		types = append(types, slices.Repeat([]wasm.ValType{g.Type}, int(g.Count))...)
	}
	values := s.rec.Frames()[f.physical].Locals
	for i, t := range types[:min(len(types), len(values))] {
		v := Variable{Name: fmt.Sprintf("local%d", i), Type: t.String(), Value: number(t, values[i])}
		if t.IsNumber() && values[i] < uint64(s.rec.Size()) { // Go has pointers of 64 bits
			v.Address, v.Size = uint32(values[i]), 4
		}
		all = append(all, v)
	}
	return all
}

// Code is one instruction of the module as text.
type Code struct {
	Offset uint32
	Text   string
}

// Disassemble returns the instructions of the function of a frame.
func (s *Session) Disassemble(f Frame) (all []Code) {
	function, ok := s.function(f.Offset)
	if !ok || f.Script {
		return nil
	}
	_, it, err := s.module.Body(function-s.module.NumImportedFuncs(), nil)
	for err == nil && it.Next() {
		text, raw := it.Op.String(), s.module.Bytes(it.Instr.Pos, it.Instr.End)
		operands := wasm.NewReader(raw, 1, len(raw))
		switch op := it.Op; {
		case op == wasm.OpCall:
			text += " " + s.name(int(it.Index))
		case op >= wasm.OpBr && op <= wasm.OpBrIf, op >= wasm.OpLocalGet && op <= wasm.OpGlobalSet:
			text += fmt.Sprintf(" %d", it.Index)
		case op >= wasm.OpI32Load && op < wasm.OpMemorySize:
			operands.U32() // the alignment
			text += fmt.Sprintf(" offset=%d", operands.U32())
		case op == wasm.OpI32Const || op == wasm.OpI64Const:
			text += fmt.Sprintf(" %d", operands.S64())
		}
		all = append(all, Code{uint32(it.Instr.Pos), text})
	}
	return all
}

// loader loads the module of the call into the machine, and other modules into another engine.
type loader struct {
	s               *Session
	module          []byte // its digest
	machine, others guest.Engine
	wasm            []byte // the module, once it is loaded
}

func (l *loader) Load(ctx context.Context, wasm []byte, limits sandbox.Limits) (sandbox.Loaded, error) {
	if digest := sandbox.Sum(wasm); string(digest[:]) != string(l.module) {
		return l.others.Load(ctx, wasm, limits)
	}
	m, err := l.machine.Load(ctx, wasm, limits)
	if err != nil {
		return nil, err
	}
	l.wasm = wasm
	return &loaded{Loaded: m, loader: l, limits: limits}, nil
}

// loaded gives the one call to the machine, and further calls of the module to the other engine.
type loaded struct {
	sandbox.Loaded
	loader *loader
	limits sandbox.Limits

	mu    sync.Mutex // guards other
	other sandbox.Loaded
}

func (m *loaded) Call(ctx context.Context, c sandbox.Call, imports sandbox.Imports) (sandbox.Result, error) {
	s := m.loader.s
	if info, _ := step.CallInfo(ctx); info.ID == s.target.Call.CallID && info.Attempt == s.target.Call.Attempt {
		c.Recorded = func(r *machine.Recording) { s.rec = r }
		r, err := m.Loaded.Call(ctx, c, imports)
		s.returned = err == nil
		if s.outcome = "the call returned"; err != nil {
			s.outcome = firstLines(strings.TrimPrefix(err.Error(), "tool: "))
		}
		return r, err
	}
	m.mu.Lock()
	if m.other == nil {
		other, err := m.loader.others.Load(ctx, m.loader.wasm, m.limits)
		if err != nil {
			m.mu.Unlock()
			return sandbox.Result{}, err
		}
		m.other = other
	}
	m.mu.Unlock()
	return m.other.Call(ctx, c, imports)
}

func (m *loaded) Close(ctx context.Context) error {
	if m.other != nil {
		_ = m.other.Close(ctx)
	}
	return m.Loaded.Close(ctx)
}

// Target is one attempt of a call, and the place in it where a session begins.
type Target struct {
	Call span.Span

	seq  uint64  // of the effect to begin at; zero for none
	fuel *uint64 // to begin at; nil for none
	head bool    // begin at the first instruction, instead of the last
}

// NoCallError is returned if a run has no call to execute again.
type NoCallError struct {
	Reason string
	Calls  []span.Span // that can be executed
}

// Error returns the reason.
func (e *NoCallError) Error() string { return e.Reason }

// Find returns the call that at names: CALL or CALL/FUEL. CALL is the number of an event of the
// call, or the id of the call, which means its last attempt. The session begins at that event: at
// the first instruction for the event that scheduled the call, at the effect, or at the end. FUEL,
// such as 1M, begins where the call has spent that much. The empty text means the end of the call
// whose failure ended the run, or else of the one that failed last, or of the last call, of those that
// are modules.
func Find(events []event.Event, at string) (Target, error) {
	run, err := span.Of(events)
	if err != nil {
		return Target{}, err
	}
	calls := slices.DeleteFunc(slices.Clone(run.Spans), func(s span.Span) bool { return s.Kind != span.Call })
	if run.Encrypted {
		return Target{}, event.ErrEncrypted
	}
	if len(calls) == 0 {
		return Target{}, &NoCallError{Reason: "the run has no call"}
	}
	started, err := events[0].AsRunStarted()
	if err != nil {
		return Target{}, err
	}
	module := func(c span.Span) bool {
		return slices.ContainsFunc(started.ToolSchemas, func(ref event.ToolSchemaRef) bool { return ref.Name == c.Name && ref.Sandbox != nil })
	}
	modules := slices.DeleteFunc(slices.Clone(calls), func(c span.Span) bool { return !module(c) })
	switch {
	case len(modules) == 0:
		return Target{}, &NoCallError{Reason: "no tool that the run has called is a module, so there is nothing to execute"}
	case at == "":
		return Target{Call: latest(run, modules)}, nil
	}
	name, t := at, Target{}
	if cut := strings.LastIndexByte(at, '/'); cut >= 0 {
		if fuel, err := display.ParseCount(at[cut+1:], display.FuelUnits()); err == nil {
			name, t.fuel = at[:cut], &fuel
		}
	}
	seq, _ := strconv.ParseUint(name, 10, 64) // 0 for an id
	callID := ""
	if 0 < seq && seq <= uint64(len(events)) && events[seq-1].Kind == event.KindSideEffectRecorded {
		effect, _ := events[seq-1].AsSideEffectRecorded() // or it is an effect of no call
		callID, t.seq = effect.CallID, seq
	}
	found := false
	for _, s := range calls {
		begins, ends := s.First == seq, s.Last == seq && seq > 0
		within := callID != "" && s.CallID == callID && s.First < seq && (s.Last == 0 || seq < s.Last)
		if begins || ends || within || s.CallID == name {
			t.Call, t.head, found = s, begins, true
		}
	}
	switch {
	case !found:
		return t, &NoCallError{fmt.Sprintf("%q is neither an event of a call nor the id of one", name), modules}
	case !module(t.Call):
		return t, &NoCallError{fmt.Sprintf("tool %q is not a module, so there is nothing to execute", t.Call.Name), modules}
	}
	return t, nil
}

// latest returns the call whose failure ended the run, the call that failed last, or the last one.
func latest(run *span.Run, calls []span.Span) span.Span {
	if run.Cause != span.None && slices.Contains(calls, run.Spans[run.Cause]) {
		return run.Spans[run.Cause]
	}
	last := calls[len(calls)-1]
	for _, s := range calls {
		if s.State != span.OK && s.Last >= last.Last || last.State == span.OK && s.State != span.OK {
			last = s
		}
	}
	return last
}
