package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// cancellable is a run under a context that the test can end; in the replay the
// same function is called again, and ends nothing.
func cancellable(do func(ctx context.Context, cancel context.CancelFunc) error) body {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return do(ctx, cancel)
	}
}

func oneTool(name string, fn func(ctx context.Context, in json.RawMessage) (json.RawMessage, error)) step.Config {
	return step.Config{Tools: step.NewRegistry(newTool(name, fn))}
}

func oneParsing(name string, fn func(ctx context.Context, a *step.Attempt, input *canon.Doc) (*canon.Doc, error)) step.Config {
	return step.Config{Tools: step.NewRegistry(parsing{native{name: name}, fn})}
}

// TestAParsedToolIsCalledWithItsDocument calls one tool inside wrappers of every kind. Those that
// leave its calls alone pass on the planned document itself; inside one that changes them it gets
// what the wrapper made of the document. What is recorded is the same.
func TestAParsedToolIsCalledWithItsDocument(t *testing.T) {
	input, err := canon.Parse([]byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	var got *canon.Doc
	inner := parsing{native{name: "guest"}, func(ctx context.Context, a *step.Attempt, in *canon.Doc) (*canon.Doc, error) {
		got = in
		a.SetProbe(func() step.Meter { return step.Meter{Fuel: 3} })
		step.Now(ctx)
		if info, ok := step.CallInfo(ctx); !ok || !reflect.DeepEqual(info, a.Info(ctx)) {
			t.Errorf("the context has attempt %+v, and the tool is given %+v", info, a.Info(ctx))
		}
		return in, nil
	}}
	allow := func(context.Context, string, json.RawMessage) event.Verdicts { return nil }
	same := func(next func(context.Context, json.RawMessage) (json.RawMessage, error)) func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return next
	}
	for name, w := range map[string]struct {
		tool   tool.Tool
		itself bool
	}{
		"alone":                         {inner, true},
		"guarded":                       {tool.Guarded(inner, allow), true},
		"with a source":                 {tool.WithSource(inner, "test:guest"), true},
		"renamed":                       {tool.Rename(inner, "guest"), true},
		"guarded, renamed and guarded":  {tool.Guarded(tool.Rename(tool.Guarded(inner, allow), "guest"), allow), true},
		"with middleware":               {tool.Wrap(inner, same), false},
		"renamed outside of middleware": {tool.Rename(tool.Wrap(inner, same), "guest"), false},
	} {
		call := func(ctx context.Context) error {
			result, err := step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "guest", Doc: input})
			if string(result) != `{"a":1}` {
				t.Errorf("%s: result %s", name, result)
			}
			return err
		}
		cfg := step.Config{Tools: step.NewRegistry(w.tool)}
		events := recordRun(t, cfg, call)
		if (got == input) != w.itself || string(got.JSON) != `{"a":1}` {
			t.Errorf("%s: the tool is given %p %s, and the call has %p", name, got, got.JSON, input)
		}
		cfg.Tools = step.NewRegistry(inner)
		mustReplay(t, events, cfg, call)
	}
}

// TestAParsedToolMayReturnNothing: as for any tool, that stands for null.
func TestAParsedToolMayReturnNothing(t *testing.T) {
	cfg := oneParsing("quiet", func(context.Context, *step.Attempt, *canon.Doc) (*canon.Doc, error) { return nil, nil })
	call := func(ctx context.Context) error {
		result, err := step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "quiet", Args: json.RawMessage(`{}`)})
		if string(result) != "null" {
			t.Errorf("result %s", result)
		}
		return err
	}
	mustReplay(t, recordRun(t, cfg, call), cfg, call)
}

// outcome returns the last recorded failure of a call.
func outcome(t *testing.T, events []event.Event) event.ToolCallFailed {
	t.Helper()
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Kind == event.KindToolCallFailed {
			failed, err := events[i].AsToolCallFailed()
			if err != nil {
				t.Fatal(err)
			}
			return failed
		}
	}
	t.Fatalf("no call failed\n%s", dump(events))
	return event.ToolCallFailed{}
}

