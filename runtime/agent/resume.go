package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/runtime/step"
)

// Errors of a run that cannot be resumed.
var (
	// ErrRunNotFound: the run is not in the log.
	ErrRunNotFound = eventlog.ErrRunNotFound

	// ErrRunAlreadyTerminal: the run has ended.
	ErrRunAlreadyTerminal = hint.New("starling: run already terminal", "a copy in which it has not ended can be gone on with: starling-host fork DB RUN SEQ FILE")

	// ErrPartialToolCall: calls have no outcome, and reissuing them was disabled.
	ErrPartialToolCall = hint.New("starling: run has tool calls without an outcome", "without --no-reissue they are made again")

	// ErrRunInUse: another process has written to the run.
	ErrRunInUse = errors.New("starling: run in use")

	// ErrSchemaVersionMismatch: a newer program began the run, with unknown events. It
	// wraps [eventlog.ErrSchemaTooNew].
	ErrSchemaVersionMismatch = errors.New("starling: schema version mismatch")

	// ErrAgentChanged: the run was begun with another configuration. The error names the
	// difference.
	ErrAgentChanged = hint.New("starling: the run was begun by another agent", "name the agent that began it with --agent, as it was then")

	// ErrNoModel: the run is a direct call of a tool, which cannot be resumed.
	ErrNoModel = hint.New("starling: no model takes part in the run", "a direct call of a tool is made anew with: starling-host run")
)

// ResumeOption changes how a run is resumed.
type ResumeOption func(*resumption)

// WithReissueTools decides about calls without an outcome: they are repeated under fresh
// call ids (true, the default), or the run is not resumed ([ErrPartialToolCall]).
func WithReissueTools(reissue bool) ResumeOption {
	return func(r *resumption) { r.reissue = reissue }
}

// resumption describes how a process continues a run.
type resumption struct {
	earlier []event.Event
	message string
	reissue bool
	seam    bool // even if the run was only opened
}

// isNotStarted reports whether another process only opened the run. Then there is no seam.
func (r *resumption) isNotStarted() bool { return !r.seam && len(r.earlier) == 1 }

// Resume continues an open run, after a crash or a failure of the host. See
// [Agent.ResumeWith].
func (a *Agent) Resume(ctx context.Context, runID, message string) (*Result, error) {
	return a.ResumeWith(ctx, runID, message)
}

// ResumeWith continues an open run. RunResumed marks the seam; a message that is not empty
// is added to the conversation after it. A turn without an answer is repeated. So are calls
// without an outcome; their effects keep their idempotency keys, so that a server that
// honours them does not act twice.
//
// The results are those of [Agent.RunWithID]. The agent must have the configuration that
// began the run, except for versions: the prompt is recorded and compared.
func (a *Agent) ResumeWith(ctx context.Context, runID, message string, opts ...ResumeOption) (*Result, error) {
	r := resumption{message: message, reissue: true, seam: true}
	for _, o := range opts {
		o(&r)
	}
	return a.resume(ctx, runID, r, nil)
}

// Continue makes a run that already exists: it starts an opened run, without a trace, and
// resumes a run whose process died, like [Agent.Resume]. Workers use it for every run.
func (a *Agent) Continue(ctx context.Context, runID string) (*Result, error) {
	return a.resume(ctx, runID, resumption{reissue: true}, nil)
}

