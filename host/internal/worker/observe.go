package worker

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"slices"

	"github.com/starling-host/starling/host/sandbox"
)

// What the observers of a call receive is reported by its process, in batches: each report is
// its kind in one byte and two numbers, as in encoding/binary. The second one of those with
// fuel is the fuel since the last such report.
const (
	reportEnter    = iota + 1 // the index of a function, fuel
	reportImport              // the place of its name in Module.Imports, fuel
	reportLeave               // 0, fuel
	reportLine                // how many functions of a script run, fuel; the line, the innermost function, its file
	reportEnd                 // 0, fuel
	reportModule              // the number of functions, 0; language, problem
	reportFunction            // the index of a function, 0; name
	reportSource              // a line, how often it was executed; fuel, function, name, file
	reportProgress            // 0, the fuel that Progress receives
)

const (
	batch = 32 << 10 // after so many bytes a process sends its reports

	maxScript = 1 << 17 // functions of a script on its stack, and
	maxText   = 1 << 10 // bytes of each text
)

// Observed implements [sandbox.Observable], by an engine with processes of its own that compute in the
// CPU slots of e. These processes read the modules themselves: of what a module says of its source, nothing
// is read in this one, which the process of a hostile module could end.
func (e *Engine) Observed(ctx context.Context, o sandbox.Observers) (sandbox.Loader, func(), error) {
	c := e.config
	c.Machine, c.CacheDir, c.Observers = true, "", o
	observed, err := New(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	observed.observed = true
	return observed, func() { _ = observed.Close(context.WithoutCancel(ctx)) }, nil
}

// reporter is the observers of the calls in a worker.
type reporter struct {
	worker *worker
	fuel   uint64 // as of the last report
	frame  []byte
}

// observers returns those that report to the host.
func (s settings) observers(w *worker) (o sandbox.Observers) {
	r := &reporter{worker: w}
	w.report = r
	if s.Profile {
		o.Profile = func(string) sandbox.Profiler { r.fuel = 0; return r }
	}
	if s.Source {
		o.Source = func(string) sandbox.Source { return r }
	}
	if s.Progress {
		o.Progress = func(fuel uint64) {
			r.report(reportProgress, 0, fuel)
			r.send() // every few milliseconds
		}
	}
	return o
}

func (r *reporter) Enter(function uint32, fuel uint64) { r.spent(reportEnter, uint64(function), fuel) }

func (r *reporter) EnterImport(name string, fuel uint64) {
	i, _ := slices.BinarySearch(r.worker.module.Imports(), name)
	r.spent(reportImport, uint64(i), fuel)
}

func (r *reporter) Leave(fuel uint64) { r.spent(reportLeave, 0, fuel) }

func (r *reporter) Line(depth int, function, file string, line int, fuel uint64) {
	where := appendBytes(appendBytes(binary.AppendUvarint(nil, uint64(line)), function), file)
	r.report(reportLine, uint64(depth), fuel-r.fuel, where...)
	r.fuel = fuel
}

func (r *reporter) Module(functions int, language, problem string) {
	r.report(reportModule, uint64(functions), 0, appendBytes(appendBytes(nil, language), problem[:min(len(problem), maxText)])...)
}

func (r *reporter) Function(index uint32, name string) {
	r.report(reportFunction, uint64(index), 0, appendBytes(nil, name)...)
}

func (r *reporter) SourceLine(l sandbox.SourceLine) {
	where := binary.AppendUvarint(binary.AppendUvarint(nil, l.Fuel), uint64(l.Function))
	r.report(reportSource, uint64(l.Line), l.Executed, appendBytes(appendBytes(where, l.Name), l.File)...)
}

func (r *reporter) End(fuel uint64) {
	r.spent(reportEnd, 0, fuel)
}

func (r *reporter) spent(kind byte, a, fuel uint64) {
	r.report(kind, a, fuel-r.fuel)
	r.fuel = fuel
}

func (r *reporter) report(kind byte, a, b uint64, more ...byte) {
	if len(r.frame) == 0 {
		r.frame = begin(r.frame, kindObserved)
	}
	r.frame = append(binary.AppendUvarint(binary.AppendUvarint(append(r.frame, kind), a), b), more...)
	if len(r.frame) >= batch {
		r.send()
	}
}

// send sends the reports. A worker that has lost its host has nothing left to do.
func (r *reporter) send() {
	if len(r.frame) > 0 && send(r.worker.out, r.frame) != nil {
		os.Exit(0)
	}
	r.frame = r.frame[:0]
}

// seen is the observers' part of a call, on the side of the host.
type seen struct {
	profiler sandbox.Profiler // nil until there is a report for it
	fuel     uint64           // as of the last report
	depth    uint64           // of entered functions
	source   sandbox.Source   // nil until there is a report for it
}

// observed passes reports on to the observers, which bound what they keep. The process is hostile, but
// functions nest no deeper than in an honest one: each takes a slot of the limit, but for the last ones.
func (h *call) observed(body []byte) error {
	o, s, m := &h.module.engine.config.Observers, &h.seen, &h.module.prepared
	mayNest := func() bool { s.depth++; return s.depth <= uint64(m.Limits.Depth)+8 }
	for f := (fields{b: body}); len(f.b) > 0; {
		kind, a, b := f.byte(), f.uvarint(), f.uvarint()
		var x, y uint64 // what else there is of some reports
		var text, file string
		switch kind {
		case reportLine:
			x, text, file = f.uvarint(), f.text(), f.text()
		case reportModule:
			text, file = f.text(), f.text()
		case reportFunction:
			text = f.text()
		case reportSource:
			x, y, text, file = f.uvarint(), f.uvarint(), f.text(), f.text()
		}
		f.bad = f.bad || max(len(text), len(file)) > maxText
		if kind <= reportEnd {
			if s.profiler == nil && o.Profile != nil {
				s.profiler = o.Profile(h.Tool)
			}
			s.fuel += b
			f.bad = f.bad || s.profiler == nil || s.fuel < b
		}
		if f.bad {
			return errProtocol
		}
		switch {
		case kind == reportEnter && a <= math.MaxUint32 && mayNest():
			s.profiler.Enter(uint32(a), s.fuel)
		case kind == reportImport && a < uint64(len(m.Imports)) && mayNest():
			s.profiler.EnterImport(m.Imports[a], s.fuel)
		case kind == reportLeave:
			s.depth -= min(s.depth, 1)
			s.profiler.Leave(s.fuel)
		case kind == reportLine && a <= maxScript && x <= math.MaxInt32:
			s.profiler.Line(int(a), text, file, int(x), s.fuel)
		case kind == reportEnd:
			s.profiler.End(s.fuel)
		case kind == reportModule && s.source == nil && o.Source != nil && b == 0 && a <= math.MaxInt32:
			s.source = o.Source(h.Tool)
			s.source.Module(int(a), text, file)
		case kind == reportFunction && s.source != nil && a <= math.MaxUint32 && b == 0:
			s.source.Function(uint32(a), text)
		case kind == reportSource && s.source != nil && a <= math.MaxInt32 && y <= math.MaxUint32:
			s.source.SourceLine(sandbox.SourceLine{Function: uint32(y), Name: text, File: file, Line: int(a), Executed: b, Fuel: x})
		case kind == reportProgress && o.Progress != nil:
			o.Progress(b)
		default:
			return errProtocol
		}
	}
	return nil
}
