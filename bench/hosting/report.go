package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/starling-host/starling/bench/internal/figures"
)

// report is everything that was measured.
type report struct {
	rates []rate
	goals []goal
}

// rate is a figure that depends on the machine.
type rate struct {
	load, way string
	perSecond float64
}

// goal is a figure that is held against a bound.
type goal struct {
	load, what string
	measured   float64
	bound      float64 // zero is none
	most       bool    // the bound is an upper one
	unit       string
}

// note adds what contenders did under a load, in the order of their names.
func (r *report) note(load string, t measured, names ...string) {
	for _, name := range names {
		r.rates = append(r.rates, rate{load, name, figures.Median(t[name])})
	}
}

// atLeast adds a ratio, or another figure, that ought not to be less.
func (r *report) atLeast(bound float64, load, what string, measured float64) {
	r.goals = append(r.goals, goal{load: load, what: what, measured: measured, bound: bound})
}

// atMost adds a ratio, or a figure of that unit, that ought not to be more.
func (r *report) atMost(bound float64, unit, load, what string, measured float64) {
	r.goals = append(r.goals, goal{load: load, what: what, measured: measured, bound: bound, most: true, unit: unit})
}

// text is the report as Markdown.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Medians on %s/%s, %d processors, %s; a PostgreSQL server on the same machine.\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	fmt.Fprintf(&b, "\n| load | figure | measured | goal | |\n|---|---|--:|--:|---|\n")
	for _, g := range r.goals {
		sign, met := ">=", g.measured >= g.bound
		if g.most {
			sign, met = "<=", g.measured <= g.bound
		}
		bound, verdict := fmt.Sprintf("%s %s%s", sign, short(g.bound), g.unit), figures.Verdict(met)
		if g.bound == 0 {
			bound, verdict = "none", ""
		}
		fmt.Fprintf(&b, "| %s | %s | %s%s | %s | %s |\n", g.load, g.what, short(g.measured), g.unit, bound, verdict)
	}
	fmt.Fprintf(&b, "\n| load | way | a second |\n|---|---|--:|\n")
	for _, r := range r.rates {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.load, r.way, short(r.perSecond))
	}
	return b.String()
}

// short says a number in three digits, or whole.
func short(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
