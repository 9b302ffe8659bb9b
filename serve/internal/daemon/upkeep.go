package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/serve/tenant"
)

// collectEvery is how often unused modules are removed.
const collectEvery = 20 * time.Minute

// upkeep removes old runs and unused modules from time to time, until ctx ends.
func (d *Daemon) upkeep(ctx context.Context) {
	var pruned time.Time
	for range await.Every(ctx, min(d.config.Retention.Every, collectEvery)) {
		if d.config.Retention.OlderThan > 0 && time.Since(pruned) >= d.config.Retention.Every {
			pruned = time.Now()
			d.retain(ctx)
		}
		c, err := tenant.Collect(ctx, d.config.Log, time.Now())
		if c.Modules > 0 {
			d.logger.Info("unused modules removed", "modules", c.Modules, "bytes", c.Bytes)
		}
		if err != nil && ctx.Err() == nil {
			d.logger.Warn("cannot remove unused modules", "error", err.Error())
		}
	}
}

// retain removes old runs: one by one, or on a server with the partitions of their months, and makes those
// of the next ones.
func (d *Daemon) retain(ctx context.Context) {
	due, now := d.config.Retention, time.Now()
	r := store.Retirement{Before: now.Add(-due.OlderThan), Why: "retention of " + due.OlderThan.String(), ArchiveTo: due.ArchiveTo}
	var report eventlog.PruneReport
	var err error
	if server, ok := d.config.Log.(*store.Server); ok && due.Ahead > 0 {
		var dropped []store.Dropped
		if _, err = server.MakePartitions(ctx, now, due.Ahead, false); err == nil {
			dropped, err = store.DropPartitions(ctx, server, r)
		}
		for _, p := range dropped {
			report.Runs, report.Events = report.Runs+p.Runs, report.Events+p.Events
		}
	} else {
		report, err = store.PruneOld(ctx, d.config.Log, r)
	}
	if report.Runs > 0 {
		if d.config.Removed != nil {
			d.config.Removed()
		}
		d.logger.Info("old runs removed", "runs", report.Runs, "events", report.Events)
	}
	switch {
	case err == nil:
		d.config.Retained.Succeeded()
	case ctx.Err() == nil:
		d.logger.Warn("old runs not removed", "error", err.Error())
	}
}

// diskSpace is the room on the disk of the database. Work that needs much room is refused while
// there is still enough to finish the accepted runs. Work that needs none continues even on a full
// disk.
type diskSpace struct {
	of   func() (guest.DiskRoom, error) // nil where it is not known, as for a server
	keep int64                          // see Settings.Space

	uploads atomic.Int64 // bytes that uploads in progress may take
}

// level is how little room there is.
type level int

const (
	spaceOK    level = iota
	spaceLow         // modules are refused
	spaceShort       // and runs
	spaceFull        // and everything else that writes
)

// look returns the room, and the level after need more bytes are taken.
func (s *diskSpace) look(need int64) (level, guest.DiskRoom) {
	if s.of == nil {
		return spaceOK, guest.DiskRoom{}
	}
	room, err := s.of()
	if err != nil { // without an answer, assume that there is room
		return spaceOK, room
	}
	keep := room.Keep(s.keep)
	switch free := room.Free + room.Reusable - need; {
	case room.Free < keep/16: // for the WAL
		return spaceFull, room
	case free < keep/2:
		return spaceShort, room
	case free < keep || room.Free-need < keep/4:
		return spaceLow, room
	}
	return spaceOK, room
}

// takeModule reserves room for a module until release is called. It is written to the WAL,
// to the database, and rewritten and compiled to the cache, which may be on the same disk.
func (s *diskSpace) takeModule(bytes int64) (release func(), err error) {
	bytes *= 4
	release = func() { s.uploads.Add(-bytes) }
	if err := s.need(s.uploads.Add(bytes), spaceLow); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// need refuses work that takes the given bytes if the level is at least refused.
func (s *diskSpace) need(bytes int64, refused level) error {
	if now, _ := s.look(bytes); now < refused {
		return nil
	}
	return noSpace.because("the host's disk is almost full").hint("reading still works; the operator must free space").retry(roomAfter)
}

// watch logs when the disk gets full, and when it has room again, until ctx ends.
func (s *diskSpace) watch(ctx context.Context, logger *slog.Logger) {
	refused := map[level]string{spaceLow: "modules", spaceShort: "modules and runs", spaceFull: "everything that writes"}
	last := spaceOK
	for range await.Every(ctx, 5*time.Second) {
		now, room := s.look(0)
		switch {
		case now != last && now > spaceOK:
			logger.Warn("the disk is getting full", "free", room.Free, "of", room.Total, "refused", refused[now])
		case now != last:
			logger.Info("the disk has room again", "free", room.Free, "of", room.Total)
		}
		last = now
	}
}
