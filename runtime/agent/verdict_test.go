package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

type described struct {
	description string
	fn          func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)
}

func (n described) Name() string            { return "t" }
func (n described) Description() string     { return n.description }
func (n described) Schema() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }
func (n described) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return n.fn(ctx, input)
}

// thatAsks reads the clock, asks the world and answers.
func thatAsks(answer string, err error) tool.Tool {
	return described{"asks", func(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
		step.Now(ctx)
		asked, askErr := step.Do(ctx, step.Effect{Name: "ask", Request: []byte("four")}, func(context.Context, string) (string, error) { return answer, nil })
		if askErr != nil || err != nil {
			return nil, errors.Join(askErr, err)
		}
		return json.Marshal(asked)
	}}
}

func recordedDirect(t *testing.T, ctx context.Context, tl tool.Tool) (*agent.Result, []event.Event) {
	t.Helper()
	log := store.Memory()
	result, err := agent.Direct{Log: log, Tool: tl, AppVersion: "1"}.Run(ctx, json.RawMessage(`{ "b": 1, "a": 2.0 }`))
	if err != nil {
		t.Fatal(err)
	}
	events, err := log.Read(context.Background(), result.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true}); err != nil {
		t.Fatal(err)
	}
	return result, events
}

func resolverOf(tl tool.Tool) agent.Resolver {
	return func(context.Context, event.ToolSchemaRef) (tool.Tool, error) { return tl, nil }
}

func TestEveryEndOfARunReplaysAsIdentical(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	cases := []struct {
		name      string
		ctx       context.Context
		tool      tool.Tool
		terminal  event.Kind
		errorType string
	}{
		{"completed", context.Background(), thatAsks("yes", nil), event.KindRunCompleted, ""},
		{"failed", context.Background(), thatAsks("yes", errors.New("no")), event.KindRunFailed, event.ErrorTool},
		{"out of fuel", context.Background(), thatAsks("yes", tool.ErrFuel), event.KindRunFailed, event.ErrorFuel},
		{"timed out", context.Background(), thatAsks("yes", tool.ErrTimeout), event.KindRunFailed, event.ErrorTimeout},
		{"panicked", context.Background(), described{"", func(context.Context, json.RawMessage) (json.RawMessage, error) { panic("kaboom") }}, event.KindRunFailed, event.ErrorPanic},
		{"cancelled", cancelled, thatAsks("yes", nil), event.KindRunCancelled, event.ErrorCancelled},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			live, events := recordedDirect(t, c.ctx, c.tool)
			if live.TerminalKind != c.terminal || live.ErrorType != c.errorType {
				t.Errorf("the run ended with %v, %q", live.TerminalKind, live.ErrorType)
			}
			v, err := agent.Replay(context.Background(), events, resolverOf(c.tool), agent.ReplayOptions{})
			if err != nil || !v.Identical() || v.Open || v.Events != len(events) {
				t.Fatalf("verdict %+v, %v; divergence %v", v, err, v.Divergence)
			}
			if diff := cmp.Diff(live, v.Result, sameResult); diff != "" {
				t.Errorf("results differ:\n%s", diff)
			}
		})
	}
}

func TestAnotherToolDiverges(t *testing.T) {
	_, events := recordedDirect(t, context.Background(), thatAsks("yes", nil))
	other := described{"asks", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		step.Now(ctx)
		_, err := step.Do(ctx, step.Effect{Name: "ask", Request: []byte("five")}, func(context.Context, string) (string, error) { return "", nil })
		return nil, err
	}}
	v, err := agent.Replay(context.Background(), events, resolverOf(other), agent.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := &agent.Divergence{
		RunID: events[0].RunID, MismatchError: step.MismatchError{
			Seq: 4, Kind: event.KindSideEffectRecorded, ExpectedKind: event.KindSideEffectRecorded,
			Class: step.MismatchPayload, Field: "request", Expected: "four", Got: "five", Reason: "SideEffectRecorded differs",
		},
	}
	if diff := cmp.Diff(want, v.Divergence); diff != "" {
		t.Error(diff)
	}
	var mismatch *step.MismatchError
	if !errors.Is(v.Divergence, agent.ErrNonDeterminism) || !errors.Is(v.Divergence, step.ErrReplayMismatch) || !errors.As(v.Divergence, &mismatch) {
		t.Errorf("%v is not what it should be", v.Divergence)
	}
}

