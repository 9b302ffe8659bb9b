package step

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// Emit records an event of the run itself: its start, its turns, its end. The other functions of
// this package record effects and calls of tools. kind must be the kind of the payload.
//
// Emit fills in the merkle root of a terminal event, and the session and variables of RunStarted,
// which come from ctx. A replay also takes from the recording what only the recording has:
// duration_ms of a terminal event, and in RunStarted the versions of the programs and the allowed
// hosts.
func Emit[T event.Payload](ctx context.Context, c *Context, kind event.Kind, payload T) error {
	if kind != payload.EventKind() {
		return fmt.Errorf("step: emit %s with the payload of %s", kind, payload.EventKind())
	}
	a := &Attempt{c: c, root: ctx}
	if own, ok := ctx.Value(attemptKey{}).(*Attempt); ok && own != nil && own.c == c {
		a.root = own.root
	}
	if err := setVariables(ctx, &payload); err != nil {
		return fmt.Errorf("step: variables cannot be recorded: %w", err)
	}
	_, err := record(ctx, a, payload, func(p *T, recorded T) error {
		copyRecorded(p, &recorded)
		return nil
	})
	return err
}

// Opening returns the event that Emit would record first in a run. A caller uses it to make the run
// known before work on it begins: it appends the event, and a [Context] with the event in
// Config.Earlier continues after it.
func Opening(ctx context.Context, runID string, started event.RunStarted, at time.Time) (event.Event, error) {
	if err := setVariables(ctx, &started); err != nil {
		return event.Event{}, fmt.Errorf("step: variables cannot be recorded: %w", err)
	}
	raw, err := event.EncodePayload(started)
	if err != nil {
		return event.Event{}, fmt.Errorf("step: RunStarted cannot be recorded: %w", err)
	}
	return event.Event{RunID: runID, Seq: 1, Timestamp: at.UnixNano(), Kind: event.KindRunStarted, Payload: raw}, nil
}

// setVariables fills in session, caller and variables if payload points to RunStarted.
func setVariables(ctx context.Context, payload any) (err error) {
	if p, ok := payload.(*event.RunStarted); ok {
		p.SessionID, p.Caller = tool.GetSessionID(ctx), tool.GetCaller(ctx)
		if doc := tool.VariablesJSON(ctx); doc != nil {
			p.Variables, err = canon.FromJSON(doc)
		}
	}
	return err
}

// copyRecorded copies the fields that Emit takes from the recording. Both arguments are pointers to
// the same payload struct.
func copyRecorded(payload, recorded any) {
	switch p := payload.(type) {
	case *event.RunStarted:
		r := recorded.(*event.RunStarted)
		p.StarlingVersion, p.AppVersion, p.Caller, p.Workspace = r.StarlingVersion, r.AppVersion, r.Caller, r.Workspace
		CopyAllowed(p.ToolSchemas, r.ToolSchemas)
	case *event.RunCompleted:
		r := recorded.(*event.RunCompleted)
		p.MerkleRoot, p.DurationMs = r.MerkleRoot, r.DurationMs
	case *event.RunFailed:
		r := recorded.(*event.RunFailed)
		p.MerkleRoot, p.DurationMs = r.MerkleRoot, r.DurationMs
	case *event.RunCancelled:
		r := recorded.(*event.RunCancelled)
		p.MerkleRoot, p.DurationMs, p.Reason = r.MerkleRoot, r.DurationMs, r.Reason // the caller that cancelled chose the text
	}
}

// CopyAllowed copies the hosts that egress allowed to each tool, and its policies. A replay has
// neither: the decisions are recorded with the effects. It copies the version of the rules, if this
// program knows it, because a call follows those that are recorded (see [Call]).
func CopyAllowed(tools, recorded []event.ToolSchemaRef) {
	for i := range min(len(tools), len(recorded)) {
		if tools[i].Sandbox == nil || recorded[i].Sandbox == nil {
			continue
		}
		sandbox := *tools[i].Sandbox
		sandbox.Allow, sandbox.Policy = recorded[i].Sandbox.Allow, recorded[i].Sandbox.Policy
		sandbox.Rules = min(sandbox.Rules, recorded[i].Sandbox.Rules)
		tools[i].Sandbox = &sandbox
	}
}

// setRoot fills in the merkle root over leaves if payload points to a terminal
// event.
func setRoot(payload any, leaves *canon.Tree) {
	root := func() []byte { h := leaves.Root(); return h[:] }
	switch p := payload.(type) {
	case *event.RunCompleted:
		p.MerkleRoot = root()
	case *event.RunFailed:
		p.MerkleRoot = root()
	case *event.RunCancelled:
		p.MerkleRoot = root()
	}
}

// record writes one event or, in a replay, matches it with the recorded one. It returns the payload
// as the log has it. In a replay, take copies into the payload the values that only the recording
// has; any other difference is a mismatch.
func record[T event.Payload](ctx context.Context, a *Attempt, payload T, take func(p *T, recorded T) error) (T, error) {
	matched, err := recordLocked(ctx, a, &payload, take)
	switch {
	case err != nil:
	case matched == nil:
		a.c.logEvent(ctx, &payload)
	case a.c.cfg.Matched != nil:
		a.c.cfg.Matched(*matched)
	}
	return payload, err
}

