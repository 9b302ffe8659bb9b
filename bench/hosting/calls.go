package main

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/bench/guests"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/queuetest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/queue"
)

// callsEndToEnd is a contender's name: what is enqueued is a call of a tool.
func callsEndToEnd(queue string) string { return queue + ", tool calls" }

// calls measures calls of a tool that go through the queue: each is a run that is
// enqueued, taken up, executed in the sandbox and recorded from RunStarted to
// RunCompleted.
func (b *bench) calls(ctx context.Context) error {
	const workers = 64
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return err
	}
	defer engine.Close(ctx)
	t, err := loadTool(ctx, engine)
	if err != nil {
		return err
	}
	h, err := b.openHosts(ctx, "calls", workers)
	if err != nil {
		return err
	}
	names, of := []string{onSQLite, onPostgres}, []queuetest.Host{h.sqlite, h.postgres}
	var all []contender
	for i, name := range names {
		all = append(all, flowing(name, of[i].EmptyRuns(workers)), flowing(callsEndToEnd(name), calling(of[i], t, workers)))
	}
	rates, err := take(ctx, b.rounds, b.flow, all...)
	if err != nil {
		return err
	}
	load := fmt.Sprintf("%d callers and workers, end to end", workers)
	for _, name := range names {
		b.report.note(load, rates, callsEndToEnd(name))
		b.report.atLeast(0, load, callsEndToEnd(name)+" / runs of 2 events", rates.ratio(callsEndToEnd(name), name))
	}
	return h.close()
}

// loadTool loads a guest that answers with what it was told.
func loadTool(ctx context.Context, engine *sandbox.Engine) (tool.Tool, error) {
	wasm, err := guests.Wasm.ReadFile("echo.wasm")
	if err != nil {
		return nil, err
	}
	m, err := guest.Load(ctx, guest.Inline(engine), wasm, guest.Options{})
	if err != nil {
		return nil, err
	}
	return m.Tools()[0], nil
}

// calling is the flow of runs that are one call of a tool each.
func calling(h queuetest.Host, t tool.Tool, callers int) queuetest.Flow {
	input := []byte(`{"order":4711,"customer":{"id":42,"name":"Ada Lovelace"}}`)
	fenced := h.Log.(eventlog.Store)
	return queuetest.Flow{
		Queue: h.Queue, Callers: callers,
		Opening: func(runID string) (event.Event, []byte, error) {
			first, err := agent.Direct{Tool: t}.Opening(context.Background(), runID, input)
			return first, input, err
		},
		Handler: func(ctx context.Context, l queue.Lease) error {
			r, err := agent.Direct{Log: fenced.Fenced(l.RunID, l.Epoch), Tool: t}.Continue(ctx, l.RunID, l.Payload)
			if err == nil && r.TerminalKind != event.KindRunCompleted {
				err = fmt.Errorf("%s: %s", r.TerminalKind, r.Error)
			}
			return err
		},
	}
}
