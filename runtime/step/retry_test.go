package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// failing is a tool that fails with the given errors, one after another, and
// then succeeds. The number of the attempt says which is due.
func failing(errs ...error) step.Config {
	return oneTool("t", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		if info, _ := step.CallInfo(ctx); int(info.Attempt) <= len(errs) {
			return nil, errs[info.Attempt-1]
		}
		return nil, nil
	})
}

// waits returns the whole seconds between a failed attempt and the next.
func waits(events []event.Event) []int {
	var all []int
	for i, ev := range events[1:] {
		if ev.Kind == event.KindToolCallScheduled && events[i].Kind == event.KindToolCallFailed {
			all = append(all, int(time.Duration(ev.Timestamp-events[i].Timestamp).Round(time.Second)/time.Second))
		}
	}
	return all
}

func TestRetryPolicy(t *testing.T) {
	plain := errors.New("no")
	snooze := tool.ToolSnooze(30*time.Second, plain)
	cases := []struct {
		name  string
		retry tool.RetryConfig
		errs  []error
		want  []int // the waits, one before each further attempt
		err   error // of the last attempt
	}{
		{"the default is one retry, at once", tool.RetryConfig{}, []error{plain}, []int{0}, nil},
		{"the default gives up after two", tool.RetryConfig{}, []error{plain, plain, plain}, []int{0}, plain},
		{"one attempt", tool.RetryConfig{MaxAttempts: 1}, []error{plain}, nil, plain},
		{"the fourth power", tool.RetryConfig{MaxAttempts: 5, Jitter: 1e-6}, []error{plain, plain, plain, plain}, []int{1, 16, 81, 256}, nil},
		{"transient is an attempt", tool.RetryConfig{}, []error{tool.ErrTransient, tool.ErrTransient}, []int{0}, tool.ErrTransient},
		{"cancelled by the tool", tool.RetryConfig{MaxAttempts: 5}, []error{tool.ToolCancel(plain)}, nil, plain},
		{"discarded by the tool", tool.RetryConfig{MaxAttempts: 5}, []error{fmt.Errorf("t: %w", tool.ToolDiscard(plain))}, nil, plain},
		{"snoozes are no attempts", tool.RetryConfig{}, []error{snooze, snooze, plain, snooze, snooze}, []int{30, 30, 0, 30, 30}, nil},
		{"a snooze within one attempt", tool.RetryConfig{MaxAttempts: 1}, []error{snooze, snooze, snooze}, []int{30, 30, 30}, nil},
		{"snoozes do not lengthen delays", tool.RetryConfig{Jitter: 1e-6}, []error{snooze, snooze, plain}, []int{30, 30, 1}, nil},
		{"as many snoozes as are allowed", tool.RetryConfig{MaxSnoozes: 2}, []error{snooze, snooze, snooze}, []int{30, 30}, plain},
		{"as long a time as is allowed", tool.RetryConfig{MaxSnoozeTime: time.Minute}, []error{snooze, snooze, snooze}, []int{30, 30}, plain},
		{"a snooze beyond the time", tool.RetryConfig{}, []error{tool.ToolSnooze(time.Hour+1, plain)}, nil, plain},
		{"a snooze of no time", tool.RetryConfig{}, []error{tool.ToolSnooze(0, plain)}, []int{1}, nil},
		{"a panic", tool.RetryConfig{}, []error{tool.ErrPanicked}, nil, tool.ErrPanicked},
		{"a limit", tool.RetryConfig{}, []error{tool.ErrFuel}, nil, tool.ErrFuel},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := failing(c.errs...)
				var got error
				do := func(ctx context.Context) error {
					_, got = step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "t", Args: json.RawMessage(`{}`), Retry: &c.retry})
					return nil
				}
				events := recordRun(t, cfg, do)
				if diff := cmp.Diff(c.want, waits(events)); diff != "" || !errors.Is(got, c.err) {
					t.Errorf("ended with %v, want %v; waits (-want +got):\n%s", got, c.err, diff)
				}
				before := time.Now()
				mustReplay(t, events, cfg, do)
				if waited := time.Since(before); waited != 0 || !errors.Is(got, c.err) {
					t.Errorf("the replay waited %v and ended with %v", waited, got)
				}
			})
		})
	}
}

