package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/runtime/step"
)

// The tests of this file are the defects that were found in the runtime whose
// format this project shares. Each of them was a run that did not replay, or
// that did not say what had happened.

// callOnce is a run of one call.
func callOnce(name, args string) body {
	return func(ctx context.Context) error {
		_, err := step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: name, Args: json.RawMessage(args)})
		return err
	}
}

func TestArgumentsInAnySpellingReplay(t *testing.T) {
	cases := map[string]string{
		"keys out of order":            `{"b":1,"a":2}`,
		"spaces":                       `{ "a" : 2 }`,
		"characters that HTML escapes": `{"a":"<b>&"}`,
		"escapes that are not needed":  `{"a":"\u0041\/"}`,
		"a float that is integral":     `{"a":1.0}`,
		"an integer beyond int64":      `{"a":18446744073709551615}`,
		"an integer beyond uint64":     `{"a":123456789012345678901234567890}`,
		"an exponent":                  `{"a":1e3}`,
	}
	for name, args := range cases {
		t.Run(name, func(t *testing.T) {
			var saw []string
			cfg := step.Config{Tools: step.NewRegistry(newTool("echo", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) {
				saw = append(saw, string(in))
				return in, nil
			}))}
			events := recordRun(t, cfg, callOnce("echo", args))
			mustReplay(t, events, cfg, callOnce("echo", args))
			if saw[0] != saw[1] {
				t.Errorf("the tool saw %s live and %s in the replay", saw[0], saw[1])
			}
		})
	}
}

func TestParallelToolsWithEffectsReplay(t *testing.T) {
	runs := treetest.Count(50, 200, 1_000)
	for _, n := range []int{2, 4, 8} {
		t.Run(fmt.Sprintf("%d tools", n), func(t *testing.T) {
			cfg := step.Config{Tools: step.NewRegistry(newTool("busy", busy))}
			interleaved := 0
			for range runs {
				events := recordRun(t, cfg, fanOut(n))
				mustReplay(t, events, cfg, fanOut(n))
				if isInterleaved(events) {
					interleaved++
				}
			}
			t.Logf("%d of %d runs were interleaved", interleaved, runs)
		})
	}
}

// busy reads, draws and acts.
func busy(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
	now, random := step.Now(ctx), step.Random(ctx)
	text, err := step.SideEffect(ctx, "ask", func() (string, error) {
		runtime.Gosched() // the world takes its time
		return "answer to " + string(in), nil
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"now": now, "random": random, "text": text})
}

func fanOut(n int) body {
	return func(ctx context.Context) error {
		calls := make([]step.ToolCall, n)
		for i := range calls {
			calls[i] = step.ToolCall{TurnID: "t", Name: "busy", Args: json.RawMessage(fmt.Sprint(i))}
		}
		_, err := step.CallTools(ctx, calls)
		return err
	}
}

// isInterleaved reports whether an effect of one call is recorded between two
// events of another.
func isInterleaved(events []event.Event) bool {
	last, seen := "", map[string]bool{}
	for _, ev := range events {
		effect, err := ev.AsSideEffectRecorded()
		if err != nil {
			continue
		}
		if effect.CallID != last && seen[effect.CallID] {
			return true
		}
		last, seen[effect.CallID] = effect.CallID, true
	}
	return false
}

func TestFailedEffectReplaysAsTheSameFailure(t *testing.T) {
	var live []error
	asked := 0
	cfg := step.Config{Tools: step.NewRegistry(newTool("fetch", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		_, err := step.SideEffect(ctx, "get", func() (string, error) { asked++; return "", errors.New("connection refused") })
		live = append(live, err)
		return nil, fmt.Errorf("fetch: %w", err)
	}))}
	events := recordRun(t, cfg, callOnce("fetch", `{}`))
	mustReplay(t, events, cfg, callOnce("fetch", `{}`))
	if asked != 1 {
		t.Errorf("the effect happened %d times, want once", asked)
	}
	if diff := cmp.Diff(live[0], live[1]); diff != "" {
		t.Errorf("live and replayed failure differ:\n%s", diff)
	}
}

