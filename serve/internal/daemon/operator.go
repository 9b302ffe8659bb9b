package daemon

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/spec"
)

// Steer is [queue.Queue].Steer, which it logs.
func (d *Daemon) Steer(ctx context.Context, what, of string) (err error) {
	err = d.config.Queue.Steer(ctx, what, of)
	if err == nil {
		d.logger.Info("the operator has asked for it", "what", what, "of", of)
	}
	return err
}

// AuthenticateOperator returns nil for a request with the operator's key, and the answer
// for any other.
func (d *Daemon) AuthenticateOperator(r *http.Request) error { return hasKey(r, d.config.OperatorKey) }

func (d *Daemon) listQueue(r *request) (queue.Overview, error) {
	p := r.query
	f := queue.Filter{Tenant: p.text("tenant"), After: int64(p.number("after", 0, math.MaxInt64)), Limit: p.limit(defaultRuns, mostRuns)}
	f.State = queue.State(p.text("state"))
	if s := f.State; s != "" && s != queue.Waiting && s != queue.Sleeping && s != queue.Running {
		p.fail("state", "state is waiting, sleeping or running")
	}
	if p.err != nil {
		return queue.Overview{}, p.err
	}
	return d.config.Queue.Overview(r.Context(), f)
}

func (d *Daemon) listHosts(r *request) (queue.HostList, error) {
	return d.config.Queue.HostList(r.Context())
}

// steer answers a request to do something with a run or a host.
func (d *Daemon) steer(w http.ResponseWriter, r *request) error {
	of := r.PathValue("host")
	if of == "" {
		of = fullID(r.PathValue("tenant"), r.PathValue("id"))
	}
	switch err := d.Steer(r.Context(), r.PathValue("what"), of); {
	case errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrNoHost):
		return notFound.plain()
	case errors.Is(err, queue.ErrNotSleeping):
		return notSleeping.plain()
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// healthz reports that the process answers.
func (d *Daemon) healthz(*request) (map[string]string, error) {
	return map[string]string{"status": "ok"}, nil
}

// readiness reports whether the daemon can take work, and which checks failed.
type readiness struct {
	Status string            `json:"status"` // ready or not-ready
	Checks map[string]string `json:"checks"` // ok or failed, low for the disk, draining for serving; nothing of any tenant's

	Keys []string `json:"master_keys"` // ids, which reveal nothing about the keys
}

// checkTime bounds a look at what the daemon stands on.
const checkTime = 5 * time.Second

// readyz reports whether the log and the queue are usable, whether the master key opens the data
// keys of the tenants, whether there is room for runs, and whether the daemon takes work, which it
// does not while it ends or drains.
func (d *Daemon) readyz(w http.ResponseWriter, r *request) error {
	ctx, cancel := context.WithTimeout(r.Context(), checkTime)
	defer cancel()
	d.probed.Store(true)
	doc := readiness{Status: "ready", Checks: map[string]string{}, Keys: d.config.Tenants.MasterKeys()}
	if d.config.Disk != nil { // diskSpace.watch logs when it gets full
		now, _ := d.disk.look(0)
		doc.Checks["disk"] = map[level]string{spaceOK: "ok", spaceLow: "low", spaceShort: "failed", spaceFull: "failed"}[now]
	}
	checks := d.checks(ctx)
	_, checks["queue"] = d.config.Queue.Stats(ctx)
	checks["serving"] = d.taking.Err()
	for check, err := range checks {
		doc.Checks[check] = stateOf(err)
		if check != "serving" && r.Context().Err() == nil { // or it is the client that has failed
			d.failing.note(d.logger, check, err)
		}
	}
	if checks["serving"] == nil && d.config.Queue.Draining() {
		doc.Checks["serving"] = "draining"
	}
	status := http.StatusOK
	for _, state := range doc.Checks {
		if state != stateOf(nil) && state != "low" {
			doc.Status, status = "not-ready", http.StatusServiceUnavailable
		}
	}
	writeJSON(w, status, doc)
	return nil
}

// checks looks at what every run needs.
func (d *Daemon) checks(ctx context.Context) map[string]error {
	return map[string]error{"log": eventlog.Preflight(ctx, d.config.Log), "keys": d.config.Tenants.CheckMaster(ctx)}
}

// Ready is the Ready of a [queue.Config]: a host whose log or master key is not the right
// one claims no runs.
func (d *Daemon) Ready(ctx context.Context) (err error) {
	for check, failure := range d.checks(ctx) {
		if ctx.Err() == nil {
			d.failing.note(d.logger, check, failure)
		}
		err = errors.Join(err, failure)
	}
	return err
}

// failing has the checks that failed last. The response omits the reasons, so the log has them,
// once for each change: a host that is not ready gets no requests that would show them.
type failing struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// note says when a check begins to fail, and when it has ended.
func (f *failing) note(logger *slog.Logger, check string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	since, failed := f.since[check]
	switch {
	case err != nil && !failed:
		f.since[check] = time.Now()
		logger.Error("not ready", "check", check, "error", err.Error())
	case err == nil && failed:
		delete(f.since, check)
		logger.Info("ready again", "check", check, "after", time.Since(since).Round(time.Millisecond))
	}
}

func stateOf(err error) string {
	if err == nil {
		return "ok"
	}
	return "failed"
}

// openapi returns the contract.
func (d *Daemon) openapi(w http.ResponseWriter, _ *request) error {
	w.Header().Set("Content-Type", "application/yaml")
	share.WriteStatic(w, spec.OpenAPI())
	return nil
}
