package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// strictLog gives up when its context has ended, as a log on a disk may.
type strictLog struct{ eventlog.EventLog }

func (l strictLog) Append(ctx context.Context, runID string, ev event.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.EventLog.Append(ctx, runID, ev)
}

func TestTheEndOfACancelledRunIsRecorded(t *testing.T) {
	log := store.Memory()
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
		c := step.MustNewContext(step.Config{Log: stuckLog{store.Memory()}, RunID: "run", EmitTimeout: time.Minute})
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
	log := store.Memory()
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
		do := func(ctx context.Context) error {
			_, err := step.SideEffect(ctx, "e", func() (any, error) { return value, nil })
			var failed *step.EffectError
			if err != nil && !errors.As(err, &failed) {
				t.Errorf("depth %d: %v", depth, err)
			}
			return nil
		}
		events := recordRun(t, step.Config{}, do)
		for _, ev := range events {
			if _, err := event.Marshal(ev); err != nil {
				t.Errorf("depth %d: %v", depth, err)
			}
		}
		mustReplay(t, events, step.Config{}, do)
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

func TestNothingFollowsTheEndOfARun(t *testing.T) {
	var left context.Context
	recordRun(t, step.Config{}, func(ctx context.Context) error { left = ctx; return nil })
	if _, err := step.SideEffect(left, "late", func() (int, error) { return 0, nil }); !errors.Is(err, step.ErrEnded) {
		t.Errorf("got %v", err)
	}
}
