package daemon

import (
	"cmp"
	"context"
	"errors"
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
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
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
	of := cmp.Or(r.PathValue("host"), fullID(r.PathValue("tenant"), r.PathValue("id")))
	if err := d.Steer(r.Context(), r.PathValue("what"), of); err != nil {
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
	Checks map[string]string `json:"checks"` // see stateOf, low for the disk, draining for serving; nothing of any tenant's

	Keys []string `json:"master_keys"` // ids, which reveal nothing about the keys
}

// checkTime bounds a look at what the daemon stands on, and writeTime the write that is a part of it.
const (
	checkTime = 5 * time.Second
	writeTime = 2 * time.Second
)

// writes is the last write of a look at the log. It is made again after a second, so that probes cost
// little.
type writes struct {
	mu  sync.Mutex // held while one is made; guards what follows
	at  time.Time
	err error
}

// takesWrites returns nil if the log takes writes, which one of them shows: a log can be read long after
// it has stopped, and while its server waits for a standby.
func (d *Daemon) takesWrites(ctx context.Context) error {
	w := &d.writes
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.at) >= time.Second {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
		defer cancel()
		w.err = eventlog.Confirm(ctx, d.config.Log)
		w.at = time.Now()
	}
	return w.err
}

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
			d.note(check, err)
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
	return map[string]error{
		"log":  cmp.Or(eventlog.Preflight(ctx, d.config.Log), d.takesWrites(ctx)),
		"keys": d.config.Tenants.CheckMaster(ctx),
	}
}

// note measures the result of a check, and logs when one begins to fail and when that has ended.
func (d *Daemon) note(check string, err error) {
	d.config.Observe.ObserveReady(check, err == nil)
	f := &d.failing
	f.mu.Lock()
	defer f.mu.Unlock()
	since, failed := f.since[check]
	switch {
	case err != nil && !failed:
		f.since[check] = time.Now()
		d.logger.Error("not ready", "check", check, "error", err.Error())
	case err == nil && failed:
		delete(f.since, check)
		d.logger.Info("ready again", "check", check, "after", time.Since(since).Round(time.Millisecond))
	}
}

// Ready is the Ready of a [queue.Config]: a host whose log or master key is not the right
// one claims no runs.
func (d *Daemon) Ready(ctx context.Context) (err error) {
	for check, failure := range d.checks(ctx) {
		if ctx.Err() == nil {
			d.note(check, failure)
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

func stateOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, eventlog.ErrStandbyAway):
		return "standby does not answer"
	}
	return "failed"
}

// openapi returns the contract.
func (d *Daemon) openapi(w http.ResponseWriter, _ *request) error {
	w.Header().Set("Content-Type", "application/yaml")
	share.WriteStatic(w, spec.OpenAPI())
	return nil
}
