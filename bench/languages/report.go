package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/starling-host/starling/bench/internal/figures"
	"github.com/starling-host/starling/internal/display"
)

const begin, end = "<!-- written by make bench-languages -->\n", "<!-- end -->\n"

// replace replaces the tables of a page.
func replace(page, tables string) (string, error) {
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("the page lacks the lines %q and %q", begin, end)
	}
	return before + begin + tables + end + after, nil
}

func report(subjects []*subject, s settings, input int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s on %s/%s, %d processors, load %.4s, %s: medians of %d rounds of calls, and of loads (%d).\nThe input of `transform` has %d bytes.\n",
		time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), must(os.ReadFile("/proc/loadavg")), runtime.Version(), s.rounds, s.loads, input)
	fmt.Fprint(&b, "\n| loading `transform` | module | first load | second load | fuel of start-up | Extism's kit: module | first load | second load |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, l := range subjects {
		if l.wasm[transform] != nil {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", l.title, amount(uint64(len(l.wasm[transform])), display.Size), duration(l.nanos[first]), duration(l.nanos[second]), amount(l.fuel[first], display.Digits),
				amount(uint64(len(l.wasm[plugin])), display.Size), duration(l.nanos[plugin+first]), duration(l.nanos[plugin+second]))
		}
	}
	fmt.Fprint(&b, "\n| a call | `hello`: fuel | time | / Go | `transform`: fuel | time | / Go | Extism, fresh | ours / it | Extism, reused | ours / it |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, l := range subjects {
		fmt.Fprintf(&b, "| %s |", l.title)
		for _, tool := range []string{hello, transform} {
			fmt.Fprintf(&b, " %s | %s | %s |", amount(l.fuel[tool], display.Digits), duration(l.nanos[tool]), ratio(l.nanos[tool], subjects[0].nanos[tool]))
		}
		for _, rival := range []string{pluginFresh, pluginReused} {
			fmt.Fprintf(&b, " %s | %s |", duration(l.nanos[rival]), ratio(l.nanos[transform], l.nanos[rival]))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

func ratio(a, b []float64) string {
	if len(a) == 0 || len(b) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g", figures.Ratio(a, b))
}

func duration(nanos []float64) string {
	if len(nanos) == 0 {
		return "-"
	}
	return display.Duration(time.Duration(figures.Median(nanos)))
}

// amount writes n, unless there is none.
func amount(n uint64, write func(uint64) string) string {
	if n == 0 {
		return "-"
	}
	return write(n)
}
