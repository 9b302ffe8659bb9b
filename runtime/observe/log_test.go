package observe_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/budget"
	"github.com/starling-host/starling/runtime/observe"
)

func aLife(ctx context.Context, l observe.RunLog) {
	l.Started(ctx, "gpt-5")
	l.Started(ctx, "")
	l.Resumed(ctx, 12)
	l.NoPrice(ctx, "my model")
	l.TurnStarted(ctx, "T1")
	l.TurnEnded(ctx, event.AssistantMessageCompleted{TurnID: "T1", Text: "not shown", InputTokens: 3, OutputTokens: 4, CostUSD: 0.5})
	l.ToolEnded(ctx, observe.ToolCall{CallID: "C1", Tool: "search", Attempt: 2}, "", time.Second)
	l.ToolEnded(ctx, observe.ToolCall{CallID: "C1", Tool: "search", Attempt: 3}, "fuel", time.Second)
	l.BudgetExceeded(ctx, &budget.Exceeded{Limit: "usd", Cap: 1, Actual: 1.5, Where: "mid_stream"})
	l.Ended(ctx, event.KindRunCompleted, "", time.Minute, budget.Spent{InputTokens: 3, OutputTokens: 4, USD: 0.5})
	l.Ended(ctx, event.KindRunFailed, "budget", time.Minute, budget.Spent{})
	l.Ended(ctx, 0, "", time.Minute, budget.Spent{})
	l.ToolRunStarted(ctx, "search")
	l.ToolRunEnded(ctx, event.KindRunFailed, "fuel", time.Second)
	l.Logger().InfoContext(ctx, "the caller's own")
}

func TestRunLog(t *testing.T) {
	var text bytes.Buffer
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	handler := slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: noTime})
	aLife(t.Context(), observe.NewRunLog(slog.New(handler), "R1"))
	want := `level=INFO msg="run started" run_id=R1 model=gpt-5
level=INFO msg="run started" run_id=R1
level=INFO msg="run resumed" run_id=R1 seq=12
level=WARN msg="model has no price: the dollar budget is not enforced" run_id=R1 model="my model"
level=DEBUG msg="turn started" run_id=R1 turn_id=T1
level=DEBUG msg="turn ended" run_id=R1 turn_id=T1 input_tokens=3 output_tokens=4 cost_usd=0.5
level=DEBUG msg="tool ended" run_id=R1 tool=search call_id=C1 attempt=2 duration=1s
level=DEBUG msg="tool ended" run_id=R1 tool=search call_id=C1 attempt=3 error_type=fuel duration=1s
level=WARN msg="budget exceeded" run_id=R1 limit=usd cap=1 actual=1.5 where=mid_stream
level=INFO msg="run ended" run_id=R1 terminal=RunCompleted duration=1m0s input_tokens=3 output_tokens=4 cost_usd=0.5
level=WARN msg="run ended" run_id=R1 terminal=RunFailed error_type=budget duration=1m0s input_tokens=0 output_tokens=0 cost_usd=0
level=WARN msg="run ended" run_id=R1 duration=1m0s input_tokens=0 output_tokens=0 cost_usd=0
level=INFO msg="run started" run_id=R1 tool=search
level=WARN msg="run ended" run_id=R1 terminal=RunFailed error_type=fuel duration=1s
level=INFO msg="the caller's own" run_id=R1
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

func TestNoLog(t *testing.T) {
	aLife(t.Context(), observe.RunLog{})
	aLife(t.Context(), observe.NewRunLog(nil, "R1"))
}
