package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/starling-host/starling/bench/internal/figures"
)

const method = `A load is everything from the bytes to a module that can be called: the component is joined to one core
module, which is checked, rewritten and compiled. The second load has another engine with the same
cache folder. Beside it, wazero's compiler alone compiles the same joined module, not rewritten, with
as many workers. A call gets %d bytes of text; in the sandbox it is metered and its instance pristine.
On Node, jco's code makes an instance for each call, of core modules that V8 has compiled once, and the
text is not JSON. Extism's Go SDK makes an instance of a compiled plug-in for each call.
`

func report(subjects []*subject, rounds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Medians of rounds (%d here) on %s/%s, %d processors, %s. `make bench-components` writes this page.\n\n", rounds, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	fmt.Fprintf(&b, method, len(text))
	fmt.Fprint(&b, "\n| load, milliseconds | MB | joined, MB | join | first | second | wazero's compiler alone | first / wazero |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	ms := func(nanos []float64) float64 { return figures.Median(nanos) / 1e6 }
	for _, s := range subjects {
		fmt.Fprintf(&b, "| %s | %.3g | %.3g | %.3g | %.3g | %.3g | %.3g | %.2f |\n", s.name, float64(len(s.wasm))/1e6, float64(s.joined)/1e6,
			ms(s.join), ms(s.first), ms(s.second), ms(s.wazero), figures.Ratio(s.first, s.wazero))
	}
	fmt.Fprint(&b, "\n| call, microseconds | sandbox | elsewhere | | sandbox / elsewhere |\n|---|--:|--:|---|--:|\n")
	for _, s := range subjects {
		if s.rivals != nil {
			fmt.Fprintf(&b, "| %s: %s | %.3g | %.3g | %s | %.3f |\n", s.name, s.tool, ms(s.calls)*1000, ms(s.rivals)*1000, s.rival, figures.Ratio(s.calls, s.rivals))
		} else {
			fmt.Fprintf(&b, "| %s: %s | %.3g | | | |\n", s.name, s.tool, ms(s.calls)*1000)
		}
	}
	fmt.Fprint(&b, "\n| goal | | measured | goal | |\n|---|---|--:|--:|---|\n")
	for _, s := range subjects {
		if s.rivals != nil && s.parameter == "text" {
			r := figures.Ratio(s.calls, s.rivals)
			fmt.Fprintf(&b, "| call / Node | %s | %.3f | <= %g | %s |\n", s.name, r, mostOfNode, figures.Verdict(r <= mostOfNode))
		}
		if s.name == spiderName {
			r, second := figures.Ratio(s.first, s.wazero), time.Duration(figures.Median(s.second))
			fmt.Fprintf(&b, "| first load / wazero's compiler | %s | %.2f | <= %g | %s |\n", s.name, r, mostFirst, figures.Verdict(r <= mostFirst))
			fmt.Fprintf(&b, "| second load | %s | %v | <= %v | %s |\n", s.name, second.Round(time.Millisecond), mostSecond, figures.Verdict(second <= mostSecond))
		}
	}
	return b.String()
}