func TestLiveValueIsTheDecodedRecord(t *testing.T) {
	type inner struct {
		Name    string
		private int
	}
	effects := map[string]func(ctx context.Context) (any, error){
		"a time with a monotonic reading": func(ctx context.Context) (any, error) {
			return step.SideEffect(ctx, "e", func() (time.Time, error) { return time.Now(), nil })
		},
		"a map in an any": func(ctx context.Context) (any, error) {
			return step.SideEffect(ctx, "e", func() (any, error) { return map[string]any{"a": []any{1, "x", 2.5}}, nil })
		},
		"a struct with an unexported field": func(ctx context.Context) (any, error) {
			v, err := step.SideEffect(ctx, "e", func() (inner, error) { return inner{"a", 7}, nil })
			return fmt.Sprintf("%+v", v), err
		},
		"not a number": func(ctx context.Context) (any, error) {
			v, err := step.SideEffect(ctx, "e", func() (float64, error) { return math.Float64frombits(0x7ff8000000000123), nil })
			return math.Float64bits(v), err
		},
		"nil bytes": func(ctx context.Context) (any, error) {
			return step.SideEffect(ctx, "e", func() ([]byte, error) { return nil, nil })
		},
		"empty bytes": func(ctx context.Context) (any, error) {
			return step.SideEffect(ctx, "e", func() ([]byte, error) { return []byte{}, nil })
		},
		"the clock": func(ctx context.Context) (any, error) { return fmt.Sprint(step.Now(ctx)), nil },
		"big uint64": func(ctx context.Context) (any, error) {
			return step.SideEffect(ctx, "e", func() (uint64, error) { return math.MaxUint64, nil })
		},
	}
	for name, effect := range effects {
		t.Run(name, func(t *testing.T) {
			var got []any
			do := func(ctx context.Context) error {
				v, err := effect(ctx)
				got = append(got, v)
				if _, err := json.Marshal(v); err != nil {
					t.Errorf("the value cannot be marshalled: %v", err)
				}
				return err
			}
			events := recordRun(t, step.Config{}, do)
			mustReplay(t, events, step.Config{}, do)
			if diff := cmp.Diff(got[0], got[1]); diff != "" {
				t.Errorf("live and replayed value differ:\n%s", diff)
			}
		})
	}
}

func TestMismatchIsFoundWithErrorsAs(t *testing.T) {
	cfg := step.Config{Tools: step.NewRegistry(newTool("clock", busy))}
	events := recordRun(t, cfg, callOnce("clock", `1`))
	other := step.Config{Tools: step.NewRegistry(newTool("clock", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		defer func() { _ = recover() }() // a tool that hides what went wrong
		step.Random(ctx)
		return json.RawMessage(`1`), nil
	}))}
	m := mustDiffer(t, events, other, callOnce("clock", `1`), 3, step.MismatchPayload)
	want := &step.MismatchError{
		Seq: 3, Kind: event.KindSideEffectRecorded, ExpectedKind: event.KindSideEffectRecorded, Class: step.MismatchPayload,
		Reason: "SideEffectRecorded differs", Field: "name", Expected: "now", Got: "rand",
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
}

func TestRandomBeyondInt64KeepsItsBits(t *testing.T) {
	const big = uint64(1)<<63 + 1
	cfg := step.Config{Tools: step.NewRegistry(newTool("big", func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return json.Marshal(big)
	}))}
	var result string
	do := func(ctx context.Context) error {
		out, err := step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "big", Args: json.RawMessage(`{}`)})
		result = string(out)
		return err
	}
	events := recordRun(t, cfg, do)
	mustReplay(t, events, cfg, do)
	if result != "9223372036854775809" {
		t.Errorf("the result became %s", result)
	}
}

// failingLog fails after a number of appends.
type failingLog struct {
	eventlog.EventLog
	left int
	err  error
}

func (l *failingLog) Append(ctx context.Context, runID string, ev event.Event) error {
	if l.left--; l.left < 0 {
		return l.err
	}
	return l.EventLog.Append(ctx, runID, ev)
}

