package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// neverError is the reason why a run can never be executed. It ends the run.
type neverError struct{ reason string }

func (g *neverError) Error() string { return "daemon: " + g.reason }

// work executes the run of a lease. It returns nil when the run has ended, with any outcome. An
// error means that the host could not do its part, and another attempt may succeed. A failure of
// the host itself is a [queue.HostError].
func (d *Daemon) work(ctx context.Context, l queue.Lease) error {
	err := d.executeRun(egress.WithCount(ctx, d.config.Runs.ObserveEgress), l)
	if err == nil {
		d.volume.add(l.Tenant, 0, -len(l.Payload))
	}
	if class := hostClass(err); class != "" {
		return &queue.HostError{Class: class, Err: err}
	}
	if err == nil && d.config.Ended != nil {
		d.config.Ended()
	}
	return err
}

// unprepared is an error that came before the run began, of something that the host needs
// for it.
type unprepared struct{ error }

func (u unprepared) Unwrap() error { return u.error }

// hostClass returns the class of an error that is the host's own, and nothing for an error
// of the run. After the run has begun these are failures of the log, of the module store and
// of the start of a process; before that, every error that is not a refusal.
func hostClass(err error) string {
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	_, early := errors.AsType[unprepared](err)
	switch p, _ := errors.AsType[*Problem](err); {
	case is(tenant.ErrWrongMasterKey, tenant.ErrNoMasterKey):
		return "keys"
	case is(eventlog.ErrUnavailable, eventlog.ErrLogStopped, eventlog.ErrLogClosed, eventlog.ErrReadOnly, eventlog.ErrSchemaOutdated, eventlog.ErrSchemaTooNew):
		return "database"
	case is(eventlog.ErrModuleNotFound):
		return "modules"
	case is(guest.ErrNoProcess, guest.ErrProcessesClosed):
		return "workers"
	case p != nil && p.Status == http.StatusTooManyRequests: // the tenant has as many modules at the compiler as it may
		return "busy"
	case early && p == nil && !is(eventlog.ErrLogCorrupt):
		return "host"
	}
	return ""
}

// executeRun executes the run of a lease, or ends it.
func (d *Daemon) executeRun(ctx context.Context, l queue.Lease) error {
	a, err := d.account(context.WithoutCancel(ctx), l.Tenant)
	if errors.Is(err, tenant.ErrErased) { // the run cannot be read any more
		return orUnprepared(d.counted(d.config.Log.Fenced(l.RunID, l.Epoch), func(log eventlog.EventLog) error {
			return store.EndEncrypted(context.WithoutCancel(ctx), log, l.RunID)
		}))
	}
	if err != nil {
		return unprepared{err}
	}
	ctx = guest.WithClaim(ctx, claimOf(a.Tenant))
	stored := &leased{
		EventLog: d.config.Log.Fenced(l.RunID, l.Epoch), ctx: ctx, count: func(bytes int) { d.volume.add(a.ID, bytes, 0) },
		refuse: func() error { return d.volume.overdrawn(a.Tenant) },
	}
	opened, err := a.open(stored)
	log := &metered{EventLog: opened}
	defer func() { l.Used(log.usage(stored)) }()
	switch {
	case err != nil:
		return unprepared{err}
	case l.Exhausted:
		return d.abandon(ctx, log, l, exhausted(l))
	case l.Cancelled:
		return d.abandon(ctx, log, l, "")
	}
	if _, err := d.volume.measure(ctx, a.ID); err != nil { // many runs may have been accepted at once
		return unprepared{err}
	}
	if err := stored.refuse(); err != nil {
		stored.refuse = nil
		return d.ended(ctx, log, l, err)
	}
	var run func() error
	taken, err := d.host.Memory.Take(ctx, a.ID, int64(share.Document*len(l.Payload)))
	if err == nil {
		defer d.host.Memory.Give(a.ID, taken)
		run, err = d.prepared(ctx, log, a, l)
	}
	if err == nil {
		err = run()
	} else if unreadable := a.snapshot.unreadable; unreadable == nil || !errors.Is(err, unreadable) {
		err = unprepared{err}
	}
	return d.ended(ctx, log, l, err)
}

// orUnprepared wraps err as an unprepared error; nil stays nil.
func orUnprepared(err error) error {
	if err == nil {
		return nil
	}
	return unprepared{err}
}

// exhausted returns the reason for giving up a run.
func exhausted(l queue.Lease) string {
	switch {
	case l.Deaths >= queue.MaxDeaths:
		return fmt.Sprintf("%d hosts died while they made the run", l.Deaths)
	case l.Stranded >= queue.MaxStranded:
		return fmt.Sprintf("%d hosts died before they could begin with the run", l.Stranded)
	case l.HostFailures >= queue.MaxHostFailures:
		return fmt.Sprintf("hosts failed %d times to provide what the run needs", l.HostFailures)
	}
	return "the host could not make the run: " + l.Failure
}

