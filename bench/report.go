package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/starling-host/starling/bench/internal/figures"
)

// report is everything that was measured.
type report struct {
	guests  []guestResult
	starts  starts
	runtime runtimeResult
}

// goal is a bound on the ratio of our call to a rival's.
type goal struct {
	rival, guest string
	most         float64
}

// goals are the ratios that the sandbox is built for.
var goals = []goal{
	{rawReused, "cjson", 1.3}, {rawReused, "rustjson", 1.5}, {rawReused, "gojson", 1.45},
	{extismReused, "tiny", 0.1}, {extismReused, "gojson", 0.9},
	{timeFuel, "tiny", 0.06}, {timeFuel, "gojson", 0.15},
}

// The other goals.
const (
	mostAllocs   = 2
	leastScaling = 0.9 // of raw wazero's own
	mostSecond   = 250 * time.Millisecond
	mostPrivate  = 40 << 10  // bytes
	mostOfGo     = 300 << 10 // for a tool in Go
)

// text is the report as Markdown.
func (r report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Medians on %s/%s, %d processors, %s. Every call gets %d bytes of JSON.\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), len(document))
	r.writeCalls(&b)
	r.writeGoals(&b)
	r.runtime.write(&b)
	return b.String()
}

func (r report) writeCalls(b *strings.Builder) {
	if len(r.guests) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| microseconds a call |")
	for _, g := range r.guests {
		fmt.Fprintf(b, " %s |", g.guest)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("--:|", len(r.guests)))
	for _, name := range r.guests[0].order {
		fmt.Fprintf(b, "| %s |", name)
		for _, g := range r.guests {
			fmt.Fprintf(b, " %.3g |", figures.Median(g.nanos[name])/1000)
		}
		fmt.Fprintln(b)
	}
}

func (r report) writeGoals(b *strings.Builder) {
	fmt.Fprintf(b, "\n| starling pooled, pristine and metered | guest | measured | goal | |\n|---|---|--:|--:|---|\n")
	row := func(what, guest, measured, goal string, met bool) {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", what, guest, measured, goal, figures.Verdict(met))
	}
	for _, goal := range goals {
		if g, ok := r.guest(goal.guest); ok {
			ratio := g.ratio(ours, goal.rival)
			row("time / "+goal.rival, g.guest, fmt.Sprintf("%.3f", ratio), fmt.Sprintf("<= %g", goal.most), ratio <= goal.most)
		}
	}
	for _, g := range r.guests {
		row("allocations a call", g.guest, fmt.Sprintf("%g", g.allocs), fmt.Sprintf("<= %d", mostAllocs), g.allocs <= mostAllocs)
	}
	for _, g := range r.guests {
		if g.private.linear == 0 {
			continue
		}
		most := mostPrivate
		if strings.HasPrefix(g.guest, "go") {
			most = mostOfGo
		}
		sum := g.private.linear + g.private.heap
		measured := fmt.Sprintf("%.0f KiB (%.0f + %.0f)", sum/1024, g.private.linear/1024, g.private.heap/1024)
		row("private memory of a pooled instance (linear + Go heap)", g.guest, measured, fmt.Sprintf("<= %d KiB", most>>10), sum <= float64(most))
	}
	for _, g := range r.guests {
		own, theirs := g.gain(ours), g.gain(rawReused)
		what := fmt.Sprintf("gain of %d goroutines / wazero's own", g.counts[len(g.counts)-1])
		row(what, g.guest, fmt.Sprintf("%.2f (%.2f / %.2f)", own/theirs, own, theirs), fmt.Sprintf(">= %g", leastScaling), own/theirs >= leastScaling)
	}
	if r.starts.size > 0 {
		what := fmt.Sprintf("second start of a process, %.1f MB tool (first %s)", float64(r.starts.size)/1e6, r.starts.first.Round(time.Millisecond))
		row(what, "dice", r.starts.second.Round(time.Millisecond).String(), "<= "+mostSecond.String(), r.starts.second <= mostSecond)
	}
}

func (r report) guest(name string) (guestResult, bool) {
	for _, g := range r.guests {
		if g.guest == name {
			return g, true
		}
	}
	return guestResult{}, false
}

// gain is how many times as many calls the most goroutines make as one.
func (res guestResult) gain(name string) float64 {
	rates := res.scaling[name]
	return rates[len(rates)-1] / rates[0]
}
