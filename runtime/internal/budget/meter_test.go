package budget_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
)

// exceeded returns the *Exceeded in err, or nil if err is nil.
func exceeded(t *testing.T, err error) *budget.Exceeded {
	t.Helper()
	var e *budget.Exceeded
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%v is no *Exceeded", err)
	}
	return e
}

func TestMeterTrips(t *testing.T) {
	answer := event.AssistantMessageCompleted{InputTokens: 60, OutputTokens: 60, CostUSD: 0.6}
	for _, tc := range []struct {
		name   string
		limits budget.Limits
		do     func(m *budget.Meter) error
		want   *budget.Exceeded
	}{
		{"no limits", budget.Limits{}, func(m *budget.Meter) error {
			return errors.Join(m.BeforeCall(1e9), m.Usage(provider.Usage{OutputTokens: 1e9}, 1e9), m.Elapsed(1e9),
				m.Outcome(event.Meter{Fuel: 1e9}), m.Effect(event.SideEffectRecorded{Request: []byte("r")}))
		}, nil},
		{"input at the cap", budget.Limits{MaxInputTokens: 100}, func(m *budget.Meter) error { return m.BeforeCall(40) }, nil},
		{"input above the cap with earlier turns", budget.Limits{MaxInputTokens: 100}, func(m *budget.Meter) error { return m.BeforeCall(41) },
			&budget.Exceeded{Limit: "input_tokens", Cap: 100, Actual: 101, Where: "pre_call"}},
		{"output at the cap", budget.Limits{MaxOutputTokens: 100}, func(m *budget.Meter) error { return m.Usage(provider.Usage{OutputTokens: 40}, 0) }, nil},
		{"output above the cap with earlier turns", budget.Limits{MaxOutputTokens: 100}, func(m *budget.Meter) error { return m.Usage(provider.Usage{OutputTokens: 41}, 0) },
			&budget.Exceeded{Limit: "output_tokens", Cap: 100, Actual: 101, Where: "mid_stream"}},
		{"a later count replaces an earlier one", budget.Limits{MaxOutputTokens: 100}, func(m *budget.Meter) error {
			return errors.Join(m.Usage(provider.Usage{OutputTokens: 30}, 0), m.Usage(provider.Usage{OutputTokens: 40}, 0))
		}, nil},
		{"a count that would wrap around", budget.Limits{MaxOutputTokens: 100}, func(m *budget.Meter) error { return m.Usage(provider.Usage{OutputTokens: math.MaxInt64}, 0) },
			&budget.Exceeded{Limit: "output_tokens", Cap: 100, Actual: math.MaxInt64, Where: "mid_stream"}},
		{"dollars at the cap", budget.Limits{MaxUSD: 1}, func(m *budget.Meter) error { return m.Usage(provider.Usage{}, 0.4) }, nil},
		{"dollars above the cap with earlier turns", budget.Limits{MaxUSD: 1}, func(m *budget.Meter) error { return m.Usage(provider.Usage{}, 0.5) },
			&budget.Exceeded{Limit: "usd", Cap: 1, Actual: 1.1, Where: "mid_stream"}},
		{"dollars that are none", budget.Limits{MaxUSD: 1}, func(m *budget.Meter) error { return m.Usage(provider.Usage{}, math.NaN()) }, nil},
		{"time within", budget.Limits{MaxWallClock: time.Second}, func(m *budget.Meter) error { return m.Elapsed(time.Second - 1) }, nil},
		{"time over", budget.Limits{MaxWallClock: time.Second}, func(m *budget.Meter) error { return m.Elapsed(1500 * time.Millisecond) },
			&budget.Exceeded{Limit: "wall_clock", Cap: 1000, Actual: 1500, Where: "mid_stream"}},
		{"fuel of several calls", budget.Limits{MaxFuel: 100}, func(m *budget.Meter) error {
			return errors.Join(m.Outcome(event.Meter{Fuel: 60}), m.Outcome(event.Meter{Fuel: 41}))
		}, &budget.Exceeded{Limit: "fuel", Cap: 100, Actual: 101, Where: "post_call"}},
		{"fuel that would wrap around", budget.Limits{MaxFuel: 100}, func(m *budget.Meter) error {
			m.Outcome(event.Meter{Fuel: math.MaxUint64})
			return m.Outcome(event.Meter{Fuel: 50})
		}, &budget.Exceeded{Limit: "fuel", Cap: 100, Actual: math.MaxUint64, Where: "post_call"}},
		{"effects", budget.Limits{MaxEffects: 1}, func(m *budget.Meter) error {
			return errors.Join(m.Effect(event.SideEffectRecorded{Name: "now"}), m.Effect(event.SideEffectRecorded{Name: "x"}))
		}, &budget.Exceeded{Limit: "effects", Cap: 1, Actual: 2, Where: "post_call"}},
		{"an announcement is no effect", budget.Limits{MaxEffects: 1}, func(m *budget.Meter) error {
			return errors.Join(m.Effect(event.SideEffectRecorded{Name: event.EffectIntent}), m.Effect(event.SideEffectRecorded{Name: "x"}))
		}, nil},
		{"egress", budget.Limits{MaxEgressBytes: 3}, func(m *budget.Meter) error {
			return errors.Join(m.Effect(event.SideEffectRecorded{Name: "x", Request: []byte("abc")}), m.Effect(event.SideEffectRecorded{Name: "x", Request: []byte("d")}))
		}, &budget.Exceeded{Limit: "egress_bytes", Cap: 3, Actual: 4, Where: "post_call"}},
	} {
		m := budget.NewMeter(tc.limits)
		m.Answered(answer)
		if diff := cmp.Diff(tc.want, exceeded(t, tc.do(m))); diff != "" {
			t.Errorf("%s: want (-), got (+):\n%s", tc.name, diff)
		}
	}
}

