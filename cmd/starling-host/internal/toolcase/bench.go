package toolcase

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
)

// Benchmark measures a tool. Times are in nanoseconds.
type Benchmark struct {
	Tool       string        `json:"tool"`
	Digest     string        `json:"digest"`
	Size       int           `json:"size"`
	FirstLoad  time.Duration `json:"first_load_ns"`
	SecondLoad time.Duration `json:"second_load_ns"`
	StartFuel  uint64        `json:"start_fuel"`
	Fuel       uint64        `json:"fuel"` // of the last call
	Memory     uint64        `json:"peak_memory_bytes"`
	Effects    int           `json:"effects"`
	Calls      int           `json:"calls"`
	Best       time.Duration `json:"best_ns"`
	Median     time.Duration `json:"median_ns"`
	PerSecond  float64       `json:"calls_per_second"`
}

// Measure loads the module of a tool twice, and calls the tool with the input of a case for some time. The recorded
// effects of the case answer the calls; a case without effects makes real ones. The error is a
// [*starling.CallError] if a call fails.
func (t Trial) Measure(ctx context.Context, tool *starling.Tool, c *Case, during time.Duration) (Benchmark, error) {
	b := Benchmark{Tool: tool.Name(), Digest: t.Module.Digest().String(), Size: len(t.Module.Source.Wasm)}
	if err := b.load(ctx, t.Module.Source.Wasm, t.Options.Limits); err != nil {
		return b, err
	}
	input, err := tool.Input(c.Input)
	if err != nil {
		return b, err
	}
	var times []time.Duration
	var began time.Time
	for b.Calls == 0 || time.Since(began) < during {
		called, one := ctx, tool
		if len(c.Effects) > 0 {
			a := &answers{left: c.Effects}
			called = a.answering(ctx)
			if others := a.others(); len(others) > 0 {
				one = one.Calling(others...)
			}
		}
		start := time.Now()
		run, err := one.CallAs(called, starling.NewRunID(), input)
		if err != nil {
			return b, err
		}
		if began.IsZero() { // the first call makes the database, and stores the module
			began = time.Now()
			continue
		}
		times = append(times, time.Since(start))
		b.Calls++
		b.Fuel, b.Memory, b.Effects = run.Meter.Fuel, run.Meter.PeakMemoryBytes, run.Meter.Effects
		b.PerSecond = float64(b.Calls) / time.Since(began).Seconds()
	}
	slices.Sort(times)
	b.Best, b.Median = times[0], times[len(times)/2]
	return b, nil
}

// load loads a module with an empty cache, and again with what that has left there.
func (b *Benchmark) load(ctx context.Context, wasm []byte, limits sandbox.Limits) error {
	cache, err := os.MkdirTemp("", "starling-host-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	if limits, err = guest.Limits(wasm, limits); err != nil {
		return err
	}
	for _, took := range []*time.Duration{&b.FirstLoad, &b.SecondLoad} {
		engine, err := starling.NewSandbox(ctx, starling.EngineOptions{Adjust: func(c *sandbox.Config) { c.CacheDir = cache }})
		if err != nil {
			return err
		}
		began := time.Now()
		module, err := engine.Load(ctx, wasm, limits)
		*took = time.Since(began)
		if err == nil {
			var start sandbox.Start
			start, err = module.Start()
			b.StartFuel = start.Fuel
		}
		engine.Close(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
	}
	return nil
}
