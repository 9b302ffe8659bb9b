package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/runtime/step"
)

func TestCausalityIsCheckedAcrossStreams(t *testing.T) {
	cfg := step.Config{Tools: step.NewRegistry(newTool("busy", busy), newTool("parent", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		_, err := step.CallTool(ctx, step.ToolCall{Name: "busy", Args: json.RawMessage(`1`)})
		step.Now(ctx)
		return nil, err
	}))}
	events := recordRun(t, cfg, callOnce("parent", `{}`))
	// 1 start, 2 parent, 3 busy, 4-6 its effects, 7 its end, 8 the parent's clock, 9, 10
	swap := func(from, to int) []event.Event {
		moved := append([]event.Event(nil), events...)
		ev := moved[from-1]
		moved = append(moved[:from-1], moved[from:]...)
		moved = append(moved[:to-1], append([]event.Event{ev}, moved[to-1:]...)...)
		return logtest.Relink(moved)
	}
	t.Run("an effect of the parent before the end of the child", func(t *testing.T) {
		m := mustDiffer(t, swap(8, 5), cfg, callOnce("parent", `{}`), 5, step.MismatchPayload)
		if m.Field != "seq" {
			t.Errorf("%+v", m)
		}
	})
	t.Run("an effect of the child after the parent went on", func(t *testing.T) {
		mustDiffer(t, swap(6, 8), cfg, callOnce("parent", `{}`), 6, step.MismatchKind)
	})
	t.Run("two effects of one call swapped", func(t *testing.T) {
		mustDiffer(t, swap(5, 4), cfg, callOnce("parent", `{}`), 4, step.MismatchPayload)
	})
	t.Run("the parent goes on without an end of the child", func(t *testing.T) {
		open := append(append([]event.Event(nil), events[:6]...), events[7])
		m := mustDiffer(t, logtest.Relink(open), cfg, callOnce("parent", `{}`), 7, step.MismatchPayload)
		if m.Field != "seq" {
			t.Errorf("%+v", m)
		}
	})
	t.Run("an effect that nobody asks for", func(t *testing.T) {
		longer := append(append([]event.Event(nil), events[:9]...), events[7], events[9])
		mustDiffer(t, logtest.Relink(longer), cfg, callOnce("parent", `{}`), 10, step.MismatchExhausted)
	})
}

func TestCallsOfABatchActAfterAllAreScheduled(t *testing.T) {
	cfg := step.Config{Tools: step.NewRegistry(newTool("busy", busy)), MaxParallelTools: 1}
	events := recordRun(t, cfg, fanOut(2))
	// 1 start, 2 and 3 schedule, 4-6 effects and 7 end of the first
	early := append([]event.Event(nil), events...)
	early[2], early[3] = early[3], early[2]
	mustDiffer(t, logtest.Relink(early), cfg, fanOut(2), 3, step.MismatchPayload)
}

func TestRecordedValueOfAnotherTypeIsADifference(t *testing.T) {
	cases := map[string]struct{ live, again func(ctx context.Context) }{
		"a clock of text": {
			func(ctx context.Context) {
				_, _ = step.SideEffect(ctx, "x", func() (string, error) { return "noon", nil })
			},
			func(ctx context.Context) { step.Now(ctx) },
		},
		"a short seed": {
			func(ctx context.Context) {
				_, _ = step.SideEffect(ctx, "x", func() ([]byte, error) { return []byte("short"), nil })
			},
			func(ctx context.Context) { step.Seed(ctx) },
		},
		"an effect": {
			func(ctx context.Context) {
				_, _ = step.SideEffect(ctx, "x", func() (string, error) { return "1", nil })
			},
			func(ctx context.Context) { _, _ = step.SideEffect(ctx, "x", func() (int, error) { return 1, nil }) },
		},
	}
	names := map[string]string{"a clock of text": event.EffectNow, "a short seed": event.EffectSeed, "an effect": "x"}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tools := func(do func(ctx context.Context)) step.Config {
				return oneTool("t", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) { do(ctx); return nil, nil })
			}
			events := recordRun(t, tools(c.live), callOnce("t", `{}`))
			effect, err := events[2].AsSideEffectRecorded()
			if err != nil {
				t.Fatal(err)
			}
			effect.Name = names[name]
			if events[2].Payload, err = event.EncodePayload(effect); err != nil {
				t.Fatal(err)
			}
			mustDiffer(t, logtest.Relink(events), tools(c.again), callOnce("t", `{}`), 3, step.MismatchPayload)
		})
	}
}

func TestReplayFollowsTheRecordedOrderOfOutcomes(t *testing.T) {
	second := make(chan struct{})
	var order []string
	cfg := oneTool("t", func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
		order = append(order, string(in))
		return in, nil
	})
	live := oneTool("t", func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
		if string(in) == "0" {
			<-second // the call that is made first ends last
		} else {
			close(second)
		}
		return in, nil
	})
	do := func(ctx context.Context) error {
		_, err := step.CallTools(ctx, []step.ToolCall{
			{TurnID: "t", Name: "t", Args: json.RawMessage(`0`), CallID: "a"},
			{TurnID: "t", Name: "t", Args: json.RawMessage(`1`), CallID: "b"},
		})
		return err
	}
	events := recordRun(t, live, do)
	last, err := events[4].AsToolCallCompleted()
	if err != nil {
		t.Fatal(err)
	}
	mustReplay(t, events, cfg, do)
	want := []string{"1", "0"}
	if last.CallID == "b" { // the scheduler let the second goroutine record first
		want = []string{"0", "1"}
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
}

func TestChangedResultsAndTurnsAreDifferences(t *testing.T) {
	answer := `{"a":{"b":[1,2]}}`
	cfg := oneTool("t", func(context.Context, json.RawMessage) (json.RawMessage, error) { return json.RawMessage(answer), nil })
	events := recordRun(t, cfg, callOnce("t", `{}`))
	answer = `{"a":{"b":[1,3]}}`
	m := mustDiffer(t, events, cfg, callOnce("t", `{}`), 3, step.MismatchPayload)
	if m.Field != "result.a.b[1]" || m.Expected != "2" || m.Got != "3" {
		t.Errorf("%+v", m)
	}
	mustDiffer(t, events, cfg, callOnce("t", `{"x":1}`), 2, step.MismatchPayload)
	mustDiffer(t, events, cfg, func(ctx context.Context) error {
		_, err := step.CallTool(ctx, step.ToolCall{TurnID: "another", Name: "t", Args: json.RawMessage(`{}`)})
		return err
	}, 2, step.MismatchTurnID)
	mustDiffer(t, events, cfg, func(context.Context) error { return nil }, 2, step.MismatchKind)
}

func TestReplayIsAbandonedWithItsContext(t *testing.T) {
	cfg := oneTool("busy", busy)
	events := recordRun(t, cfg, callOnce("busy", `1`))
	cfg.Mode, cfg.RunID, cfg.Recorded = step.ModeReplay, "run", events
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := step.MustNewContext(cfg)
	if err := drive(ctx, c, callOnce("busy", `1`)); !errors.Is(err, context.Canceled) || errors.Is(err, step.ErrReplayMismatch) {
		t.Errorf("the replay ended with %v", err)
	}
}
