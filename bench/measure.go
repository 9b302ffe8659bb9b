package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/bench/internal/figures"
	"github.com/starling-host/starling/host/sandbox"
)

// guestResult is what was measured of one guest.
type guestResult struct {
	guest   string
	order   []string             // the contenders
	nanos   map[string][]float64 // of a call, by contender, one for each round
	scaling map[string][]float64 // calls per second, by contender, one for each number of goroutines
	counts  []int                // of goroutines
	allocs  float64              // of one of our pooled calls
	private private              // of one of our pooled instances after a call
}

// compare measures all contenders with one guest.
func compare(ctx context.Context, s settings, g guest) (guestResult, error) {
	res := guestResult{guest: g.name, nanos: map[string][]float64{}, scaling: map[string][]float64{}, counts: s.goroutines}
	contenders, err := load(ctx, g)
	if err != nil {
		return res, err
	}
	calls := make([]call, len(contenders))
	for i, c := range contenders {
		defer c.close()
		res.order = append(res.order, c.name)
		if calls[i], err = ready(c); err != nil {
			return res, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	for range s.rounds {
		for i, c := range contenders {
			nanos, err := figures.Timed(s.slice, calls[i])
			if err != nil {
				return res, fmt.Errorf("%s: %w", c.name, err)
			}
			res.nanos[c.name] = append(res.nanos[c.name], nanos)
		}
	}
	res.allocs = testing.AllocsPerRun(200, func() { calls[0]() })
	if res.private, err = privateMemory(ctx, g); err != nil {
		return res, err
	}
	return res, res.scale(contenders, s)
}

// load makes the contenders; ours comes first.
func load(ctx context.Context, g guest) ([]contender, error) {
	var all []contender
	for _, make := range []func(context.Context, guest) (contender, error){
		starling(ours, ""), starling(oursFresh, sandbox.ResetFresh), starlingWorker, raw, wazyRaw,
		extismPlugin(extismReused, false), extismPlugin(extismFresh, true),
		wasmtimeModule(timeReused, false, false), wasmtimeModule(timeFresh, true, false), wasmtimeModule(timeFuel, true, true),
	} {
		c, err := make(ctx, g)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// ready returns a warm call of a contender, after it has given the right answer
// twice.
func ready(c contender) (call, error) {
	one, err := c.caller()
	if err != nil {
		return nil, err
	}
	for range 3 {
		out, err := one()
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(bytes.ToUpper(out), []byte("ADA LOVELACE")) {
			return nil, fmt.Errorf("the output is %q", out)
		}
	}
	return one, nil
}

// scale measures how many calls a second several goroutines make.
func (res *guestResult) scale(contenders []contender, s settings) error {
	rates := map[string][][]float64{}
	for _, c := range contenders {
		rates[c.name] = make([][]float64, len(s.goroutines))
	}
	for range max(s.rounds/3, 1) {
		for _, c := range contenders {
			for i, n := range s.goroutines {
				rate, err := parallel(c, n, s.slice)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				rates[c.name][i] = append(rates[c.name][i], rate)
			}
		}
	}
	for name, all := range rates {
		for _, r := range all {
			res.scaling[name] = append(res.scaling[name], figures.Median(r))
		}
	}
	return nil
}

func parallel(c contender, goroutines int, slice time.Duration) (float64, error) {
	calls := make([]call, goroutines)
	for i := range calls {
		var err error
		if calls[i], err = c.caller(); err != nil {
			return 0, err
		}
		if _, err := calls[i](); err != nil {
			return 0, err
		}
	}
	runtime.GC()
	var group sync.WaitGroup
	rates, errs := make([]float64, goroutines), make([]error, goroutines)
	for i, one := range calls {
		group.Go(func() {
			var nanos float64
			nanos, errs[i] = figures.Timed(slice, one)
			rates[i] = 1e9 / nanos
		})
	}
	group.Wait()
	total := 0.0
	for i := range rates {
		if errs[i] != nil {
			return 0, errs[i]
		}
		total += rates[i]
	}
	return total, nil
}

// ratio is the median of the rounds' ratios of two contenders.
func (res guestResult) ratio(a, b string) float64 {
	return figures.Ratio(res.nanos[a], res.nanos[b])
}