func TestOtherModuleComparesBehaviourOnly(t *testing.T) {
	_, events := recordedDirect(t, context.Background(), thatAsks("yes", nil))
	newer := thatAsks("no", nil).(described)
	newer.description = "asks better"
	v, err := agent.Replay(context.Background(), events, resolverOf(newer), agent.ReplayOptions{})
	if err != nil || v.Identical() || v.Divergence.Seq != 1 {
		t.Errorf("another description: %+v, %v", v, err)
	}
	v, err = agent.Replay(context.Background(), events, resolverOf(newer), agent.ReplayOptions{OtherModule: true})
	if err != nil || !v.Identical() {
		t.Errorf("with OtherModule: %v, %v", v.Divergence, err)
	}
}

func TestEveryPrefixOfARunIsOpenAndIdentical(t *testing.T) {
	tl := thatAsks("yes", nil)
	_, events := recordedDirect(t, context.Background(), tl)
	for n := 1; n < len(events); n++ {
		v, err := agent.Replay(context.Background(), events[:n], resolverOf(tl), agent.ReplayOptions{})
		if err != nil || !v.Open || !v.Identical() || v.Result != nil {
			t.Errorf("after %d events: %+v, %v", n, v, err)
		}
	}
	silent := described{"asks", func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil }}
	v, err := agent.Replay(context.Background(), events[:4], resolverOf(silent), agent.ReplayOptions{})
	if err != nil || v.Identical() || v.Divergence.Seq != 3 {
		t.Errorf("a tool that does nothing: %+v, %v", v, err)
	}
}

func TestAgentReplayErrors(t *testing.T) {
	tl := thatAsks("yes", nil)
	_, events := recordedDirect(t, context.Background(), tl)
	t.Run("a run that was tampered with", func(t *testing.T) {
		forged := append([]event.Event(nil), events...)
		forged[3].Timestamp++
		_, err := agent.Replay(context.Background(), forged, resolverOf(tl), agent.ReplayOptions{})
		var corrupt *eventlog.CorruptError
		if !errors.As(err, &corrupt) || corrupt.Seq != 4 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no events", func(t *testing.T) {
		if _, err := agent.Replay(context.Background(), nil, resolverOf(tl), agent.ReplayOptions{}); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a tool that is gone", func(t *testing.T) {
		gone := errors.New("gone")
		_, err := agent.Replay(context.Background(), events, func(context.Context, event.ToolSchemaRef) (tool.Tool, error) { return nil, gone }, agent.ReplayOptions{})
		if !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a cancelled replay", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := agent.Replay(ctx, events, resolverOf(tl), agent.ReplayOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a run with a model", func(t *testing.T) {
		log := store.Memory()
		c := step.MustNewContext(step.Config{Log: log, RunID: "run"})
		ctx := context.Background()
		err := errors.Join(
			step.Emit(ctx, c, event.KindRunStarted, event.RunStarted{SchemaVersion: 1, ToolSchemas: []event.ToolSchemaRef{}}),
			step.Emit(ctx, c, event.KindTurnStarted, event.TurnStarted{TurnID: "1"}),
			step.Emit(ctx, c, event.KindRunFailed, event.RunFailed{Error: "x", ErrorType: "provider"}))
		if err != nil {
			t.Fatal(err)
		}
		events, err := log.Read(ctx, "run")
		if err != nil {
			t.Fatal(err)
		}
		_, err = agent.Replay(ctx, events, resolverOf(tl), agent.ReplayOptions{})
		var unsupported *agent.UnsupportedError
		if !errors.As(err, &unsupported) || unsupported.Seq != 2 {
			t.Errorf("got %v", err)
		}
	})
}
