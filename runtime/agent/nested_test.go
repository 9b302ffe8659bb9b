package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// named is a native tool with a name.
type named struct {
	native
	name string
}

func (n named) Name() string { return n.name }

// bank keeps the idempotency keys of the payments that it was asked for, by their text.
type bank map[string][]string

// pay is a tool that must not pay twice.
func (b bank) pay() tool.Tool {
	return named{func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
		return step.Do(ctx, step.Effect{Name: "pay", Request: input, Unsafe: true}, func(_ context.Context, key string) (json.RawMessage, error) {
			b[string(input)] = append(b[string(input)], key)
			return json.RawMessage(`"paid"`), nil
		})
	}, "pay"}
}

// shopping calls other tools: twice with the same arguments, one that fails, one that is
// not there, and between effects of its own.
func shopping(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
	var got []string
	call := func(name, args string) error {
		r, err := step.CallFrom(ctx, name, json.RawMessage(args), nil)
		switch {
		case err != nil:
			return err
		case r.Err != nil:
			got = append(got, r.Err.Error())
		default:
			got = append(got, string(r.Result))
		}
		return nil
	}
	step.Now(ctx)
	err := errors.Join(call("pay", `{"n":1}`), call("fail", `{}`), call("pay", `{"n":2}`))
	step.Random(ctx)
	if err = errors.Join(err, call("pay", `{"n":1}`), call("nobody", `{}`)); err != nil {
		return nil, err
	}
	return json.Marshal(got)
}

func shop(b bank) agent.Direct {
	fail := named{func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("no") }, "fail"}
	return agent.Direct{Tool: native(shopping), Others: []tool.Tool{b.pay(), fail}}
}

const bought = `["\"paid\"","no","\"paid\"","\"paid\"","step: tool not found: \"nobody\""]`

// TestNestedCallsAtEveryBoundary kills a run whose call makes other calls behind each of
// its events, goes on with it, kills it again behind each event of that, and goes on.
// Nothing that is recorded is done again; what may have been done is done under its own key.
func TestNestedCallsAtEveryBoundary(t *testing.T) {
	b := bank{}
	d := shop(b)
	log := store.Memory()
	d.Log = log
	r, err := d.RunWithID(t.Context(), "run", json.RawMessage(`{}`))
	if err != nil || string(r.Output) != bought {
		t.Fatalf("%+v, %v", r, err)
	}
	events := readRun(t, log)
	for n := 2; n < len(events); n++ {
		first := wentOn(t, events, n)
		for m := n + 1; m < len(first); m++ {
			wentOn(t, first, m)
		}
	}
}

// wentOn goes on with a run that was cut off behind n events, and returns all of it.
func wentOn(t *testing.T, events []event.Event, n int) []event.Event {
	t.Helper()
	b := bank{}
	d := shop(b)
	log := cut(t, events, n)
	d.Log = log
	r, err := d.Continue(t.Context(), "run", json.RawMessage(`{}`))
	if err != nil || string(r.Output) != bought {
		t.Fatalf("cut behind %d events (%s): %+v, %v", n, kinds(events[:n]), r, err)
	}
	all := readRun(t, log)
	if _, err := eventlog.Check(all, eventlog.CheckOptions{Strict: true}); err != nil {
		t.Fatalf("cut behind %d events: %v", n, err)
	}
	var intended []string // keys of payments that may have been made
	for _, ev := range events[:n] {
		effect, err := ev.AsSideEffectRecorded()
		if err != nil {
			continue
		}
		switch effect.Name {
		case event.EffectIntent:
			var intent event.Intent
			if err := canon.Unmarshal(effect.Value, &intent); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(intended, intent.Key) {
				intended = append(intended, intent.Key)
			}
		}
	}
	paid := settledPayments(events[:n])
	var now []string
	for _, keys := range b {
		now = append(now, keys...)
	}
	if len(now) != 3-paid {
		t.Fatalf("cut behind %d events (%s): %d payments are settled, and %d more are made", n, kinds(events[:n]), paid, len(now))
	}
	if open := len(intended) - paid; open > 0 && !slices.Contains(now, intended[len(intended)-1]) {
		t.Fatalf("cut behind %d events: a payment that may have been made is made under another key", n)
	}
	if r, err := d.Replay(t.Context(), all, agent.ReplayOptions{}); err != nil || string(r.Output) != bought {
		t.Fatalf("cut behind %d events: replay: %+v, %v\n%s", n, r, err, kinds(all))
	}
	return all
}

// settledPayments counts the payments that are recorded, each once: one that a later
// process took from the record is there again.
func settledPayments(events []event.Event) int {
	var last string
	settled := map[string]bool{}
	for _, ev := range events {
		effect, err := ev.AsSideEffectRecorded()
		if err != nil {
			continue
		}
		var intent event.Intent
		if effect.Name == event.EffectIntent && canon.Unmarshal(effect.Value, &intent) == nil {
			last = intent.Key
		} else if effect.Name == "pay" {
			settled[last] = true
		}
	}
	return len(settled)
}

func readRun(t *testing.T, log eventlog.EventLog) []event.Event {
	t.Helper()
	events, err := log.Read(context.Background(), "run")
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// TestNestedCallIsRefused: the refusal is recorded, and the replay of a run has it without
// the reason.
func TestNestedCallIsRefused(t *testing.T) {
	var refuse error = errors.New("not you")
	asking := native(func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		_, err := step.CallFrom(ctx, "t", json.RawMessage(`{}`), refuse)
		return json.Marshal(fmt.Sprint(err))
	})
	log := store.Memory()
	d := agent.Direct{Log: log, Tool: asking}
	r, err := d.RunWithID(t.Context(), "run", json.RawMessage(`{}`))
	if err != nil || string(r.Output) != `"not you"` {
		t.Fatalf("%+v, %v", r, err)
	}
	refuse = nil
	if r, err := d.Replay(t.Context(), readRun(t, log), agent.ReplayOptions{}); err != nil || string(r.Output) != `"not you"` {
		t.Errorf("%+v, %v", r, err)
	}
}