func TestCancellationWhileComputingReplays(t *testing.T) {
	cfg := oneTool("loop", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		cancel := ctx.Value(cancelKey{}).(context.CancelCauseFunc)
		for n := 1; ctx.Err() == nil; n++ {
			step.Now(ctx)
			if n == 5 {
				cancel(errors.New("the user pressed a key")) // which nobody presses in a replay: this context is not the tool's
			}
		}
		return nil, context.Cause(ctx)
	})
	do := func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		return callOnce("loop", `{}`)(context.WithValue(ctx, cancelKey{}, cancel))
	}
	events := recordRun(t, cfg, do)
	if got := outcome(t, events); got.ErrorType != event.ErrorCancelled || got.Error != "the user pressed a key" || !got.Final {
		t.Errorf("recorded %+v", got)
	}
	mustReplay(t, events, cfg, do)
}

func TestDeadlineReplaysWithTheRecordedCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []error
		cfg := oneTool("wait", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			step.Random(ctx)
			<-ctx.Done()
			ends = append(ends, ctx.Err())
			return nil, ctx.Err()
		})
		events := recordRun(t, cfg, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return callOnce("wait", `{}`)(ctx)
		})
		mustReplay(t, events, cfg, callOnce("wait", `{}`))
		if got := outcome(t, events); got.ErrorType != event.ErrorTimeout {
			t.Errorf("recorded %+v", got)
		}
		if ends[0] != context.DeadlineExceeded || ends[1] != context.DeadlineExceeded {
			t.Errorf("the tool saw %v", ends)
		}
	})
}

func TestCallersDeadlineDoesNotReachAReplay(t *testing.T) {
	cfg := oneTool("busy", busy)
	events := recordRun(t, cfg, callOnce("busy", `1`))
	mustReplay(t, events, cfg, func(ctx context.Context) error {
		ctx, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
		defer cancel()
		return callOnce("busy", `1`)(ctx)
	})
}

func TestEffectCutOffByTheWorldReplays(t *testing.T) {
	cfg := oneParsing("fetch", func(ctx context.Context, a *step.Attempt, _ *canon.Doc) (*canon.Doc, error) {
		cancel, _ := ctx.Value(cancelKey{}).(context.CancelFunc)
		_, err := step.SideEffect(ctx, "get", func() (int, error) {
			cancel()
			return 0, errors.New("connection closed")
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, tool.ErrCancelled) {
			t.Errorf("the effect failed with %v", err)
		}
		if ctx.Err() == nil {
			t.Error("the context goes on after an effect that it cut off")
		}
		if _, stopped := a.RecordedStop(); stopped {
			t.Error("RecordedStop although the effect ends the tool")
		}
		return nil, err
	})
	do := cancellable(func(ctx context.Context, cancel context.CancelFunc) error {
		return callOnce("fetch", `{}`)(context.WithValue(ctx, cancelKey{}, cancel))
	})
	events := recordRun(t, cfg, do)
	if got := outcome(t, events); got.ErrorType != event.ErrorCancelled || got.Error != "connection closed" {
		t.Errorf("recorded %+v", got)
	}
	mustReplay(t, events, cfg, do)
}

type cancelKey struct{}

func TestCallsThatWaitWhenTheRunEndsAreNotStarted(t *testing.T) {
	started := 0
	cfg := oneTool("first", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		started++
		if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
			cancel()
		}
		return nil, nil
	})
	cfg.MaxParallelTools = 1
	do := cancellable(func(ctx context.Context, cancel context.CancelFunc) error {
		ctx = context.WithValue(ctx, cancelKey{}, cancel)
		call := step.ToolCall{TurnID: "t", Name: "first", Args: json.RawMessage(`{}`)}
		results, err := step.CallTools(ctx, []step.ToolCall{call, call, call})
		if err != nil {
			return err
		}
		if string(results[0].Result) != "null" || !errors.Is(results[1].Err, context.Canceled) || results[2].Err == nil {
			t.Errorf("results: %+v", results)
		}
		return nil
	})
	events := recordRun(t, cfg, do)
	mustReplay(t, events, cfg, do)
	if started != 2 {
		t.Errorf("tools were started %d times, want once live and once in the replay", started)
	}
	if got := outcome(t, events).Error; got != "not started: context canceled" {
		t.Errorf("recorded %q", got)
	}
}