func TestATurnWithoutAnAnswerIsNotCounted(t *testing.T) {
	m := budget.NewMeter(budget.Limits{MaxOutputTokens: 50})
	for range 3 {
		if err := errors.Join(m.BeforeCall(1), m.Usage(provider.Usage{InputTokens: 10, OutputTokens: 40}, 1)); err != nil {
			t.Fatal(err)
		}
	}
	want := budget.Spent{InputTokens: 10, OutputTokens: 40, USD: 1}
	if got := m.Spent(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// ev encodes a payload as an event.
func ev(t interface{ Fatal(...any) }, p event.Payload) event.Event {
	raw, err := event.EncodePayload(p)
	if err != nil {
		t.Fatal(err)
	}
	return event.Event{Kind: p.EventKind(), Payload: raw}
}

// TestResumeIsTheMeterOfTheWholeRun cuts random runs in two: a Meter of the
// whole run and one rebuilt from the log agree.
func TestResumeIsTheMeterOfTheWholeRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		live := budget.NewMeter(budget.Limits{})
		var log []event.Event
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				usage := provider.Usage{InputTokens: rapid.Int64Range(0, 1e6).Draw(t, "in"), OutputTokens: rapid.Int64Range(0, 1e6).Draw(t, "out")}
				usd, _ := budget.Builtin().Cost("gpt-5.5-pro", usage)
				live.BeforeCall(0)
				live.Usage(usage, usd)
				p := event.AssistantMessageCompleted{InputTokens: usage.InputTokens, OutputTokens: usage.OutputTokens, CostUSD: usd}
				before := live.Spent()
				live.Answered(p)
				if after := live.Spent(); before != after {
					t.Fatalf("%+v during the turn, %+v after it", before, after)
				}
				log = append(log, ev(t, p))
			case 1:
				p := event.ToolCallCompleted{Meter: event.Meter{Fuel: rapid.Uint64().Draw(t, "fuel")}}
				live.Outcome(p.Meter)
				log = append(log, ev(t, p))
			case 2:
				p := event.ToolCallFailed{Meter: event.Meter{Fuel: rapid.Uint64Range(0, 1e9).Draw(t, "fuel")}}
				live.Outcome(p.Meter)
				log = append(log, ev(t, p))
			case 3:
				p := event.SideEffectRecorded{Name: rapid.SampledFrom([]string{"now", "intent", "http"}).Draw(t, "name"), Request: rapid.SliceOf(rapid.Byte()).Draw(t, "request")}
				live.Effect(p)
				log = append(log, ev(t, p))
			case 4:
				log = append(log, ev(t, event.TurnStarted{InputTokens: 7}))
			}
		}
		resumed, err := budget.Resume(budget.Limits{}, log)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(live.Spent(), resumed.Spent()); diff != "" {
			t.Fatalf("live (-), resumed (+):\n%s", diff)
		}
	})
}

func TestResumeRefusesWhatItCannotRead(t *testing.T) {
	for _, kind := range []event.Kind{event.KindAssistantMessageCompleted, event.KindToolCallCompleted, event.KindToolCallFailed, event.KindSideEffectRecorded} {
		if _, err := budget.Resume(budget.Limits{}, []event.Event{{Seq: 3, Kind: kind, Payload: []byte{0x61}}}); err == nil {
			t.Errorf("%v: no error", kind)
		}
	}
}

