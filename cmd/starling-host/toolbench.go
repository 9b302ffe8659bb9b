package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/toolcase"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
)

type toolBenchFlags struct {
	callFlags
	tool string
	time time.Duration
}

func (a *app) toolBenchCommand() *cobra.Command {
	var f toolBenchFlags
	cmd := &cobra.Command{
		Use:   "bench TOOL [INPUT]",
		Short: "measure a tool: size, loading, fuel, memory and time of a call",
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

func (a *app) toolBench(ctx context.Context, ref, input string, f toolBenchFlags) error {
	trial, end, err := a.try(ctx, ref, f.callFlags)
	if err != nil {
		return err
	}
	defer end()
	c := &toolcase.Case{Input: []byte("{}")}
	if input != "" {
		if c.Input, err = a.readInput(ctx, input, sandbox.DefaultLimits().InputBytes); err != nil {
			return err
		}
	} else if cases, err := toolcase.Load(ref); err != nil {
		return err
	} else if i := slices.IndexFunc(cases, func(c *toolcase.Case) bool { return c.Error == "" }); i >= 0 {
		c = cases[i]
	}
	trial.Options.Name = cmp.Or(f.tool, c.Tool)
	t, err := trial.Module.Choose(trial.Options)
	if err != nil {
		return err
	}
	doc, err := trial.Measure(ctx, t, c, f.time)
	if failed, ok := errors.AsType[*starling.CallError](err); ok {
		return outcome(t, failed, runFlags{callFlags: f.callFlags})
	} else if err != nil {
		return err
	}
	return a.emit(doc, func() {
		a.stdout.Printf("tool     %s, %s\n", doc.Tool, display.Size(uint64(doc.Size)))
		a.stdout.Printf("load     first %s, second %s\n", display.Duration(doc.FirstLoad), display.Duration(doc.SecondLoad))
		a.stdout.Printf("start    fuel %s\n", display.Digits(doc.StartFuel))
		a.stdout.Printf("call     fuel %s, peak memory %s, %s\n", display.Digits(doc.Fuel), display.Size(doc.Memory), display.Plural(doc.Effects, "effect"))
		a.stdout.Printf("time     best %s, median %s, %.0f calls/s over %s\n", display.Duration(doc.Best), display.Duration(doc.Median), doc.PerSecond, display.Plural(doc.Calls, "call"))
	})
}
