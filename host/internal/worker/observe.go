package worker

import (
	"context"
	"encoding/binary"
	"iter"
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
	reportCount               // the offset of an instruction, how often it was executed
	reportCounted             // 0, 0: these were all
	reportProgress            // 0, the fuel that Progress receives
)

const (
	batch = 32 << 10 // after so many bytes a process sends its reports

	// maxCounts is how many instructions of a call are counted, and so what the host keeps of
	// them: twice as many as a Go program of 10 MB has in the functions that it calls.
	maxCounts = 1 << 21

	maxScript = 1 << 17 // functions of a script on its stack, and
	maxText   = 1 << 10 // bytes of the name of one or of its file
)

// Observed implements [sandbox.Observable], by an engine with processes of its own that compute in the
// CPU slots of e.
func (e *Engine) Observed(ctx context.Context, o sandbox.Observers) (sandbox.Loader, func(), error) {
	c := e.config
	c.Machine, c.CacheDir, c.Observers = true, "", o
	observed, err := New(ctx, c)
	if err != nil {
		return nil, nil, err
	}
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
	if s.Profile {
		o.Profile = func(string) sandbox.Profiler { r.fuel = 0; return r }
	}
	if s.Counts {
		o.Counts = func(_ string, counts iter.Seq2[uint32, uint64]) {
			sent := 0
			for at, n := range counts {
				if sent++; sent > maxCounts {
					break
				}
				r.report(reportCount, uint64(at), n)
			}
			r.report(reportCounted, 0, 0)
			r.send()
		}
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

func (r *reporter) End(fuel uint64) {
	r.spent(reportEnd, 0, fuel)
	r.send()
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
	counts   []counted
}

type counted struct {
	at uint32
	n  uint64
}

// observed passes reports on to the observers, which bound what they keep. The process is hostile, but
// functions nest no deeper than in an honest one: each takes a slot of the limit, but for the last ones.
func (h *call) observed(body []byte) error {
	o, s, m := &h.module.engine.config.Observers, &h.seen, &h.module.prepared
	mayNest := func() bool { s.depth++; return s.depth <= uint64(m.Limits.Depth)+8 }
	for f := (fields{b: body}); len(f.b) > 0; {
		kind, a, b := f.byte(), f.uvarint(), f.uvarint()
		line, function, file := uint64(0), "", ""
		if kind == reportLine {
			line, function, file = f.uvarint(), f.text(), f.text()
		}
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
		case kind == reportLine && a <= maxScript && line <= math.MaxInt32 && max(len(function), len(file)) <= maxText:
			s.profiler.Line(int(a), function, file, int(line), s.fuel)
		case kind == reportEnd:
			s.profiler.End(s.fuel)
		case kind == reportCount && o.Counts != nil && a <= math.MaxUint32 && len(s.counts) < maxCounts:
			s.counts = append(s.counts, counted{uint32(a), b})
		case kind == reportCounted && o.Counts != nil:
			o.Counts(h.Tool, func(yield func(uint32, uint64) bool) {
				for _, c := range s.counts {
					if !yield(c.at, c.n) {
						return
					}
				}
			})
			s.counts = nil
		case kind == reportProgress && o.Progress != nil:
			o.Progress(b)
		default:
			return errProtocol
		}
	}
	return nil
}
