package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/memlog"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

func TestErrorTypesOfOutcomes(t *testing.T) {
	deep := strings.Repeat("[", 70) + strings.Repeat("]", 70)
	cases := []struct {
		name   string
		out    string
		err    error
		panics any
		want   string
		is     error
	}{
		{"an error", "", errors.New("no"), nil, event.ErrorTool, nil},
		{"a panic", "", nil, "kaboom", event.ErrorPanic, tool.ErrPanicked},
		{"a panic with an error", "", nil, errors.New("kaboom"), event.ErrorPanic, tool.ErrPanicked},
		{"a transient panic is not retried", "", nil, tool.ErrTransient, event.ErrorPanic, tool.ErrPanicked},
		{"out of fuel", "", tool.ErrFuel, nil, event.ErrorFuel, tool.ErrFuel},
		{"a limit", "", fmt.Errorf("output: %w", tool.ErrLimit), nil, event.ErrorLimit, tool.ErrLimit},
		{"the host's deadline", "", tool.ErrTimeout, nil, event.ErrorTimeout, tool.ErrTimeout},
		{"a deadline of its own", "", context.DeadlineExceeded, nil, event.ErrorTool, context.DeadlineExceeded},
		{"a result that is not JSON", "{", nil, nil, event.ErrorTool, nil},
		{"a result with duplicate keys", `{"a":1,"a":2}`, nil, nil, event.ErrorTool, nil},
		{"a result that nests too deep", deep, nil, nil, event.ErrorTool, nil},
		{"a result that is too large", `"` + strings.Repeat("x", eventlog.MaxPayloadBytes) + `"`, nil, nil, event.ErrorTool, nil},
		{"a result that JSON makes too large", `"` + strings.Repeat(`\u0001`, eventlog.MaxPayloadBytes/4) + `"`, nil, nil, event.ErrorTool, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := oneTool("t", func(context.Context, json.RawMessage) (json.RawMessage, error) {
				if c.panics != nil {
					panic(c.panics)
				}
				return json.RawMessage(c.out), c.err
			})
			var got error
			do := func(ctx context.Context) error {
				_, got = step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "t", Args: json.RawMessage(`1`), Idempotent: true, MaxAttempts: 2})
				return nil
			}
			events := recordRun(t, cfg, do)
			if failed := outcome(t, events); failed.ErrorType != c.want || failed.Attempt != 1 || !failed.Final {
				t.Errorf("recorded %+v, want type %s", failed, c.want)
			}
			if c.is != nil && !errors.Is(got, c.is) {
				t.Errorf("%v is not %v", got, c.is)
			}
			mustReplay(t, events, cfg, do)
		})
	}
}

func TestUnknownToolIsARecordedFailure(t *testing.T) {
	var got error
	do := func(ctx context.Context) error {
		_, got = step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "nobody", Args: json.RawMessage(`{}`)})
		return nil
	}
	events := recordRun(t, step.Config{}, do)
	if !errors.Is(got, step.ErrToolNotFound) || outcome(t, events).ErrorType != event.ErrorTool {
		t.Errorf("got %v, recorded %+v", got, outcome(t, events))
	}
	mustReplay(t, events, step.Config{}, do)
}

func TestCallsThatCannotBeRecorded(t *testing.T) {
	cfg := oneTool("t", func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, nil })
	good := step.ToolCall{TurnID: "t", Name: "t", Args: json.RawMessage(`{}`), CallID: "used"}
	cases := map[string][]step.ToolCall{
		"no turn":              {{Name: "t", Args: json.RawMessage(`{}`)}},
		"no arguments":         {{TurnID: "t", Name: "t"}},
		"arguments not JSON":   {{TurnID: "t", Name: "t", Args: json.RawMessage(`{`)}},
		"a name not UTF-8":     {{TurnID: "t", Name: "\xff", Args: json.RawMessage(`{}`)}},
		"a call id used twice": {good},
		"the same id in one batch": {
			{TurnID: "t", Name: "t", Args: json.RawMessage(`{}`), CallID: "x"},
			{TurnID: "t", Name: "t", Args: json.RawMessage(`{}`), CallID: "x"},
		},
	}
	for name, calls := range cases {
		t.Run(name, func(t *testing.T) {
			do := func(ctx context.Context) error {
				if _, err := step.CallTool(ctx, good); err != nil {
					t.Error(err)
				}
				if _, err := step.CallTools(ctx, calls); !errors.Is(err, step.ErrInvalidCall) {
					t.Errorf("CallTools returned %v, want ErrInvalidCall", err)
				}
				return nil
			}
			events := recordRun(t, cfg, do)
			if len(events) != 4 {
				t.Errorf("something was recorded\n%s", dump(events))
			}
			mustReplay(t, events, cfg, do)
		})
	}
}

