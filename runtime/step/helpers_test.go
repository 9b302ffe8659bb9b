package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// native is a tool made of a function.
type native struct {
	name string
	fn   func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)
}

func (n native) Name() string            { return n.name }
func (n native) Description() string     { return "a tool for tests" }
func (n native) Schema() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }
func (n native) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return n.fn(ctx, input)
}

func newTool(name string, fn func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)) tool.Tool {
	return native{name, fn}
}

// parsing is a tool that takes its attempt and its input parsed.
type parsing struct {
	native
	parsed func(ctx context.Context, a *step.Attempt, input *canon.Doc) (*canon.Doc, error)
}

func (p parsing) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return step.ExecuteJSON(ctx, p, input)
}

func (p parsing) ExecuteParsed(ctx context.Context, a *step.Attempt, input *canon.Doc) (*canon.Doc, error) {
	return p.parsed(ctx, a, input)
}

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// body is what a run does between its start and its end.
type body func(ctx context.Context) error

// drive is the agent of these tests. It ends a run whose body fails with
// RunFailed, and leaves it open when nothing can be recorded any more.
func drive(ctx context.Context, c *step.Context, do body) error {
	ctx = step.WithContext(ctx, c)
	started := event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "test", ToolSchemas: []event.ToolSchemaRef{}}
	if err := step.Emit(ctx, c, event.KindRunStarted, started); err != nil {
		return err
	}
	err := do(ctx)
	if c.Err() != nil {
		return c.Err()
	}
	if errors.Is(err, step.ErrRecordingEnded) {
		return err
	}
	if err != nil {
		return step.Emit(ctx, c, event.KindRunFailed, event.RunFailed{Error: err.Error(), ErrorType: event.ErrorTool})
	}
	return step.Emit(ctx, c, event.KindRunCompleted, event.RunCompleted{FinalText: "done"})
}

// recordRun makes a live run in memory and returns its events, which it has
// checked.
func recordRun(t failer, cfg step.Config, do body) []event.Event {
	t.Helper()
	events := recordOpen(t, cfg, do)
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true}); err != nil {
		t.Fatalf("a live run wrote an invalid log: %v\n%s", err, dump(events))
	}
	return events
}

// recordOpen is recordRun for a run that may stay open.
func recordOpen(t failer, cfg step.Config, do body) []event.Event {
	t.Helper()
	log := store.Memory()
	cfg.Log, cfg.RunID = log, "run"
	if err := drive(context.Background(), step.MustNewContext(cfg), do); err != nil {
		t.Fatalf("live: %v", err)
	}
	events, err := log.Read(context.Background(), "run")
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// replayRun makes the run again and returns how it differs, if it does.
func replayRun(events []event.Event, cfg step.Config, do body) error {
	cfg.Mode, cfg.Recorded, cfg.RunID = step.ModeReplay, events, "run"
	c, err := step.NewContext(cfg)
	if err != nil {
		return err
	}
	err = drive(context.Background(), c, do)
	if wrong := c.Finish(); wrong != nil {
		return wrong
	}
	return err
}

// mustReplay fails the test unless the run replays identically.
func mustReplay(t failer, events []event.Event, cfg step.Config, do body) {
	t.Helper()
	if err := replayRun(events, cfg, do); err != nil {
		t.Fatalf("replay differs: %v\n%s", err, dump(events))
	}
}

// mustDiffer fails the test unless the replay differs at seq with that class.
func mustDiffer(t failer, events []event.Event, cfg step.Config, do body, seq uint64, class step.MismatchClass) *step.MismatchError {
	t.Helper()
	err := replayRun(events, cfg, do)
	var mismatch *step.MismatchError
	if !errors.As(err, &mismatch) {
		t.Fatalf("replay returned %v, want a mismatch at seq %d (%s)\n%s", err, seq, class, dump(events))
	}
	if mismatch.Seq != seq || mismatch.Class != class {
		t.Fatalf("replay differs with %v, want seq %d (%s)\n%s", mismatch, seq, class, dump(events))
	}
	if !errors.Is(err, step.ErrReplayMismatch) {
		t.Fatal("a mismatch is not ErrReplayMismatch")
	}
	return mismatch
}

// dump shows a run for a failing test.
func dump(events []event.Event) string {
	text := ""
	for _, ev := range events {
		line, err := event.ToJSON(ev)
		if err != nil {
			line = []byte(err.Error())
		}
		var short struct {
			Seq     uint64
			Kind    string
			Payload json.RawMessage
		}
		_ = json.Unmarshal(line, &short)
		text += fmt.Sprintf("  %3d %-20s %.300s\n", short.Seq, short.Kind, short.Payload)
	}
	return text
}

// syncLog is a log in memory that knows which events are durable.
type syncLog struct {
	*store.MemoryLog
	all, durable []event.Event
}

func (l *syncLog) Append(ctx context.Context, runID string, ev event.Event) error {
	l.all = append(l.all, ev)
	return l.MemoryLog.Append(ctx, runID, ev)
}

func (l *syncLog) Sync(context.Context, string) error {
	l.durable = l.all
	return nil
}

// record makes a live run on l.
func (l *syncLog) record(t failer, cfg step.Config, do body) []event.Event {
	t.Helper()
	l.MemoryLog = store.Memory()
	cfg.Log, cfg.RunID = l, "run"
	if err := drive(context.Background(), step.MustNewContext(cfg), do); err != nil {
		t.Fatal(err)
	}
	return l.all
}
