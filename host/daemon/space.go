package daemon

import (
	"context"
	"errors"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/cipherlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/logview"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/runtime/replay"
)

// fullID returns the id by which the log knows a run of a tenant.
func fullID(tenantID, id string) string { return tenantID + "/" + id }

// View returns the log as a tenant sees it, for whatever shows it.
func (d *Daemon) View(ctx context.Context, tenantID string) (logview.View, error) {
	log, err := d.open(ctx, tenantID, d.config.Log)
	return logview.View{
		Log: log, Namespace: tenantID, Title: tenantID,
		Replayer: func(ctx context.Context, runID string) (replay.Verdict, error) { return d.replay(ctx, log, runID) },
	}, err
}

// open returns a log as a tenant sees it, who finds in it what the tenant has
// written and reads what is encrypted.
func (d *Daemon) open(ctx context.Context, tenantID string, log eventlog.EventLog) (eventlog.EventLog, error) {
	key, err := d.config.Tenants.DataKey(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	return cipherlog.New(log, key, tenantID)
}

// purposeJob is what the orders of runs are sealed for while they wait.
const purposeJob = "job"

// sealJob returns a job as it is to be stored, with the first event of its run.
func (d *Daemon) sealJob(ctx context.Context, j queue.Job, first event.Event) (queue.Job, event.Event, error) {
	key, err := d.config.Tenants.DataKey(ctx, j.Tenant)
	if err != nil {
		return j, first, err
	}
	if first, err = cipherlog.First(key, first); err != nil {
		return j, first, err
	}
	j.Payload, err = d.config.Tenants.Seal(ctx, j.Tenant, purposeJob, j.Payload, j.RunID)
	if len(j.Payload) > queue.MaxPayloadBytes {
		return j, first, overlong(queue.MaxPayloadBytes)
	}
	return j, first, err
}

// leased is the log as a worker sees it that was given a run. It takes nothing more
// once the run is to be taken from the worker, so that what the run does when its
// context ends is not recorded as its own doing: it stays open, and the next
// worker goes on with it.
type leased struct {
	eventlog.EventLog
	ctx   context.Context // of the lease
	count func(bytes int)
}

// errHandedBack ends a run that another worker goes on with.
var errHandedBack = errors.New("daemon: the run was handed back")

// Append implements [eventlog.EventLog].
func (l leased) Append(ctx context.Context, runID string, ev event.Event) error {
	if cause := context.Cause(l.ctx); errors.Is(cause, queue.ErrStopping) || errors.Is(cause, queue.ErrLost) {
		return errHandedBack
	}
	err := l.EventLog.Append(ctx, runID, ev)
	if err == nil {
		l.count(len(ev.Payload) + envelopeBytes)
	}
	return err
}

// envelopeBytes is about what an event has around its payload.
const envelopeBytes = 128
