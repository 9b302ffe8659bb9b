package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
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
		{"a process that died", "", tool.ErrLost, nil, event.ErrorLost, tool.ErrLost},
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
		"Do":         inside,
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.HasPrefix(said, "step: "+name+" outside of a run: ") {
					t.Errorf("it panicked with %q", said)
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
		"no run id":                  {Log: store.Memory()},
		"no log":                     {RunID: "run"},
		"a replay without a record":  {RunID: "run", Mode: step.ModeReplay},
		"a mode that does not exist": {RunID: "run", Log: store.Memory(), Mode: 7},
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
