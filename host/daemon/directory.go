package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/tenant"
)

// Directory has what a queue asks about tenants in memory, where it must answer
// from, and reads it anew every few seconds. A daemon tells it of what it reads in
// between. Use [NewDirectory].
type Directory struct {
	store    *tenant.Store
	defaults tenant.Limits
	logger   *slog.Logger

	mu sync.RWMutex
	of map[string]queue.Limits // by tenant; guarded by mu
}

// refresh is how often the tenants are read.
const refresh = 3 * time.Second

// NewDirectory reads the tenants. Limits that a tenant does not have are those of
// defaults.
func NewDirectory(ctx context.Context, store *tenant.Store, defaults tenant.Limits, logger *slog.Logger) (*Directory, error) {
	d := &Directory{store: store, defaults: defaults.Or(tenant.DefaultLimits()), logger: logger}
	return d, d.read(ctx)
}

// Keep reads the tenants again and again until ctx ends. While the database does
// not answer, what was read last holds.
func (d *Directory) Keep(ctx context.Context) {
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := d.read(ctx); err != nil && ctx.Err() == nil {
				d.logger.Warn("tenants not read", "error", err.Error())
			}
		case <-ctx.Done():
			return
		}
	}
}

func (d *Directory) read(ctx context.Context) error {
	all, err := d.store.Tenants(ctx)
	if err != nil {
		return err
	}
	of := make(map[string]queue.Limits, len(all))
	for _, t := range all {
		of[t.ID] = d.limits(t)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of = of
	return nil
}

// saw takes note of a tenant whose row was read just now. No directory takes none.
func (d *Directory) saw(t tenant.Tenant) {
	if d == nil {
		return
	}
	d.mu.RLock()
	known := d.of[t.ID]
	d.mu.RUnlock()
	if l := d.limits(t); l != known {
		d.mu.Lock()
		d.of[t.ID] = l
		d.mu.Unlock()
	}
}

func (d *Directory) limits(t tenant.Tenant) queue.Limits {
	l := t.Limits.Or(d.defaults)
	return queue.Limits{Weight: float64(t.Weight), MaxRunning: max(l.Running, 0), MaxWaiting: max(l.Waiting, 0),
		Paused: t.Suspended && t.Erased.IsZero()} // so that the runs of one that was erased end
}

// Len returns how many tenants there are.
func (d *Directory) Len() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.of)
}

// Limits is the Limits of a queue.Config. A tenant that was created just now, and has
// asked for nothing here, has the defaults.
func (d *Directory) Limits(id string) queue.Limits {
	d.mu.RLock()
	defer d.mu.RUnlock()
	l, ok := d.of[id]
	if !ok {
		return d.limits(tenant.Tenant{Weight: 1})
	}
	return l
}