func TestEffectsThatCannotBeRecorded(t *testing.T) {
	cases := map[string]step.Effect{
		"no name":          {},
		"a reserved name":  {Name: "now"},
		"the intent":       {Name: "intent"},
		"a name too long":  {Name: strings.Repeat("x", step.MaxEffectName+1)},
		"a name not UTF-8": {Name: "\xff"},
		"a huge request":   {Name: "x", Request: make([]byte, eventlog.MaxPayloadBytes)},
	}
	for name, e := range cases {
		t.Run(name, func(t *testing.T) {
			events := recordRun(t, step.Config{}, func(ctx context.Context) error {
				_, err := step.Do(ctx, e, func(context.Context, string) (int, error) { t.Error("it happened"); return 0, nil })
				if !errors.Is(err, step.ErrInvalidEffect) {
					t.Errorf("Do returned %v", err)
				}
				return nil
			})
			if len(events) != 2 {
				t.Errorf("something was recorded\n%s", dump(events))
			}
		})
	}
}

func TestEffectsWhoseResultCannotBeRecorded(t *testing.T) {
	nested := any(1)
	for range 100 {
		nested = []any{nested}
	}
	cases := map[string]struct {
		effect func() (any, error)
		want   string
	}{
		"a function":        {func() (any, error) { return func() {}, nil }, event.ErrorTool},
		"text not UTF-8":    {func() (any, error) { return "\xff", nil }, event.ErrorTool},
		"nested too deep":   {func() (any, error) { return nested, nil }, event.ErrorTool},
		"nested at the rim": {func() (any, error) { return nested.([]any)[0].([]any)[0], nil }, event.ErrorTool},
		"too large":         {func() (any, error) { return make([]byte, eventlog.MaxPayloadBytes), nil }, event.ErrorLimit},
		"a panic":           {func() (any, error) { panic("kaboom") }, event.ErrorPanic},
		"a transient error": {func() (any, error) { return nil, tool.ErrTransient }, step.EffectTransient},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got [2]*step.EffectError
			n := 0
			do := func(ctx context.Context) error {
				_, err := step.SideEffect(ctx, "e", c.effect)
				if !errors.As(err, &got[n]) || got[n].Type != c.want {
					t.Errorf("SideEffect returned %v (%T), want type %s", err, err, c.want)
				}
				n++
				return nil
			}
			events := recordRun(t, step.Config{}, do)
			mustReplay(t, events, step.Config{}, do)
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

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
		return rechain(t, moved)
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
		m := mustDiffer(t, rechain(t, open), cfg, callOnce("parent", `{}`), 7, step.MismatchPayload)
		if m.Field != "seq" {
			t.Errorf("%+v", m)
		}
	})
	t.Run("an effect that nobody asks for", func(t *testing.T) {
		longer := append(append([]event.Event(nil), events[:9]...), events[7], events[9])
		mustDiffer(t, rechain(t, longer), cfg, callOnce("parent", `{}`), 10, step.MismatchExhausted)
	})
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

// strictLog gives up when its context has ended, as a log on a disk may.
type strictLog struct{ eventlog.EventLog }

func (l strictLog) Append(ctx context.Context, runID string, ev event.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.EventLog.Append(ctx, runID, ev)
}

func TestTheEndOfACancelledRunIsRecorded(t *testing.T) {
	log := memlog.New()
	c := step.MustNewContext(step.Config{Log: strictLog{log}, RunID: "run"})
	err := drive(context.Background(), c, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		step.Now(ctx)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// stuckLog never takes anything.
type stuckLog struct{ eventlog.EventLog }

func (stuckLog) Append(ctx context.Context, _ string, _ event.Event) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestEmitTimeoutBoundsALogThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := step.MustNewContext(step.Config{Log: stuckLog{memlog.New()}, RunID: "run", EmitTimeout: time.Minute})
		if err := drive(context.Background(), c, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestARunCannotEndBeforeItsCalls(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	cfg := oneTool("t", func(context.Context, json.RawMessage) (json.RawMessage, error) {
		close(inside)
		<-release
		return nil, nil
	})
	log := memlog.New()
	cfg.Log, cfg.RunID = log, "run"
	done := make(chan error, 1)
	err := drive(context.Background(), step.MustNewContext(cfg), func(ctx context.Context) error {
		go func() { done <- callOnce("t", `{}`)(ctx) }()
		<-inside
		return nil
	})
	if err == nil {
		t.Error("the run ended while a call was in progress")
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := eventlog.CheckRun(context.Background(), log, "run", eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
		t.Error(err)
	}
}

func TestWhateverDepthAnEffectReturnsTheLogCanBeRead(t *testing.T) {
	value := any(1)
	for depth := range 80 {
		events := recordRun(t, step.Config{}, func(ctx context.Context) error {
			_, _ = step.SideEffect(ctx, "e", func() (any, error) { return value, nil })
			return nil
		})
		for _, ev := range events {
			if _, err := event.Marshal(ev); err != nil {
				t.Errorf("depth %d: %v", depth, err)
			}
		}
		value = []any{value}
	}
}

// sink counts what it is told.
type sink struct {
	step.MetricsSink
	calls, appends []string
}

func (s *sink) ObserveToolCall(name, status, errorType string, _ time.Duration) {
	s.calls = append(s.calls, name+" "+status+" "+errorType)
}
func (s *sink) ObserveEventlogAppend(kind, status string, _ time.Duration) {
	s.appends = append(s.appends, kind+" "+status)
}

func TestMetricsAreToldAboutLiveRunsOnly(t *testing.T) {
	m := &sink{}
	cfg := oneTool("t", func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, tool.ErrFuel })
	cfg.Metrics = m
	events := recordRun(t, cfg, callOnce("t", `{}`))
	mustReplay(t, events, cfg, callOnce("t", `{}`))
	if diff := cmp.Diff([]string{"t error fuel"}, m.calls); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"RunStarted ok", "ToolCallScheduled ok", "ToolCallFailed ok", "RunFailed ok"}, m.appends); diff != "" {
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

func TestMutatedArgumentsNeverReachTheLog(t *testing.T) {
	cfg := oneTool("t", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) {
		copy(in, `{"a":9}`)
		return nil, tool.ErrTransient
	})
	do := func(ctx context.Context) error {
		_, _ = step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "t", Args: json.RawMessage(`{"a":1}`), Idempotent: true, MaxAttempts: 2})
		return nil
	}
	events := recordRun(t, cfg, do)
	first, _ := events[1].AsToolCallScheduled()
	second, _ := events[3].AsToolCallScheduled()
	if !cmp.Equal(first.Args, second.Args) {
		t.Errorf("arguments %x became %x", first.Args, second.Args)
	}
}

