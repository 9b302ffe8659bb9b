package sandbox

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
	// Module reports how many functions the module has, the language of the scripts that it interprets,
	// such as "Python", or "", and why names and lines are missing, or "".
	Module(functions int, language, problem string)
	// Function reports the name of a function, or "". That is reported once for each place where a module is loaded.
	Function(index uint32, name string)
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

// watch holds the observers of one call.
type watch struct {
	profiler Profiler // or nil
	progress func(fuel uint64)
	told     uint64 // fuel already reported to progress
	script   bool   // the profiler receives lines of a script instead of functions of the module
}

// watched returns the observers of a call of a tool, or nil.
func (e *Engine) watched(tool string) *watch {
	o := e.observers
	if o.Profile == nil && o.Progress == nil {
		return nil
	}
	w := &watch{progress: o.Progress}
	if o.Profile != nil {
		w.profiler = o.Profile(tool)
	}
	return w
}

// profile returns the profiler of the call, or nil.
func (w *watch) profile() Profiler {
	if w == nil {
		return nil
	}
	return w.profiler
}

// entered is the import by which a profiled module reports.
func entered(s *session, a args) {
	if profiler := s.watch.profile(); profiler != nil && !s.watch.script {
		profiler.Enter(a.u32(0), s.instance.fuel.Get())
	}
}

// left is the other one.
func left(s *session, _ args) {
	if profiler := s.watch.profile(); profiler != nil && !s.watch.script {
		profiler.Leave(s.instance.fuel.Get())
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
	if profiler := w.profile(); profiler != nil {
		profiler.End(s.instance.fuel.Get())
	}
}
