package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
)

// Errors of a run that cannot be resumed.
var (
	// ErrRunNotFound: the log has no such run.
	ErrRunNotFound = eventlog.ErrRunNotFound

	// ErrRunAlreadyTerminal: the run has come to its end.
	ErrRunAlreadyTerminal = errors.New("starling: run already terminal")

	// ErrPartialToolCall: calls have no outcome, and were not to be made again.
	ErrPartialToolCall = errors.New("starling: run has tool calls without an outcome")

	// ErrRunInUse: somebody else has written to the run.
	ErrRunInUse = errors.New("starling: run in use")

	// ErrSchemaVersionMismatch: a newer program has begun the run, with events that
	// this one does not know. It wraps [eventlog.ErrSchemaTooNew].
	ErrSchemaVersionMismatch = errors.New("starling: schema version mismatch")

	// ErrAgentChanged: the run was begun by an agent of another configuration. The
	// error says where it differs.
	ErrAgentChanged = errors.New("starling: the run was begun by another agent")

	// ErrNoModel: the run is a direct call of a tool, and nothing is there to
	// resume.
	ErrNoModel = errors.New("starling: no model takes part in the run")
)

// ResumeOption changes how a run is resumed.
type ResumeOption func(*resumption)

// WithReissueTools says what becomes of calls without an outcome: they are made
// again under fresh call ids (true, the default), or the run is not resumed
// ([ErrPartialToolCall]).
func WithReissueTools(reissue bool) ResumeOption {
	return func(r *resumption) { r.reissue = reissue }
}

// resumption is how a process takes a run up.
type resumption struct {
	earlier []event.Event
	message string
	reissue bool
	seam    bool // also where nothing was done yet but to open the run
}

// unbegun reports whether the process goes on where another one has only opened
// the run. Then there is no seam.
func (r *resumption) unbegun() bool { return !r.seam && len(r.earlier) == 1 }

// Resume takes a run up where its process left it: after a crash, or because the
// host could not go on. See [Agent.ResumeWith].
func (a *Agent) Resume(ctx context.Context, runID, message string) (*RunResult, error) {
	return a.ResumeWith(ctx, runID, message)
}

// ResumeWith takes a run up. RunResumed marks the seam; a message that is not empty
// is said to the model after it. A turn without an answer is taken again. Calls
// without an outcome are made again; their effects have the idempotency keys that
// they had, so that a server that knows these does nothing twice.
//
// What is returned is as with [Agent.RunWithID]. The agent must be the one that
// began the run, but for versions: what the model was told is recorded, and is
// compared.
func (a *Agent) ResumeWith(ctx context.Context, runID, message string, opts ...ResumeOption) (*RunResult, error) {
	r := resumption{message: message, reissue: true, seam: true}
	for _, o := range opts {
		o(&r)
	}
	return a.resume(ctx, runID, r, nil)
}

// Continue makes a run that is there already: one that was opened and not begun,
// which leaves no trace in it, or one whose process died, as [Agent.Resume] does.
// It is how a worker takes up whatever run it is given.
func (a *Agent) Continue(ctx context.Context, runID string) (*RunResult, error) {
	return a.resume(ctx, runID, resumption{reissue: true}, nil)
}