func TestRetries(t *testing.T) {
	cases := []struct {
		name     string
		call     step.ToolCall
		fails    int
		err      error
		attempts int
		ok       bool
	}{
		{"transient and idempotent", step.ToolCall{Idempotent: true, MaxAttempts: 3}, 2, tool.ErrTransient, 3, true},
		{"attempts spent", step.ToolCall{Idempotent: true, MaxAttempts: 2}, 5, tool.ErrTransient, 2, false},
		{"not idempotent", step.ToolCall{MaxAttempts: 3}, 1, tool.ErrTransient, 1, false},
		{"no attempts asked for", step.ToolCall{Idempotent: true}, 1, tool.ErrTransient, 1, false},
		{"not transient", step.ToolCall{Idempotent: true, MaxAttempts: 3}, 1, errors.New("no"), 1, false},
		{"a transient effect", step.ToolCall{Idempotent: true, MaxAttempts: 3}, 1, nil, 2, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var keys []string
			cfg := oneTool("flaky", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
				info, _ := step.CallInfo(ctx)
				_, err := step.Do(ctx, step.Effect{Name: "pay", Unsafe: true}, func(_ context.Context, key string) (string, error) {
					keys = append(keys, key)
					if c.err == nil && int(info.Attempt) <= c.fails {
						return "", tool.ErrTransient
					}
					return key, nil
				})
				if err == nil && int(info.Attempt) <= c.fails {
					err = c.err
				}
				return nil, err
			})
			var result error
			do := func(ctx context.Context) error {
				call := c.call
				call.TurnID, call.Name, call.Args = "t", "flaky", json.RawMessage(`{}`)
				call.Backoff = func(int) time.Duration { return 0 }
				_, result = step.CallTool(ctx, call)
				return nil
			}
			events := recordRun(t, cfg, do)
			if (result == nil) != c.ok || len(keys) != c.attempts {
				t.Errorf("%d attempts ended with %v, want %d\n%s", len(keys), result, c.attempts, dump(events))
			}
			mustReplay(t, events, cfg, do)
			if len(keys) != c.attempts {
				t.Error("the replay acted")
			}
			for _, key := range keys {
				if key != keys[0] || len(key) != 32 {
					t.Errorf("keys of the same effect: %q", keys)
				}
			}
		})
	}
}

func TestWaitBeforeARetryEndsWithTheRun(t *testing.T) {
	cfg := oneTool("flaky", func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, tool.ErrTransient })
	do := cancellable(func(ctx context.Context, cancel context.CancelFunc) error {
		_, err := step.CallTool(ctx, step.ToolCall{
			TurnID: "t", Name: "flaky", Args: json.RawMessage(`{}`), Idempotent: true, MaxAttempts: 2,
			Backoff: func(int) time.Duration { cancel(); return time.Hour },
		})
		return err
	})
	events := recordRun(t, cfg, do)
	if got := outcome(t, events); got.Attempt != 2 || got.ErrorType != event.ErrorCancelled || !got.Final {
		t.Errorf("recorded %+v", got)
	}
	mustReplay(t, events, cfg, do)
}

func TestDefaultBackoff(t *testing.T) {
	cases := []struct {
		attempt  int
		from, to time.Duration
	}{
		{1, 100 * time.Millisecond, 125 * time.Millisecond},
		{2, 200 * time.Millisecond, 250 * time.Millisecond},
		{7, 6400 * time.Millisecond, 8 * time.Second},
		{8, 10 * time.Second, 12500 * time.Millisecond},
		{1 << 30, 10 * time.Second, 12500 * time.Millisecond},
	}
	for _, c := range cases {
		low, high := step.DefaultBackoff(c.attempt, 0), step.DefaultBackoff(c.attempt, 1<<64-1)
		if low != c.from || high < c.to-time.Microsecond || high > c.to {
			t.Errorf("attempt %d waits %v to %v, want %v to %v", c.attempt, low, high, c.from, c.to)
		}
	}
}

// sandboxed is a tool that computes in units of fuel.
type sandboxed struct {
	native
	fuel uint64
}

func (s *sandboxed) Sandbox() *event.Sandbox { return &event.Sandbox{ABI: "test"} }