// TestSumsOfCosts adds a tenth of a cent a million times.
func TestSumsOfCosts(t *testing.T) {
	m := budget.NewMeter(budget.Limits{})
	for range 1_000_000 {
		m.Answered(event.AssistantMessageCompleted{CostUSD: 0.001})
	}
	if got := m.Spent().USD; got != 1000 {
		t.Errorf("got %v", got)
	}
	m.Answered(event.AssistantMessageCompleted{CostUSD: math.Inf(1)})
	m.Answered(event.AssistantMessageCompleted{CostUSD: 1})
	if got := m.Spent().USD; got < 9e6 {
		t.Errorf("a sum wrapped around to %v", got)
	}
}

// TestRecordedTrips has a replay accept the trips that its limits allow.
func TestRecordedTrips(t *testing.T) {
	m := budget.NewMeter(budget.Limits{MaxInputTokens: 1, MaxOutputTokens: 2, MaxUSD: 3, MaxWallClock: 4 * time.Millisecond, MaxFuel: 5, MaxEffects: 6, MaxEgressBytes: 7})
	for i, limit := range []string{"input_tokens", "output_tokens", "usd", "wall_clock", "fuel", "effects", "egress_bytes"} {
		want := &budget.Exceeded{Limit: limit, Cap: float64(i + 1), Actual: 8, Where: "mid_stream"}
		if diff := cmp.Diff(want, exceeded(t, m.Recorded(want.Event()))); diff != "" {
			t.Errorf("want (-), got (+):\n%s", diff)
		}
	}
	for name, p := range map[string]event.BudgetExceeded{
		"another cap":     {Limit: "usd", Cap: 2, Actual: 4},
		"within the cap":  {Limit: "usd", Cap: 3, Actual: 2.9},
		"no number":       {Limit: "usd", Cap: 3, Actual: math.NaN()},
		"no such axis":    {Limit: "patience"},
		"nothing at all":  {},
		"a cap of no run": {Limit: "usd"},
	} {
		var e *budget.Exceeded
		if err := m.Recorded(p); err == nil || errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if budget.NewMeter(budget.Limits{}).Recorded(event.BudgetExceeded{Limit: "usd", Actual: 1}) == nil {
		t.Error("a trip of an axis without a cap")
	}
}

func TestLimits(t *testing.T) {
	all := budget.Limits{MaxInputTokens: 1, MaxOutputTokens: 2, MaxUSD: 0.5, MaxWallClock: 1500 * time.Millisecond, MaxFuel: 3, MaxEffects: 4, MaxEgressBytes: 5}
	if diff := cmp.Diff(all, budget.FromEvent(all.Event())); diff != "" {
		t.Errorf("through an event:\n%s", diff)
	}
	if got := (budget.Limits{}).Event(); got != nil {
		t.Errorf("no limits are %+v", got)
	}
	if got := (budget.Limits{MaxWallClock: 1}).Event().MaxWallClockMs; got != 1 {
		t.Errorf("a nanosecond is %d ms", got)
	}
	if got := budget.FromEvent(&event.BudgetLimits{MaxWallClockMs: math.MaxInt64}).MaxWallClock; got <= 0 {
		t.Errorf("a long time became %v", got)
	}
	if got := budget.FromEvent(&event.BudgetLimits{MaxWallClockMs: math.MinInt64 + 1}).MaxWallClock; got != 0 {
		t.Errorf("a time below zero became %v", got)
	}
	if budget.FromEvent(nil) != (budget.Limits{}) || all.Validate() != nil || (budget.Limits{}).Validate() != nil {
		t.Error("no limits, or good ones, are refused")
	}
	for name, bad := range map[string]budget.Limits{
		"input": {MaxInputTokens: -1}, "output": {MaxOutputTokens: -1}, "dollars": {MaxUSD: -1},
		"no number": {MaxUSD: math.NaN()}, "endless": {MaxUSD: math.Inf(1)}, "time": {MaxWallClock: -1},
	} {
		if bad.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEstimateInput(t *testing.T) {
	for want, req := range map[int64]provider.Request{
		0: {},
		1: {SystemPrompt: "åäö"},
		2: {SystemPrompt: "four"},
		7: {
			SystemPrompt: "abc",
			Messages: []provider.Message{
				{Content: "abc", Reasoning: []provider.Reasoning{{Content: "abc"}}},
				{ToolUses: []provider.ToolUse{{Name: "not counted", Args: []byte(`{} `)}}},
				{ToolResult: &provider.ToolResult{Content: "abcd"}},
			},
			Tools: []provider.ToolDefinition{{Name: "not counted", Schema: []byte("true")}},
		},
	} {
		if got := budget.EstimateInput(&req); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}
