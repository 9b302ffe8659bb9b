package daemon

import (
	"context"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/tenant"
)

// upkeep removes from time to time what the host needs no more, until ctx ends: runs that
// are older than it keeps them, and modules that nobody needs. It holds the modules of the
// host's agents meanwhile, which no tenant has and which no run may name yet.
func (d *Daemon) upkeep(ctx context.Context) {
	tick := time.NewTicker(min(d.config.RetentionEvery, eventlog.ModuleGrace/3))
	defer tick.Stop()
	for pruned := (time.Time{}); ; {
		if d.config.Retention > 0 && time.Since(pruned) >= d.config.RetentionEvery {
			pruned = time.Now()
			d.retain(ctx)
		}
		for digest, bytes := range d.config.Held {
			if err := eventlog.HoldModule(ctx, d.config.Log, digest, bytes); err != nil && ctx.Err() == nil {
				d.logger.Warn("module of an agent not held", "digest", digest.String(), "error", err.Error())
			}
		}
		c, err := tenant.Collect(ctx, d.config.Log, time.Now())
		if c.Modules > 0 {
			d.logger.Info("modules removed that nobody needs any more", "modules", c.Modules, "bytes", c.Bytes)
		}
		if err != nil && ctx.Err() == nil {
			d.logger.Warn("modules that nobody needs any more not removed", "error", err.Error())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// retain removes old runs.
func (d *Daemon) retain(ctx context.Context) {
	report, err := eventlog.PruneInSteps(ctx, d.config.Log, eventlog.PruneOptions{Before: time.Now().Add(-d.config.Retention)})
	if report.Runs > 0 {
		d.logger.Info("old runs removed", "runs", report.Runs, "events", report.Events)
	}
	switch {
	case err == nil:
		d.config.Retained.Succeeded()
	case ctx.Err() == nil:
		d.logger.Warn("old runs not removed", "error", err.Error())
	}
}