func TestWhoOutlivesACallCannotAct(t *testing.T) {
	var left context.Context
	cfg := oneTool("t", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) { left = ctx; return nil, nil })
	do := func(ctx context.Context) error {
		if err := callOnce("t", `{}`)(ctx); err != nil {
			return err
		}
		_, err := step.SideEffect(left, "late", func() (int, error) { t.Error("it happened"); return 0, nil })
		if !errors.Is(err, step.ErrEnded) {
			t.Errorf("a late effect returned %v", err)
		}
		if _, err := step.CallTool(left, step.ToolCall{Name: "t", Args: json.RawMessage(`1`)}); !errors.Is(err, step.ErrEnded) {
			t.Errorf("a late call returned %v", err)
		}
		return nil
	}
	events := recordRun(t, cfg, do)
	mustReplay(t, events, cfg, do)
}

func TestNothingFollowsTheEndOfARun(t *testing.T) {
	var left context.Context
	recordRun(t, step.Config{}, func(ctx context.Context) error { left = ctx; return nil })
	if _, err := step.SideEffect(left, "late", func() (int, error) { return 0, nil }); !errors.Is(err, step.ErrEnded) {
		t.Errorf("got %v", err)
	}
}

func TestOutsideOfARunPanics(t *testing.T) {
	inside := func(ctx context.Context) { // the context that an effect gets is outside
		_, _ = step.Do(ctx, step.Effect{Name: "e"}, func(ctx context.Context, _ string) (int, error) { step.Now(ctx); return 0, nil })
	}
	calls := map[string]func(ctx context.Context){
		"Now":        func(ctx context.Context) { step.Now(ctx) },
		"Random":     func(ctx context.Context) { step.Random(ctx) },
		"Seed":       func(ctx context.Context) { step.Seed(ctx) },
		"SideEffect": func(ctx context.Context) { _, _ = step.SideEffect(ctx, "x", func() (int, error) { return 0, nil }) },
		"CallTool":   func(ctx context.Context) { _, _ = step.CallTool(ctx, step.ToolCall{}) },
		"CallTools":  func(ctx context.Context) { _, _ = step.CallTools(ctx, nil) },
		"an effect":  inside,
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			call(context.Background())
		})
	}
	events := recordRun(t, step.Config{}, func(ctx context.Context) error { inside(ctx); return nil })
	if effect, _ := events[1].AsSideEffectRecorded(); effect.Error == nil || effect.Error.Type != event.ErrorPanic {
		t.Errorf("Now inside an effect recorded %+v", effect)
	}
}

func TestInvalidConfigs(t *testing.T) {
	cases := map[string]step.Config{
		"nothing":                    {},
		"no run id":                  {Log: memlog.New()},
		"no log":                     {RunID: "run"},
		"a replay without a record":  {RunID: "run", Mode: step.ModeReplay},
		"a mode that does not exist": {RunID: "run", Log: memlog.New(), Mode: 7},
		"the record of another run":  {RunID: "run", Mode: step.ModeReplay, Recorded: []event.Event{{RunID: "other", Seq: 1}}},
	}
	for name, cfg := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := step.NewContext(cfg); !errors.Is(err, step.ErrInvalidConfig) {
				t.Errorf("NewContext returned %v", err)
			}
		})
	}
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
