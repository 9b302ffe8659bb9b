package daemon

import (
	"context"
	"errors"
	"net/http"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/recorded"
	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/runtime/replay"
)

// replayRun executes a run again, offline, and says whether it is the same.
func (d *Daemon) replayRun(w http.ResponseWriter, r *request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	v, err := r.view.Replay(r.Context(), s.RunID)
	doc := v.Document(s.RunID)
	if corrupt, ok := errors.AsType[*eventlog.CorruptError](err); ok {
		doc.Verdict, doc.Error = replay.Invalid, corrupt.Error()
	} else if err != nil {
		return notReplayed(err)
	}
	writeJSON(w, http.StatusOK, doc)
	return nil
}

// notReplayed words why a run cannot be executed.
func notReplayed(err error) error {
	if e, ok := errors.AsType[*recorded.Error](err); ok {
		return notReplayable.because("%s", e.Reason)
	}
	if e, ok := errors.AsType[*replay.UnsupportedError](err); ok {
		return notReplayable.because("%s", e.Reason)
	}
	if errors.Is(err, eventlog.ErrModuleNotFound) {
		return notReplayable.because("its module is not in the log")
	}
	return err
}

// replay is the Replayer of a tenant's view.
func (d *Daemon) replay(ctx context.Context, t tenant.Tenant, log eventlog.EventLog, runID string) (replay.Verdict, error) {
	if err := d.takesWork(); err != nil {
		return replay.Verdict{}, err
	}
	leave, err := d.replays.enter(ctx, t)
	if err != nil {
		return replay.Verdict{}, err
	}
	defer leave()
	if _, err := eventlog.CheckRun(ctx, log, runID, eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
		return replay.Verdict{}, err
	}
	events, err := log.Read(ctx, runID)
	if err != nil {
		return replay.Verdict{}, err
	}
	lease := d.recorded.Lease()
	defer lease.Release()
	return replay.Run(ctx, events, lease.Resolve, replay.Options{})
}
