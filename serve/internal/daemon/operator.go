package daemon

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/starling-host/starling/serve/internal/queue"
)

// Steer does what an operator asks for: "cancel" or "retry" a run by its id in the log,
// "drain" a host by its id or name, or have it "resume". The log of the host says so. An
// error is one of package queue.
func (d *Daemon) Steer(ctx context.Context, what, of string) (err error) {
	switch q := d.config.Queue; what {
	case "cancel":
		err = q.Cancel(ctx, of)
	case "retry":
		err = q.Retry(ctx, of)
	case "drain", "resume":
		err = q.Drain(ctx, of, what == "drain")
	default:
		return queue.ErrNotFound
	}
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
	if s := f.State; s != "" && s != queue.Ready && s != queue.Sleeping && s != queue.Running {
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
