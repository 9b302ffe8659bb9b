package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/cipherlog"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/turns"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/tool"
)

// gone says why a run can never be made. It ends the run.
type gone struct{ reason string }

func (g *gone) Error() string { return "daemon: " + g.reason }

// work makes the run of a lease. It is done with the job when the run has ended, in
// whatever way: an error means that the host could not do its part, and that
// another attempt may.
func (d *Daemon) work(ctx context.Context, l queue.Lease) error {
	a, err := d.account(context.WithoutCancel(ctx), l.Tenant)
	if errors.Is(err, tenant.ErrErased) { // nobody can read the run
		return d.counted(d.config.Log.Fenced(l.RunID, l.Epoch), func(log eventlog.EventLog) error {
			return cipherlog.End(context.WithoutCancel(ctx), log, l.RunID)
		})
	}
	if err != nil {
		return err
	}
	ctx = turns.For(ctx, claimOf(a.Tenant))
	log, err := a.open(&leased{
		EventLog: d.config.Log.Fenced(l.RunID, l.Epoch), ctx: ctx, count: func(bytes int) { d.volume.add(a.ID, bytes) },
	})
	if err != nil {
		return err
	}
	if l.Exhausted {
		return d.abandon(ctx, log, l, exhausted(l))
	}
	if l.Cancelled {
		return d.abandon(ctx, log, l, "")
	}
	return d.ended(ctx, log, l, d.run(ctx, log, a, l))
}

// exhausted says why a run is given up.
func exhausted(l queue.Lease) string {
	switch {
	case l.Deaths >= queue.MaxDeaths:
		return fmt.Sprintf("%d hosts died while they made the run", l.Deaths)
	case l.Stranded >= queue.MaxStranded:
		return fmt.Sprintf("%d hosts died before they could begin with the run", l.Stranded)
	}
	return "the host could not make the run: " + l.Failure
}

// ended decides what becomes of a job from how the making of its run went.
func (d *Daemon) ended(ctx context.Context, log eventlog.EventLog, l queue.Lease, err error) error {
	never, ok := errors.AsType[*gone](err)
	switch {
	case errors.Is(err, agent.ErrRunAlreadyTerminal):
		return nil // the process died after the end of the run, and before it could say so
	case errors.Is(err, agent.ErrAgentChanged): // a newer schema is for a newer host to go on with
		return d.abandon(ctx, log, l, "what the run was to be made with is another one now")
	case ok:
		return d.abandon(ctx, log, l, never.reason)
	case err != nil && errors.Is(context.Cause(ctx), queue.ErrCancelled): // as it waited for its module, for one
		return d.abandon(ctx, log, l, "")
	}
	return err
}

// run makes a run, or goes on with it.
func (d *Daemon) run(ctx context.Context, log eventlog.EventLog, a Account, l queue.Lease) error {
	var o order
	text, err := a.known.Unseal(purposeJob, l.Payload, l.RunID)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return &gone{"the job cannot be read"}
	}
	ctx, err = tool.WithVariablesJSON(d.config.Tracer.Continue(ctx, o.Trace), o.Variables)
	if err != nil {
		return &gone{"the variables cannot be read"}
	}
	if o.Tool != "" {
		return d.runTool(guest.WithBegin(ctx, l.Begin), log, a, l.RunID, o)
	}
	worker := d.agents[o.Agent]
	if worker == nil {
		return &gone{fmt.Sprintf("there is no agent %q any more", o.Agent)}
	}
	rules, err := d.rules(context.WithoutCancel(ctx), a, l.RunID, log)
	if err != nil {
		return err
	}
	if err := l.Begin(ctx); err != nil {
		return err
	}
	// Its modules were loaded before the run was known.
	_, err = guarded(d.agent(worker, log), rules).Continue(policy.With(ctx, rules), l.RunID)
	return err
}

// maxToolLabels is how many of the labels that metrics have for tools one tenant can
// take: it names its tools as it likes, and could take those of everybody else.
const maxToolLabels = observe.MaxNames / 10

func (d *Daemon) runTool(ctx context.Context, log eventlog.EventLog, a Account, runID string, o order) error {
	m, err := a.known.module(o.Module)
	if err != nil || m.Digest.String() != o.Digest {
		return &gone{fmt.Sprintf("the module %q is not there any more", o.Module)}
	}
	module, release, err := d.take(ctx, a, m.Module)
	if err != nil {
		return err
	}
	defer release()
	found, ok := module.Tool(o.Tool)
	if !ok {
		return &gone{fmt.Sprintf("the module %q has no tool %q", o.Module, o.Tool)}
	}
	rules, err := d.rules(context.WithoutCancel(ctx), a, runID, log)
	if err != nil {
		return err
	}
	runs := d.config.Runs.Share(a.ID, maxToolLabels)
	runs.KnowTools(o.Tool) // no model has made it up
	direct := agent.Direct{
		Log: log, Tool: rules.Guard(found.Under(rules)), AppVersion: d.config.Version,
		Logger: d.logger, Metrics: runs, Tracer: d.config.Tracer,
	}
	_, err = direct.Continue(ctx, runID, o.Input)
	return err
}

// abandon ends a run without making it: as failed for a reason, or as cancelled
// without one. A run that has ended stays as it is. The host's log does not repeat
// the error of the last attempt, which may quote what the tenant wrote.
func (d *Daemon) abandon(ctx context.Context, log eventlog.EventLog, l queue.Lease, reason string) error {
	err := d.counted(log, func(log eventlog.EventLog) error {
		return agent.Abandon(context.WithoutCancel(ctx), log, l.RunID, reason)
	})
	if errors.Is(err, agent.ErrRunAlreadyTerminal) {
		return nil
	}
	d.logger.Warn("run abandoned", "run_id", l.RunID, "reason", strings.TrimSuffix(reason, ": "+l.Failure))
	return err
}