func (a *Agent) resume(ctx context.Context, runID string, r resumption, o step.Observer) (*RunResult, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	if !utf8.ValidString(r.message) {
		return nil, errors.New("starling: the message is not UTF-8")
	}
	if err := a.preflight(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.earlier, a, err = a.resumable(ctx, runID); err != nil {
		return nil, err
	}
	cfg := a.live(a.stepConfig(runID), o)
	cfg.Earlier = r.earlier
	c, err := step.NewContext(cfg)
	if err != nil {
		return nil, err
	}
	talk, err := r.conversation()
	if err != nil {
		return nil, err
	}
	if r.unbegun() {
		a.Metrics.RunStarted()
	} else {
		a.Metrics.RunResumed()
	}
	result, err := a.conduct(ctx, c, func(ctx context.Context) (*conversation, error) { return talk, r.open(ctx, c, talk) })
	if result == nil {
		err = inUse(err)
	}
	return result, err
}

// inUse says of an error whether somebody else has written to the run.
func inUse(err error) error {
	if errors.Is(err, eventlog.ErrInvalidAppend) {
		return fmt.Errorf("%w: %w", ErrRunInUse, err)
	}
	return err
}

// resumable reads a run and returns the agent that can go on with it: a, with the
// recorded order of tools.
func (a *Agent) resumable(ctx context.Context, runID string) ([]event.Event, *Agent, error) {
	events, started, err := openRun(ctx, a.Log, runID)
	if err != nil {
		return nil, nil, err
	}
	if started.ProviderID == "" && started.ModelID == "" {
		return nil, nil, ErrNoModel
	}
	a = a.inOrder(started.ToolSchemas)
	return events, a, sameStart(a.started(started.Goal), started)
}

// openRun reads a run that has no end, and its first event.
func openRun(ctx context.Context, log eventlog.EventLog, runID string) ([]event.Event, event.RunStarted, error) {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil, event.RunStarted{}, err
	}
	if len(events) == 0 {
		return nil, event.RunStarted{}, fmt.Errorf("%w: %q", ErrRunNotFound, runID)
	}
	if last := events[len(events)-1].Kind; last.Terminal() {
		return nil, event.RunStarted{}, fmt.Errorf("%w: %q ended with %s", ErrRunAlreadyTerminal, runID, last)
	}
	_, err = eventlog.Check(events, eventlog.CheckOptions{AllowOpen: true})
	if errors.Is(err, eventlog.ErrSchemaTooNew) {
		err = fmt.Errorf("%w: %w", ErrSchemaVersionMismatch, err)
	}
	if err != nil {
		return nil, event.RunStarted{}, err
	}
	started, err := events[0].AsRunStarted()
	return events, started, err
}

// sameStart returns how what would begin a run now differs from what began it, or
// nil.
func sameStart(mine, recorded event.RunStarted) error {
	mine.StarlingVersion, mine.AppVersion = recorded.StarlingVersion, recorded.AppVersion
	mine.SessionID, mine.Variables = recorded.SessionID, recorded.Variables
	step.CopyAllowed(mine.ToolSchemas, recorded.ToolSchemas)
	want, err := event.EncodePayload(recorded)
	if err != nil {
		return err
	}
	got, err := event.EncodePayload(mine)
	if err != nil {
		return err
	}
	if bytes.Equal(want, got) {
		return nil
	}
	field, was, is, _ := event.Diff(want, got)
	return fmt.Errorf("%w: %s was %s and is %s", ErrAgentChanged, field, was, is)
}

// conversation is what the model has been told, and what is to be called again.
func (r *resumption) conversation() (*conversation, error) {
	talk, err := recall(r.earlier)
	if err != nil {
		return nil, err
	}
	if n := len(talk.pending()); n > 0 && !r.reissue {
		return nil, fmt.Errorf("%w: %d of turn %s", ErrPartialToolCall, n, talk.turnID)
	}
	return talk, nil
}

// open records the seam.
func (r *resumption) open(ctx context.Context, c *step.Context, talk *conversation) error {
	if r.unbegun() {
		started, err := r.earlier[0].AsRunStarted()
		c.LogStarted(ctx, started)
		return err
	}
	err := step.Emit(ctx, c, event.KindRunResumed, event.RunResumed{
		AtSeq: uint64(len(r.earlier)), ExtraMessage: r.message, ReissueTools: r.reissue, PendingCalls: uint32(len(talk.pending())),
	})
	if err != nil || r.message == "" {
		return err
	}
	talk.say(r.message)
	return step.Emit(ctx, c, event.KindUserMessageAppended, event.UserMessageAppended{Content: r.message})
}
