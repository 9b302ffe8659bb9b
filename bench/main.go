// Bench compares the sandbox with other ways to run the same guests: raw wazero,
// its fork wazy, Extism and Wasmtime, reused and fresh. All take turns in short
// rounds, so that whatever else the machine does hits them alike, and what is
// reported are medians of the rounds' ratios.
//
//	go run . [-quick] [-guests tiny,gojson] [-out results]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	hostguest "github.com/starling-host/starling/host/guest"
)

// settings say how long to measure.
type settings struct {
	rounds     int
	slice      time.Duration // of one contender in one round
	goroutines []int         // of the scaling part
	starts     int           // of the process
}

func main() {
	hostguest.WorkerMain()
	quick := flag.Bool("quick", false, "a few short rounds: shows that it works, not how fast")
	names := flag.String("guests", "", "comma-separated guests (default all)")
	out := flag.String("out", "", "folder for results.md and the plot (default: print only)")
	flag.Parse()
	s := settings{rounds: 15, slice: 60 * time.Millisecond, goroutines: []int{1, 2, 4}, starts: 5}
	if *quick {
		s = settings{rounds: 3, slice: 5 * time.Millisecond, goroutines: []int{1, 2}, starts: 1}
	}
	if err := run(context.Background(), s, *names, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, names, out string) error {
	guests, err := loadGuests()
	if err != nil {
		return err
	}
	if names != "" {
		wanted := strings.Split(names, ",")
		guests = slices.DeleteFunc(guests, func(g guest) bool { return !slices.Contains(wanted, g.name) })
	}
	var r report
	for _, g := range guests {
		fmt.Fprintf(os.Stderr, "%s ...\n", g.name)
		results, err := compare(ctx, s, g)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		r.guests = append(r.guests, results)
		if g.name == "tiny" {
			if r.runtime, err = measureRuntime(ctx, s, g); err != nil {
				return fmt.Errorf("agents: %w", err)
			}
		}
	}
	if r.starts, err = processStarts(ctx, s.starts); err != nil {
		return err
	}
	text := r.text()
	fmt.Print(text)
	if out == "" {
		return nil
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "calls.svg"), r.plot(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "results.md"), []byte(text), 0o644)
}
