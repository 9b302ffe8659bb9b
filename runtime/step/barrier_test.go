package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
)

// breakingLog is a log whose disk breaks: the first calls of Append and of Sync succeed, and none after
// them. The world asks it whether it may act.
type breakingLog struct {
	*store.MemoryLog
	appends, syncs int // that still succeed
	broken         bool
	acted          int
}

var errDiskBroken = errors.New("the disk is broken")

func (l *breakingLog) use(left *int) error {
	if *left--; *left < 0 {
		l.broken = true
	}
	if l.broken {
		return errDiskBroken
	}
	return nil
}

func (l *breakingLog) Append(ctx context.Context, runID string, ev event.Event) error {
	if err := l.use(&l.appends); err != nil {
		return err
	}
	return l.MemoryLog.Append(ctx, runID, ev)
}

func (l *breakingLog) Sync(context.Context, string) error { return l.use(&l.syncs) }

// act is what the world sees.
func (l *breakingLog) act(t *testing.T, what string) {
	l.acted++
	if l.broken {
		t.Errorf("%s although the log had failed", what)
	}
}

// guestTool is a tool in a sandbox: the world sees what its effects do, and not that it runs.
type guestTool struct{ native }

func (guestTool) Sandbox() *event.Sandbox { return &event.Sandbox{ABI: "test"} }

// silentModel is a provider that fails each request.
type silentModel struct{ asked func() }

func (silentModel) Info() provider.Info { return provider.Info{ID: "silent", APIVersion: "1"} }
func (m silentModel) Stream(context.Context, *provider.Request) (provider.EventStream, error) {
	m.asked()
	return nil, provider.ErrAuth
}

// TestNothingLeavesTheHostAfterItsLogHasFailed breaks the disk at each append and each barrier of
// a run, and watches what the world sees: a native tool that runs, an effect of either kind, a
// request to a model.
func TestNothingLeavesTheHostAfterItsLogHasFailed(t *testing.T) {
	effect := func(l *breakingLog, unsafe bool) func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
			for n := range 2 {
				_, err := step.Do(ctx, step.Effect{Name: fmt.Sprint("pay ", n), Unsafe: unsafe}, func(context.Context, string) (int, error) {
					l.act(t, "money was paid")
					return 1, nil
				})
				if err != nil {
					return nil, err
				}
			}
			return nil, nil
		}
	}
	runs := []struct {
		name  string
		world int // what the world sees of a whole run
		make  func(l *breakingLog) (step.Config, body)
	}{
		{"effects of a guest", 2, func(l *breakingLog) (step.Config, body) {
			return step.Config{Tools: step.NewRegistry(guestTool{native{"guest", effect(l, false)}})}, callOnce("guest", `{}`)
		}},
		{"unsafe effects of a guest", 2, func(l *breakingLog) (step.Config, body) {
			return step.Config{Tools: step.NewRegistry(guestTool{native{"guest", effect(l, true)}})}, callOnce("guest", `{}`)
		}},
		{"a native tool", 2, func(l *breakingLog) (step.Config, body) {
			cfg := oneTool("native", func(context.Context, json.RawMessage) (json.RawMessage, error) {
				l.act(t, "a native tool ran")
				return nil, nil
			})
			return cfg, func(ctx context.Context) error {
				return errors.Join(callOnce("native", `{}`)(ctx), callOnce("native", `{}`)(ctx))
			}
		}},
		{"calls at the same time", 4, func(l *breakingLog) (step.Config, body) {
			cfg := oneTool("native", func(context.Context, json.RawMessage) (json.RawMessage, error) {
				l.act(t, "a native tool ran")
				return nil, nil
			})
			cfg.MaxParallelTools = 1
			return cfg, func(ctx context.Context) error {
				calls := make([]step.ToolCall, 4)
				for n := range calls {
					calls[n] = step.ToolCall{TurnID: "t", Name: "native", Args: json.RawMessage(`{}`)}
				}
				_, err := step.CallTools(ctx, calls)
				return err
			}
		}},
		{"a model", 1, func(l *breakingLog) (step.Config, body) {
			cfg := step.Config{Provider: silentModel{func() { l.act(t, "a model was asked") }}}
			return cfg, func(ctx context.Context) error {
				_, err := step.LLMCall(ctx, &provider.Request{Model: "m", Messages: []provider.Message{{Role: provider.RoleUser, Content: "hello"}}})
				return err
			}
		}},
	}
	const enough = 100
	for _, run := range runs {
		t.Run(run.name, func(t *testing.T) {
			makeRun := func(l *breakingLog) error {
				l.MemoryLog = store.Memory()
				cfg, do := run.make(l)
				cfg.Log, cfg.RunID = l, "run"
				return drive(t.Context(), step.MustNewContext(cfg), do)
			}
			whole := &breakingLog{appends: enough, syncs: enough}
			if err := makeRun(whole); err != nil || whole.acted != run.world {
				t.Fatalf("on a good disk the world saw %d acts, want %d: %v", whole.acted, run.world, err)
			}
			if whole.syncs == enough {
				t.Error("no barrier stands before what the world sees")
			}
			for n := range enough - whole.appends {
				if err := makeRun(&breakingLog{appends: n, syncs: enough}); !errors.Is(err, errDiskBroken) {
					t.Errorf("the run ended with %v after append %d had failed", err, n)
				}
			}
			for n := range enough - whole.syncs {
				if err := makeRun(&breakingLog{appends: enough, syncs: n}); !errors.Is(err, errDiskBroken) {
					t.Errorf("the run ended with %v after barrier %d had failed", err, n)
				}
			}
		})
	}
}