func TestFailureOfTheLogIsNotAFailureOfTheTool(t *testing.T) {
	full := errors.New("disk is full")
	for after := 1; after <= 5; after++ {
		t.Run(fmt.Sprintf("after %d events", after), func(t *testing.T) {
			log := &failingLog{EventLog: store.Memory(), left: after, err: full}
			c := step.MustNewContext(step.Config{Log: log, RunID: "run", Tools: step.NewRegistry(newTool("busy", busy))})
			err := drive(context.Background(), c, callOnce("busy", `1`))
			if !errors.Is(err, full) || !errors.Is(c.Err(), full) {
				t.Errorf("drive returned %v, Err %v; want the log's error", err, c.Err())
			}
			events, err := log.Read(context.Background(), "run")
			if err != nil {
				t.Fatal(err)
			}
			if report, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil || !report.Open || report.Events != uint64(after) {
				t.Errorf("the log holds %+v, %v; want an open run of %d events", report, err, after)
			}
			mustReplayOpen(t, events, step.Config{Tools: step.NewRegistry(newTool("busy", busy))}, callOnce("busy", `1`))
		})
	}
}

// mustReplayOpen fails the test unless the replay runs to the end of an open
// recording and no further.
func mustReplayOpen(t failer, events []event.Event, cfg step.Config, do body) {
	t.Helper()
	if err := replayRun(events, cfg, do); !errors.Is(err, step.ErrRecordingEnded) {
		t.Fatalf("replay of an open run returned %v, want ErrRecordingEnded\n%s", err, dump(events))
	}
}

// A call without an outcome may have been one that never ends. Its replay ends where
// the record does: before the tool, or behind its last effect.
func TestNothingIsExecutedBehindTheEndOfARecording(t *testing.T) {
	log := store.Memory()
	c := step.MustNewContext(step.Config{Log: log, RunID: "run", Tools: step.NewRegistry(newTool("busy", busy))})
	if err := drive(context.Background(), c, callOnce("busy", `1`)); err != nil {
		t.Fatal(err)
	}
	whole, err := log.Read(context.Background(), "run")
	if err != nil {
		t.Fatal(err)
	}
	for seq := 2; whole[seq-1].Kind != event.KindToolCallCompleted; seq++ {
		effects, recorded := 0, seq-2
		counting := func(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
			out, err := busy(ctx, in)
			if err == nil {
				t.Errorf("%d events: the tool was executed to its end", seq)
			}
			return out, err
		}
		cfg := step.Config{Tools: step.NewRegistry(newTool("busy", counting)), Matched: func(ev event.Event) {
			if ev.Kind == event.KindSideEffectRecorded {
				effects++
			}
		}}
		mustReplayOpen(t, whole[:seq], cfg, callOnce("busy", `1`))
		if effects != recorded {
			t.Errorf("%d events: %d of %d effects were compared", seq, effects, recorded)
		}
	}
}

func TestRecordedErrorTextIsValidAndBounded(t *testing.T) {
	cases := map[string]string{
		"not UTF-8":             "bad \xff\xfe text",
		"long":                  strings.Repeat("long ", 10_000),
		"long, cut in a rune":   "x" + strings.Repeat("é", 10_000),
		"long and never UTF-8":  strings.Repeat("a\xff", 20_000),
		"empty":                 "",
		"a cut-off rune at end": "caf\xc3",
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := step.Config{Tools: step.NewRegistry(newTool("fail", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
				_, err := step.SideEffect(ctx, "e", func() (int, error) { return 0, errors.New(text) })
				return nil, errors.New(text + err.Error())
			}))}
			events := recordRun(t, cfg, callOnce("fail", `{}`))
			mustReplay(t, events, cfg, callOnce("fail", `{}`))
			failed, err := events[3].AsToolCallFailed()
			if err != nil || len(failed.Error) > 16<<10 {
				t.Errorf("recorded %d bytes, %v", len(failed.Error), err)
			}
		})
	}
}