func (s *sandboxed) ExecuteParsed(ctx context.Context, a *step.Attempt, _ *canon.Doc) (*canon.Doc, error) {
	meter := step.Meter{}
	a.SetProbe(func() step.Meter { return meter })
	stop, stopped := a.RecordedStop()
	for meter.Fuel = 1; ; meter.Fuel++ {
		if meter.Fuel == 10 {
			step.Now(ctx)
		}
		if stopped && meter.Fuel == stop.Fuel || !stopped && meter.Fuel == s.fuel {
			meter.Log = "stopped"
			return nil, tool.ErrTimeout
		}
	}
}

func TestSandboxedToolStopsAtTheRecordedFuel(t *testing.T) {
	guest := &sandboxed{native: native{name: "guest"}, fuel: 25}
	cfg := step.Config{Tools: step.NewRegistry(guest)}
	events := recordRun(t, cfg, callOnce("guest", `{}`))
	want := event.ToolCallFailed{ErrorType: event.ErrorTimeout, Error: "tool: deadline exceeded", Attempt: 1, Final: true,
		Meter: event.Meter{Fuel: 25, Log: "stopped"}}
	got := outcome(t, events)
	want.CallID, want.DurationMs = got.CallID, got.DurationMs
	if !reflect.DeepEqual(got, want) {
		t.Errorf("recorded %+v, want %+v", got, want)
	}
	if effect, _ := events[2].AsSideEffectRecorded(); effect.Fuel != 10 {
		t.Errorf("the effect records fuel %d, want 10", effect.Fuel)
	}
	guest.fuel = 0 // a replay has no clock
	mustReplay(t, events, cfg, callOnce("guest", `{}`))
}

func TestMeterIsComparedUnlessIgnored(t *testing.T) {
	extra := uint64(0)
	cfg := oneParsing("guest", func(ctx context.Context, a *step.Attempt, _ *canon.Doc) (*canon.Doc, error) {
		a.SetProbe(func() step.Meter { return step.Meter{Fuel: 7 + extra, PeakMemory: 65536 + extra} })
		step.Now(ctx)
		return nil, nil
	})
	events := recordRun(t, cfg, callOnce("guest", `{}`))
	extra = 1
	m := mustDiffer(t, events, cfg, callOnce("guest", `{}`), 3, step.MismatchPayload)
	if m.Field != "fuel" || m.Expected != "7" || m.Got != "8" {
		t.Errorf("%+v", m)
	}
	cfg.IgnoreMeter = true
	mustReplay(t, events, cfg, callOnce("guest", `{}`))
}

func TestUnsafeEffectIsAnnouncedDurably(t *testing.T) {
	log := &syncLog{}
	cfg := oneTool("pay", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		_, err := step.Do(ctx, step.Effect{Name: "pay", Request: []byte("10"), Unsafe: true}, func(_ context.Context, key string) (int, error) {
			last := log.durable[len(log.durable)-1]
			effect, err := last.AsSideEffectRecorded()
			if err != nil || effect.Name != event.EffectIntent {
				t.Errorf("the last durable event is %v", last.Kind)
			}
			var intent event.Intent
			if err := canon.Unmarshal(effect.Value, &intent); err != nil || intent != (event.Intent{Name: "pay", Key: key}) {
				t.Errorf("intent %+v, %v; key %q", intent, err, key)
			}
			return 1, nil
		})
		return nil, err
	})
	events := log.record(t, cfg, callOnce("pay", `{}`))
	mustReplay(t, events, cfg, callOnce("pay", `{}`))
	mustReplayOpen(t, events[:3], cfg, callOnce("pay", `{}`)) // the process died while paying
}

func TestAnEffectRecordsItsDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := oneTool("fetch", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			step.Now(ctx)
			_, err := step.SideEffect(ctx, "get", func() (int, error) {
				time.Sleep(1500 * time.Microsecond)
				return 0, errors.New("connection closed")
			})
			return nil, err
		})
		events := recordRun(t, cfg, callOnce("fetch", `{}`))
		var durations []int64
		for _, ev := range events {
			if ev.Kind == event.KindSideEffectRecorded {
				p, err := ev.AsSideEffectRecorded()
				if err != nil {
					t.Fatal(err)
				}
				durations = append(durations, p.DurationUs)
			}
		}
		if len(durations) != 2 || durations[0] != 0 || durations[1] != 1500 {
			t.Errorf("now and get took %d microseconds", durations)
		}
		mustReplay(t, events, cfg, callOnce("fetch", `{}`))
	})
}