func (a *Agent) resume(ctx context.Context, runID string, r resumption, o step.Observer) (*Result, error) {
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
	if a, err = a.prepared(ctx, a.Log, r.earlier); err != nil {
		return nil, err
	}
	ctx, trace := a.Tracer.StartRun(ctx, runID, r.earlier)
	defer trace.End()
	cfg := a.live(a.stepConfig(runID), o, trace)
	cfg.Earlier = r.earlier
	c, err := step.NewContext(cfg)
	if err != nil {
		return nil, err
	}
	talk, err := a.recallFor(r)
	if err != nil {
		return nil, err
	}
	if r.isNotStarted() {
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

// inUse marks an error with ErrRunInUse if another process has written to the run.
func inUse(err error) error {
	if errors.Is(err, eventlog.ErrInvalidAppend) {
		return fmt.Errorf("%w: %w", ErrRunInUse, err)
	}
	return err
}

// resumable reads a run and returns the agent that can continue it: a, with the recorded
// order of tools.
func (a *Agent) resumable(ctx context.Context, runID string) ([]event.Event, *Agent, error) {
	events, started, err := openRun(ctx, a.Log, runID)
	if err != nil {
		return nil, nil, err
	}
	if !a.direct && started.ProviderID == "" && started.ModelID == "" {
		return nil, nil, ErrNoModel
	}
	a = a.inOrder(events, started)
	return events, a, sameStart(a.started(started.Goal), started)
}

// openRun reads an open run and its first event.
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

// sameStart returns the difference between the recorded start of a run and the current one,
// or nil.
func sameStart(mine, recorded event.RunStarted) error {
	mine.StarlingVersion, mine.AppVersion = recorded.StarlingVersion, recorded.AppVersion
	mine.SessionID, mine.Variables, mine.Caller, mine.Workspace = recorded.SessionID, recorded.Variables, recorded.Caller, recorded.Workspace
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

// recallFor rebuilds the conversation, with the calls to repeat.
func (a *Agent) recallFor(r resumption) (*conversation, error) {
	talk, err := a.recall(r.earlier)
	if err != nil {
		return nil, err
	}
	if n := len(talk.pending()); n > 0 && !r.reissue {
		return nil, fmt.Errorf("%w: %d of turn %s", ErrPartialToolCall, n, talk.turnID)
	}
	if a.direct {
		call := talk.uses[0]
		call.doc, err = parsedInput(call.Args, call.doc)
	}
	return talk, err
}

// open records the seam.
func (r *resumption) open(ctx context.Context, c *step.Context, talk *conversation) error {
	if r.isNotStarted() {
		started, err := r.earlier[0].AsRunStarted()
		c.LogStarted(ctx, started)
		return err
	}
	pending := len(talk.pending()) // calls that a process began, or was about to begin, and did not end
	if talk.direct && talk.uses[0].CallID == "" {
		pending = 0
	}
	err := step.Emit(ctx, c, event.KindRunResumed, event.RunResumed{
		AtSeq: uint64(len(r.earlier)), ExtraMessage: r.message, ReissueTools: r.reissue, PendingCalls: uint32(pending),
	})
	if err != nil || r.message == "" {
		return err
	}
	talk.say(r.message)
	return step.Emit(ctx, c, event.KindUserMessageAppended, event.UserMessageAppended{Content: r.message})
}

// notMade is the reason of a run that was cancelled before a process could make it.
const notMade = "cancelled before it was made"

// Abandon ends a run that cannot be made, because its tool is gone or hosts failed at it too often.
// The run ends as failed for that reason, with the type "internal", or as cancelled if the reason
// is empty. Calls in progress stay without an outcome. A replay ends the run at the same place.
//
// The error is [ErrRunAlreadyTerminal] if the run has ended. The end is durable when
// Abandon returns nil.
func Abandon(ctx context.Context, log eventlog.EventLog, runID, reason string) error {
	events, _, err := openRun(ctx, log, runID)
	if err != nil {
		return err
	}
	c, err := step.NewContext(step.Config{Log: log, RunID: runID, Earlier: events})
	if err != nil {
		return err
	}
	ctx = step.WithContext(ctx, c)
	if len(events) > 1 {
		seam := event.RunResumed{AtSeq: uint64(len(events)), PendingCalls: unsettled(events)}
		if err := step.Emit(ctx, c, event.KindRunResumed, seam); err != nil {
			return inUse(err)
		}
	}
	if err := abandonedFor(reason).end(ctx, c); err != nil {
		return inUse(err)
	}
	return inUse(log.Sync(context.WithoutCancel(ctx), runID))
}

// abandonedFor returns the terminal event of a run abandoned for a reason.
func abandonedFor(reason string) *Result {
	if reason == "" {
		return &Result{TerminalKind: event.KindRunCancelled, Error: notMade}
	}
	return &Result{TerminalKind: event.KindRunFailed, Error: reason, ErrorType: event.ErrorInternal}
}

// unsettled counts calls without an outcome.
func unsettled(events []event.Event) uint32 {
	open := map[string]bool{}
	for _, ev := range events {
		payload, _ := event.OfCall(ev) // the caller has checked the events
		switch p := payload.(type) {
		case event.ToolCallScheduled:
			open[p.CallID] = true
		case event.ToolCallCompleted:
			delete(open, p.CallID)
		case event.ToolCallFailed:
			if p.Final {
				delete(open, p.CallID)
			}
		}
	}
	return uint32(len(open))
}

// abandoned reports whether a process did nothing but end the run, and why.
func abandoned(session []event.Event) (reason string, ok bool) {
	if len(session) != 2 {
		return "", false
	}
	if failed, err := session[1].AsRunFailed(); err == nil {
		return failed.Error, failed.ErrorType == event.ErrorInternal
	}
	cancelled, err := session[1].AsRunCancelled()
	return "", err == nil && cancelled.Reason == notMade
}

// replayAbandoned replays a session that only ended the run, and possibly began it.
func (a *Agent) replayAbandoned(ctx context.Context, cfg step.Config, o ReplayOptions, reason string) (*Result, error) {
	c, err := step.NewContext(cfg)
	if err != nil {
		return nil, err
	}
	ctx = step.WithContext(ctx, c)
	if len(cfg.Earlier) == 0 {
		var started event.RunStarted
		if started, err = a.startedAs(cfg.Recorded[0], o); err == nil {
			err = step.Emit(ctx, c, event.KindRunStarted, started)
		}
	} else {
		err = step.Emit(ctx, c, event.KindRunResumed, event.RunResumed{AtSeq: uint64(len(cfg.Earlier)), PendingCalls: unsettled(cfg.Earlier)})
	}
	if err != nil {
		return nil, err
	}
	r := abandonedFor(reason)
	r.RunID, r.Duration = cfg.RunID, time.Duration(step.ReplayDurationMs(ctx, 0))*time.Millisecond
	if err := errors.Join(r.end(ctx, c), c.Finish()); err != nil {
		return nil, err
	}
	r.complete(c, &conversation{})
	return r, nil
}