// ended maps the error of a run to a verdict for its job.
func (d *Daemon) ended(ctx context.Context, log eventlog.EventLog, l queue.Lease, err error) error {
	never, ok := errors.AsType[*neverError](err)
	switch {
	case errors.Is(err, agent.ErrRunAlreadyTerminal):
		return nil // the process died after the end of the run, before it could report it
	case errors.Is(err, agent.ErrAgentChanged): // a newer schema is for a newer host to go on with
		return d.abandon(ctx, log, l, "the run's tool or agent has changed")
	case ok:
		return d.abandon(ctx, log, l, never.reason)
	case err != nil && errors.Is(context.Cause(ctx), queue.ErrCancelled): // for example while it waited for its module
		return d.abandon(ctx, log, l, "")
	}
	return err
}

// prepared returns what makes a run, or goes on with it, once all is there that it needs.
func (d *Daemon) prepared(ctx context.Context, log eventlog.EventLog, a Account, l queue.Lease) (run func() error, err error) {
	var o order
	text, err := a.snapshot.Decrypt(purposeJob, l.Payload, l.RunID)
	if err != nil {
		return nil, err
	}
	if err := o.decode(text); err != nil {
		return nil, &neverError{"the job cannot be read"}
	}
	ctx, err = tool.WithVariablesJSON(d.config.Tracer.Continue(ctx, o.Trace), o.Variables)
	if err != nil {
		return nil, &neverError{"the variables cannot be read"}
	}
	x, err := d.resolve(ctx, a, l.RunID, o, d.modules.Take)
	if err == nil {
		err = a.snapshot.unreadable
	}
	var earlier []event.Event
	if err == nil {
		earlier, err = log.Read(context.WithoutCancel(ctx), l.RunID)
	}
	if err == nil {
		err = x.rules.Resume(earlier)
	}
	if err == nil && x.agent != nil {
		err = l.Begin(ctx)
	}
	if err != nil {
		x.release()
		return nil, err
	}
	return func() (err error) {
		defer x.release()
		if x.agent != nil {
			a := d.agentOf(x.agent, log)
			a.Tools = lists.Map(a.Tools, x.rules.Guard)
			_, err = a.Continue(policy.With(ctx, x.rules), l.RunID)
			return err
		}
		direct := d.direct(x, log, l.Begin)
		direct.Metrics.KnowTools(o.Tool) // not invented by a model
		_, err = direct.Continue(ctx, l.RunID, nil)
		return err
	}, nil
}

// abandon ends a run without executing it: as failed for a reason, or as cancelled
// without one. A run that has ended stays unchanged. The host's log does not repeat
// the error of the last attempt, which may quote what the tenant wrote.
func (d *Daemon) abandon(ctx context.Context, log eventlog.EventLog, l queue.Lease, reason string) error {
	err := d.counted(log, func(log eventlog.EventLog) error {
		return agent.Abandon(context.WithoutCancel(ctx), log, l.RunID, reason)
	})
	if errors.Is(err, agent.ErrRunAlreadyTerminal) {
		return nil
	}
	d.logger.Warn("run abandoned", "run_id", l.RunID, "reason", strings.TrimSuffix(reason, ": "+l.Failure))
	return orUnprepared(err)
}

// Runs count themselves, with two exceptions that are counted here: the first event, which is
// written in the transaction that accepts the run, and the end of a run without a worker.

// countOpening counts the first event of a run, which is appended with the order. A refused request
// has none. took is the time until the log accepted the event, as for any other event, without the
// commit, which waits for the disk.
func (d *Daemon) countOpening(err error, took time.Duration) {
	status := "ok"
	switch {
	case err == nil:
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrLogStopped), errors.Is(err, eventlog.ErrLogClosed):
		status = "error"
	default:
		return
	}
	d.config.Runs.ObserveEventlogAppend(event.KindRunStarted.String(), status, took)
}

// counted ends a run that no worker makes, and counts it when its end is durable.
func (d *Daemon) counted(log eventlog.EventLog, end func(eventlog.EventLog) error) error {
	seen := outcome{EventLog: log, metrics: d.config.Runs}
	err := end(&seen)
	if err == nil && seen.terminal != 0 {
		d.config.Runs.RunAbandoned(seen.started, seen.terminal, seen.errorType)
	}
	return err
}

// outcome is a log that records and measures the events that end a run.
type outcome struct {
	eventlog.EventLog
	metrics   *observe.Metrics
	started   bool // a worker has started it
	terminal  event.Kind
	errorType string
}

// Append implements [eventlog.EventLog].
func (o *outcome) Append(ctx context.Context, runID string, ev event.Event) error {
	before := time.Now()
	err := o.EventLog.Append(ctx, runID, ev)
	status := "ok"
	if err != nil {
		status = "error"
	}
	o.metrics.ObserveEventlogAppend(ev.Kind.String(), status, time.Since(before))
	switch ev.Kind {
	case event.KindRunResumed:
		o.started = true
	case event.KindRunCancelled:
		o.terminal = ev.Kind
	case event.KindRunFailed:
		o.terminal, o.errorType = ev.Kind, event.ErrorInternal
	}
	return err
}
