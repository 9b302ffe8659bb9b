package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/toolcase"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
)

const toolBenchHelp = `Measure a tool: its size, the time to load it, and the fuel, memory and time of a call.

The first load compiles the module, as on a machine that has never seen it. The second one
takes the compiled code from a cache, as each later process does. Calls are made one after
another and recorded, as "run" does. Fuel and memory are the same on every machine.

INPUT is that of "run", and then effects are real. Without it the input is that of the first
case that succeeds, and its recorded effects answer the calls.`

type toolBenchFlags struct {
	callFlags
	tool string
	time time.Duration
}

func (a *app) toolBenchCommand() *cobra.Command {
	var f toolBenchFlags
	cmd := &cobra.Command{
		Use:     "bench TOOL [INPUT]",
		Short:   "measure a tool: size, loading, fuel, memory and time of a call",
		Long:    toolBenchHelp,
		Example: "  starling-host tool bench dice.wasm '{\"rolls\":5}'\n  starling-host tool bench dice.wasm -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.toolBench(cmd.Context(), append(args, "")[0], append(args, "")[1], f)
		},
	}
	cmd.Flags().StringVar(&f.tool, "tool", "", "`NAME` of the tool, if the module has several")
	cmd.Flags().DurationVar(&f.time, "time", time.Second, "make calls for this `DURATION`")
	f.addConditions(cmd)
	a.outputFlag(cmd)
	return cmd
}

// benchDocument is the output of "tool bench -o json". Times are in nanoseconds.
type benchDocument struct {
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

func (a *app) toolBench(ctx context.Context, ref, input string, f toolBenchFlags) error {
	trial, err := a.try(ctx, ref, f.callFlags)
	if err != nil {
		return err
	}
	defer trial.end()
	module, options := trial.module, trial.options
	c := &toolcase.Case{Input: []byte("{}")}
	if input != "" {
		if c.Input, err = a.readInput(input, sandbox.DefaultLimits().InputBytes); err != nil {
			return err
		}
	} else if cases, err := toolcase.Load(caseFolder(ref)); err != nil {
		return err
	} else if i := slices.IndexFunc(cases, func(c *toolcase.Case) bool { return c.Error == "" }); i >= 0 {
		c = cases[i]
	}
	options.Name = cmp.Or(f.tool, c.Tool)
	t, err := module.Choose(options)
	if err != nil {
		return err
	}
	doc := benchDocument{Tool: t.Name(), Digest: module.Digest().String(), Size: len(module.Source.Wasm)}
	if err := doc.load(ctx, module.Source.Wasm, options.Limits); err != nil {
		return err
	}
	parsed, err := t.Input(c.Input)
	if err != nil {
		return err
	}
	var times []time.Duration
	var began time.Time
	for doc.Calls == 0 || time.Since(began) < f.time {
		called, t := ctx, t
		if input == "" && len(c.Effects) > 0 {
			var others []*starling.Tool
			if called, others = c.Answering(ctx); len(others) > 0 {
				t = t.Calling(others...)
			}
		}
		start := time.Now()
		run, err := t.CallAs(called, starling.NewRunID(), parsed)
		if failed, ok := errors.AsType[*starling.CallError](err); ok {
			return outcome(t, failed, runFlags{callFlags: f.callFlags})
		} else if err != nil {
			return err
		}
		if began.IsZero() { // the first call makes the database, and stores the module
			began = time.Now()
			continue
		}
		times = append(times, time.Since(start))
		doc.Calls++
		doc.Fuel, doc.Memory, doc.Effects = run.Meter.Fuel, run.Meter.PeakMemoryBytes, run.Meter.Effects
		doc.PerSecond = float64(doc.Calls) / time.Since(began).Seconds()
	}
	slices.Sort(times)
	doc.Best, doc.Median = times[0], times[len(times)/2]
	return a.emit(doc, func() {
		a.stdout.Printf("tool     %s, %s\n", doc.Tool, display.Size(uint64(doc.Size)))
		a.stdout.Printf("load     first %s, second %s\n", display.Duration(doc.FirstLoad), display.Duration(doc.SecondLoad))
		a.stdout.Printf("start    fuel %s\n", display.Digits(doc.StartFuel))
		a.stdout.Printf("call     fuel %s, peak memory %s, %s\n", display.Digits(doc.Fuel), display.Size(doc.Memory), display.Plural(doc.Effects, "effect"))
		a.stdout.Printf("time     best %s, median %s, %.0f calls/s over %s\n", display.Duration(doc.Best), display.Duration(doc.Median), doc.PerSecond, display.Plural(doc.Calls, "call"))
	})
}

// load loads a module with an empty cache, and again with what that has left there.
func (d *benchDocument) load(ctx context.Context, wasm []byte, limits sandbox.Limits) error {
	cache, err := os.MkdirTemp("", "starling-host-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	if limits, err = guest.Limits(wasm, limits); err != nil {
		return err
	}
	for _, took := range []*time.Duration{&d.FirstLoad, &d.SecondLoad} {
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
			d.StartFuel = start.Fuel
		}
		engine.Close(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
	}
	return nil
}
