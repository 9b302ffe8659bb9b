package agent

import (
	"context"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
)

// notMade is the reason of a run that was cancelled before anybody could make it.
const notMade = "cancelled before it was made"

// Abandon ends a run that nobody can make, because its tool is not there any more
// or the host has failed at it too often: as failed for that reason, with the type
// "internal", or as cancelled if the reason is empty. What was begun stays without
// an outcome. A replay ends the run at the same place.
//
// A run that has ended is [ErrRunAlreadyTerminal]. Otherwise the end is durable
// when Abandon returns nil.
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
	if err := endAbandoned(ctx, c, reason, 0); err != nil {
		return inUse(err)
	}
	return inUse(log.Sync(context.WithoutCancel(ctx), runID))
}

// endAbandoned records the terminal event.
func endAbandoned(ctx context.Context, c *step.Context, reason string, ms int64) error {
	if reason == "" {
		return step.Emit(ctx, c, event.KindRunCancelled, event.RunCancelled{Reason: notMade, DurationMs: ms})
	}
	return step.Emit(ctx, c, event.KindRunFailed, event.RunFailed{Error: reason, ErrorType: event.ErrorInternal, DurationMs: ms})
}

// unsettled counts the calls without an outcome.
func unsettled(events []event.Event) uint32 {
	open := map[string]bool{}
	for _, ev := range events {
		switch ev.Kind {
		case event.KindToolCallScheduled:
			p, _ := ev.AsToolCallScheduled() // the events have been checked
			open[p.CallID] = true
		case event.KindToolCallCompleted:
			p, _ := ev.AsToolCallCompleted()
			delete(open, p.CallID)
		case event.KindToolCallFailed:
			if p, _ := ev.AsToolCallFailed(); p.Final {
				delete(open, p.CallID)
			}
		}
	}
	return uint32(len(open))
}

// abandoned reports whether all that a process did was to end the run, and why.
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

// followAbandoned follows a session in which nobody made anything of the run.
// started is what would have begun it.
func followAbandoned(ctx context.Context, cfg step.Config, started event.RunStarted, reason string) (*step.Context, time.Duration, error) {
	c, err := step.NewContext(cfg)
	if err != nil {
		return nil, 0, err
	}
	ctx = step.WithContext(ctx, c)
	if len(cfg.Earlier) == 0 {
		err = step.Emit(ctx, c, event.KindRunStarted, started)
	} else {
		err = step.Emit(ctx, c, event.KindRunResumed, event.RunResumed{AtSeq: uint64(len(cfg.Earlier)), PendingCalls: unsettled(cfg.Earlier)})
	}
	if err != nil {
		return nil, 0, err
	}
	ms := step.ReplayDurationMs(ctx, 0)
	if err := endAbandoned(ctx, c, reason, ms); err != nil {
		return nil, 0, err
	}
	return c, time.Duration(ms) * time.Millisecond, c.Finish()
}

// replayAbandoned replays such a session of an agent's run.
func (a *Agent) replayAbandoned(ctx context.Context, cfg step.Config, o ReplayOptions, reason string) (*RunResult, error) {
	var started event.RunStarted
	if len(cfg.Earlier) == 0 {
		var err error
		if started, err = a.startedAs(cfg.Recorded[0], o); err != nil {
			return nil, err
		}
	}
	c, took, err := followAbandoned(ctx, cfg, started, reason)
	if err != nil {
		return nil, err
	}
	r := &RunResult{RunID: cfg.RunID, Duration: took}
	r.TerminalKind, r.Error, r.ErrorType = endOfAbandoned(reason)
	r.complete(c, &conversation{})
	return r, nil
}

// replayAbandoned replays such a session of a direct run.
func (d Direct) replayAbandoned(ctx context.Context, cfg step.Config, started event.RunStarted, reason string) (*Result, error) {
	c, took, err := followAbandoned(ctx, cfg, started, reason)
	if err != nil {
		return nil, err
	}
	r := &Result{RunID: cfg.RunID, Duration: took}
	r.Terminal, r.Error, r.ErrorType = endOfAbandoned(reason)
	r.complete(c)
	return r, nil
}

// endOfAbandoned is how a run ended that was abandoned for a reason.
func endOfAbandoned(reason string) (kind event.Kind, text, errorType string) {
	if reason == "" {
		return event.KindRunCancelled, notMade, ""
	}
	return event.KindRunFailed, reason, event.ErrorInternal
}