func TestWithoutAPolicyOnlyWhatIsTransientIsRetried(t *testing.T) {
	cases := map[string]struct {
		err      error
		attempts int
	}{
		"transient":                {tool.ErrTransient, 2},
		"cancelled although":       {tool.ToolCancel(tool.ErrTransient), 1},
		"discarded although":       {tool.ToolDiscard(tool.ErrTransient), 1},
		"a snooze is a failure":    {tool.ToolSnooze(time.Second, io.EOF), 1},
		"plain":                    {io.EOF, 1},
		"a snooze of what may end": {tool.ToolSnooze(time.Second, tool.ErrTransient), 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := failing(c.err)
			do := func(ctx context.Context) error {
				_, _ = step.CallTool(ctx, step.ToolCall{
					TurnID: "t", Name: "t", Args: json.RawMessage(`{}`), Idempotent: true, MaxAttempts: 2,
					Backoff: func(int) time.Duration { return 0 },
				})
				return nil
			}
			events := recordRun(t, cfg, do)
			if got := len(waits(events)) + 1; got != c.attempts {
				t.Errorf("%d attempts, want %d", got, c.attempts)
			}
			mustReplay(t, events, cfg, do)
		})
	}
}

func TestUnknownToolIsNotRetried(t *testing.T) {
	do := func(ctx context.Context) error {
		_, err := step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "nobody", Args: json.RawMessage(`{}`), Retry: &tool.RetryConfig{}})
		return err
	}
	if events := recordRun(t, step.Config{}, do); len(waits(events)) != 0 {
		t.Error(dump(events))
	}
}

func TestInvalidPolicyIsAnInvalidCall(t *testing.T) {
	recordRun(t, step.Config{}, func(ctx context.Context) error {
		_, err := step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "t", Args: json.RawMessage(`{}`), Retry: &tool.RetryConfig{Jitter: 2}})
		if !errors.Is(err, step.ErrInvalidCall) {
			t.Errorf("got %v", err)
		}
		return nil
	})
}

// TestSnoozesAreBounded has a tool that always snoozes. How often it may is up to the
// program that makes the run: a replay with other bounds, or with the record of a
// program without any, follows the recording.
func TestSnoozesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := oneTool("t", func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, tool.ToolSnooze(0, io.EOF)
		})
		do := func(retry tool.RetryConfig) body {
			return func(ctx context.Context) error {
				_, err := step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "t", Args: json.RawMessage(`{}`), Retry: &retry})
				return err
			}
		}
		events := recordRun(t, cfg, do(tool.RetryConfig{}))
		if got := outcome(t, events); got.Attempt != tool.DefaultMaxSnoozes+1 || !got.Final {
			t.Errorf("recorded %+v", got)
		}
		mustReplay(t, events, cfg, do(tool.RetryConfig{}))
		mustReplay(t, events, cfg, do(tool.RetryConfig{MaxSnoozes: 2}))
		mustReplay(t, events, cfg, do(tool.RetryConfig{MaxSnoozes: 1000}))
	})
}

func TestSnoozeEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snooze := tool.ToolSnooze(time.Hour, io.EOF)
		cfg := failing(snooze, snooze, snooze)
		do := func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 90*time.Minute)
			defer cancel()
			_, err := step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "t", Args: json.RawMessage(`{}`), Retry: &tool.RetryConfig{MaxSnoozeTime: 24 * time.Hour}})
			return err
		}
		events := recordRun(t, cfg, do)
		if got := outcome(t, events); got.Attempt != 3 || got.ErrorType != event.ErrorTimeout || !got.Final {
			t.Errorf("recorded %+v", got)
		}
		mustReplay(t, events, cfg, do)
	})
}

func TestEffectsKeepWhatIsToBeDone(t *testing.T) {
	for _, c := range []struct {
		err   error
		kind  abi.ErrorKind
		after time.Duration
	}{
		{io.EOF, abi.ErrorTool, 0},
		{tool.ErrTransient, abi.ErrorTransient, 0},
		{tool.ToolCancel(io.EOF), abi.ErrorCancel, 0},
		{tool.ToolDiscard(io.EOF), abi.ErrorDiscard, 0},
		{tool.ToolSnooze(1500*time.Millisecond, io.EOF), abi.ErrorSnooze, 1500 * time.Millisecond},
		{tool.ToolSnooze(time.Second, tool.ErrLimit), abi.ErrorTool, 0}, // a limit is a limit
	} {
		t.Run(fmt.Sprint(c.kind, c.after), func(t *testing.T) {
			do := func(ctx context.Context) error {
				_, err := step.SideEffect(ctx, "ask", func() (int, error) { return 0, c.err })
				if kind, after := tool.KindOf(fmt.Errorf("t: %w", err)); kind != c.kind || after != c.after {
					t.Errorf("got %s, %v; want %s, %v", kind, after, c.kind, c.after)
				}
				return nil
			}
			events := recordRun(t, step.Config{}, do)
			mustReplay(t, events, step.Config{}, do)
		})
	}
}