// recordLocked is the part of record that holds mu. In a replay it returns the
// recorded event.
func recordLocked[T event.Payload](ctx context.Context, a *Attempt, payload *T, take func(p *T, recorded T) error) (matched *event.Event, err error) {
	c := a.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.blocked(a); err != nil {
		return nil, err
	}
	if c.replaying() {
		matched, err = match(c.matcher, payload, take)
	} else {
		setRoot(payload, &c.leaves)
		err = c.write(ctx, (*payload).EventKind(), *payload)
	}
	if err != nil {
		return nil, c.stopped(err)
	}
	c.count(a, payload)
	return matched, nil
}

// write appends an event to the log. The caller holds mu.
func (c *Context) write(ctx context.Context, kind event.Kind, payload any) error {
	if kind.Terminal() && c.open > 0 {
		return fmt.Errorf("step: %s while %d calls have no outcome", kind, c.open)
	}
	raw, err := canon.Encode(payload) // the log checks it
	if err != nil {
		return fmt.Errorf("step: %s cannot be recorded: %w", kind, err)
	}
	ev := event.Event{
		RunID:     c.cfg.RunID,
		Seq:       c.seq + 1,
		PrevHash:  c.prevHash,
		Timestamp: c.clock().UnixNano(),
		Kind:      kind,
		Payload:   raw,
	}
	if ev.Payload, err = c.commit(ev, payload); err != nil {
		return fmt.Errorf("step: the commitment to a call: %w", err)
	}
	appending, cancel := c.detach(ctx)
	began := time.Now()
	err = c.cfg.Log.Append(appending, ev.RunID, ev)
	cancel()
	if m := c.cfg.Metrics; m != nil {
		m.ObserveEventlogAppend(kind.String(), status(err), time.Since(began))
	}
	if err != nil {
		if invalid := canon.ValidInside(raw, 1); invalid != nil {
			return fmt.Errorf("step: %s cannot be recorded: %w", kind, invalid)
		}
		return &logError{fmt.Errorf("step: append %s at seq %d: %w", kind, ev.Seq, err)}
	}
	hash := ev.Hash()
	c.seq, c.prevHash = ev.Seq, hash[:]
	c.leaves.Add(hash)
	if t := c.cfg.Tracer; t != nil {
		t.Recorded(ev)
	}
	return nil
}

// commit returns the payload of an event, with the commitment to the call that it schedules. The
// caller holds mu.
func (c *Context) commit(ev event.Event, payload any) (raw canon.Raw, err error) {
	call, scheduled := payload.(event.ToolCallScheduled)
	switch {
	case c.cfg.Commit == nil:
	case ev.Seq == 1:
		c.opening = ev
	case scheduled:
		first := &c.opening
		if earlier := c.first(); earlier != nil {
			first = earlier
		}
		if call.Commitment, err = c.cfg.Commit(*first, ev); err == nil {
			return canon.Encode(call)
		}
	}
	return ev.Payload, err
}

// barrier returns once all recorded events are durable. It precedes everything that is visible
// outside: if the process dies afterwards, the log shows what may have happened. A replay does not
// wait.
func (c *Context) barrier(ctx context.Context) error {
	if c.replaying() {
		return nil
	}
	ctx, cancel := c.detach(ctx)
	defer cancel()
	err := c.cfg.Log.Sync(ctx, c.cfg.RunID)
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped(&logError{fmt.Errorf("step: make run %s durable: %w", c.cfg.RunID, err)})
}

// detach returns a context for writing to the log. It outlives the cancellation of the run, because
// the end of the run must still be written.
func (c *Context) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = context.WithoutCancel(ctx)
	if c.cfg.EmitTimeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.EmitTimeout)
}

// logError is a failure of the log, after which a run cannot go on.
type logError struct{ error }

func (e *logError) Unwrap() error { return e.error }

// stopped makes err final if it is a failure of the log or a mismatch. An event that cannot be
// encoded, and the end of an open recording, concern only the caller. The caller holds mu.
func (c *Context) stopped(err error) error {
	switch err.(type) {
	case *logError, *MismatchError:
		return c.fail(err)
	}
	return err
}

// status returns the label of success or failure in measurements.
func status(err error) string {
	if err == nil {
		return "ok"
	}
	return "error"
}

// ReplayDurationMs returns, in a replay, the duration_ms of the next recorded event for the call or
// run of ctx, or 0 if that event has none. In live mode it returns fallback. Code that emits an
// event with its own measurement of a duration uses it, because no two runs take equally long.
func ReplayDurationMs(ctx context.Context, fallback int64) int64 {
	a := attemptOf(ctx, "ReplayDurationMs")
	if !a.c.replaying() {
		return fallback
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	var timed struct {
		DurationMs int64 `cbor:"duration_ms"`
	}
	next := a.c.matcher.peek(a.callID)
	if next == nil || canon.Unmarshal(next.Payload, &timed) != nil {
		return 0
	}
	return timed.DurationMs
}
