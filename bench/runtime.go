package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-host/starling/bench/internal/figures"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	hostguest "github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/tool"
)

// turnsOfARun is how often the model of a run calls its tool.
const turnsOfARun = 8

// runtimeResult is what an agent costs around its tools, as medians.
type runtimeResult struct {
	raw    float64 // nanoseconds of a call of the sandbox alone
	memory float64 // of a turn with one such call, recorded in memory
	sqlite float64 // the same in SQLite, which syncs before each request and at the end
}

// measureRuntime has a scripted model call a guest again and again, next to the
// same calls of the sandbox alone.
func measureRuntime(ctx context.Context, s settings, g guest) (runtimeResult, error) {
	dir, err := os.MkdirTemp("", "starling-bench-")
	if err != nil {
		return runtimeResult{}, err
	}
	defer os.RemoveAll(dir)
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return runtimeResult{}, err
	}
	defer engine.Close(ctx)
	module, err := engine.Load(ctx, g.wasm, sandbox.Limits{})
	if err != nil {
		return runtimeResult{}, err
	}
	raw := func() ([]byte, error) {
		r, err := module.Call(ctx, sandbox.Call{Tool: "guest", Input: document}, figures.NoWorld{})
		return r.Output, err
	}
	loaded, err := hostguest.Load(ctx, hostguest.Inline(engine), g.wasm, hostguest.Options{})
	if err != nil {
		return runtimeResult{}, err
	}
	disk, err := store.OpenFile(ctx, filepath.Join(dir, "bench.db"), store.FileOptions{})
	if err != nil {
		return runtimeResult{}, err
	}
	defer disk.Close()
	memory := store.Memory()
	for _, log := range []eventlog.ModuleStore{memory, disk} {
		if _, err := log.PutModule(ctx, g.wasm); err != nil {
			return runtimeResult{}, err
		}
	}
	calls := []call{raw, runOf(ctx, memory, loaded.Tools()[0]), runOf(ctx, disk, loaded.Tools()[0])}
	nanos := make([][]float64, len(calls))
	for range s.rounds {
		for i, one := range calls {
			took, err := figures.Timed(s.slice, one)
			if err != nil {
				return runtimeResult{}, err
			}
			nanos[i] = append(nanos[i], took)
		}
	}
	return runtimeResult{figures.Median(nanos[0]), figures.Median(nanos[1]) / turnsOfARun, figures.Median(nanos[2]) / turnsOfARun}, nil
}

// runOf makes one run.
func runOf(ctx context.Context, log eventlog.EventLog, t tool.Tool) call {
	var turns []agenttest.Turn
	for i := range turnsOfARun {
		turns = append(turns, agenttest.Call(fmt.Sprint("c", i), t.Name(), string(document)))
	}
	turns = append(turns, agenttest.Say("done"))
	a := &agent.Agent{Provider: agenttest.ScriptedProvider{Turns: turns}, Tools: []tool.Tool{t}, Log: log, Config: agent.Config{Model: "m"}}
	return func() ([]byte, error) {
		_, err := a.Run(ctx, "go")
		return nil, err
	}
}

func (r runtimeResult) write(b *strings.Builder) {
	if r.raw == 0 {
		return
	}
	us := func(nanos float64) string { return fmt.Sprintf("%.3g", nanos/float64(time.Microsecond)) }
	fmt.Fprintf(b, "\n| an agent, microseconds | tiny |\n|---|--:|\n| the sandbox's call alone | %s |\n| a turn with one such call, in memory | %s |\n| the same on SQLite, synchronous FULL | %s |\n",
		us(r.raw), us(r.memory), us(r.sqlite))
}
