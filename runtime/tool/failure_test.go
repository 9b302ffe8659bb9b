package tool_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/runtime/tool"
)

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		kind  abi.ErrorKind
		after time.Duration
	}{
		{"a plain error", io.EOF, abi.ErrorTool, 0},
		{"transient", fmt.Errorf("get: %w", tool.ErrTransient), abi.ErrorTransient, 0},
		{"cancel", fmt.Errorf("get: %w", tool.ToolCancel(io.EOF)), abi.ErrorCancel, 0},
		{"discard", tool.ToolDiscard(io.EOF), abi.ErrorDiscard, 0},
		{"snooze", tool.ToolSnooze(time.Minute, io.EOF), abi.ErrorSnooze, time.Minute},
		{"snooze of less than nothing", tool.ToolSnooze(-1, io.EOF), abi.ErrorSnooze, 0},
		{"the outermost decides", tool.ToolCancel(tool.ToolSnooze(time.Minute, io.EOF)), abi.ErrorCancel, 0},
		{"a mark beats a sentinel", tool.ToolDiscard(tool.ErrTransient), abi.ErrorDiscard, 0},
		{"one of several", errors.Join(io.EOF, tool.ToolCancel(io.EOF)), abi.ErrorCancel, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if kind, after := tool.KindOf(c.err); kind != c.kind || after != c.after {
				t.Errorf("got %s, %v; want %s, %v", kind, after, c.kind, c.after)
			}
		})
	}
}

func TestMarksKeepTheError(t *testing.T) {
	for _, err := range []error{tool.ToolCancel(io.EOF), tool.ToolDiscard(io.EOF), tool.ToolSnooze(1, io.EOF)} {
		var failure *tool.Failure
		if !errors.Is(err, io.EOF) || !errors.As(err, &failure) || err.Error() != "EOF" {
			t.Errorf("%#v is not EOF any more", err)
		}
	}
	if tool.ToolCancel(nil) != nil || tool.ToolDiscard(nil) != nil || tool.ToolSnooze(1, nil) != nil {
		t.Error("nil became an error")
	}
}

func TestRetryDelay(t *testing.T) {
	const most = math.MaxUint64
	for _, c := range []struct {
		jitter    float64
		attempt   int
		low, high time.Duration // for the smallest and the largest bits
	}{
		{0, 1, 0, 0},
		{0, 1000, 0, 0},
		{0.1, 1, 900 * time.Millisecond, 1100 * time.Millisecond},
		{0.1, 2, 14400 * time.Millisecond, 17600 * time.Millisecond},
		{0.5, 3, 40500 * time.Millisecond, 121500 * time.Millisecond},
		{1, 4, 0, 512 * time.Second},
		{0.1, 5, 562500 * time.Millisecond, 687500 * time.Millisecond},
		{0.1, 0, 900 * time.Millisecond, 1100 * time.Millisecond},
		{1, 256, 0, 2 << 32 * time.Second},
		{1, math.MaxInt, 0, 2 << 32 * time.Second},
	} {
		r := tool.RetryConfig{Jitter: c.jitter}
		low, high := r.Delay(c.attempt, 0), r.Delay(c.attempt, most)
		near := func(got, want time.Duration) bool { return (got - want).Abs() <= want/1e9+1 }
		if !near(low, c.low) || !near(high, c.high) {
			t.Errorf("attempt %d with jitter %v: %v to %v, want %v to %v", c.attempt, c.jitter, low, high, c.low, c.high)
		}
	}
}

func TestRetryConfigCheck(t *testing.T) {
	for _, r := range []tool.RetryConfig{{MaxAttempts: -1}, {Jitter: -0.1}, {Jitter: 1.1}, {Jitter: math.NaN()}, {Jitter: math.Inf(1)}} {
		if r.Check() == nil {
			t.Errorf("%+v was accepted", r)
		}
	}
	if err := (tool.RetryConfig{MaxAttempts: 5, Jitter: 0.1}).Check(); err != nil {
		t.Error(err)
	}
	if got := (tool.RetryConfig{}).Attempts(); got != tool.DefaultMaxAttempts {
		t.Errorf("the zero value makes %d attempts", got)
	}
}
