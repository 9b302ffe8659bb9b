package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/archive"
	"github.com/starling-host/starling/eventlog/internal/pglog"
)

// Retirement selects old runs to remove.
type Retirement struct {
	Before    time.Time // of runs that began earlier
	Why       string    // see [eventlog.PruneOptions]
	ArchiveTo string    // the folder for an archive that has them; empty for none
	DryRun    bool      // of [DropPartitions]: write and remove nothing
}

// Dropped is a partition that was dropped.
type Dropped struct {
	eventlog.PruneReport
	Name, Archive string
}

// DropPartitions drops the partitions of a server all of whose runs began before a time. With a folder, the
// archive of a partition is NAME.ndjson.zst: a partition is dropped when that file is on the disk, and was
// read again and has all of its runs. A partition that cannot be dropped, such as one with a run that has not
// ended, keeps no other one from being dropped; the error is that of all of them.
func DropPartitions(ctx context.Context, l *Server, r Retirement) (dropped []Dropped, err error) {
	all, err := l.Partitions(ctx)
	for _, p := range all {
		if p.ToULID > event.IDPrefix(r.Before) {
			continue
		}
		d := Dropped{Name: p.Name}
		e := d.drop(ctx, l, p, r)
		if lost := (*eventlog.MissingTableError)(nil); errors.As(e, &lost) && lost.Table == p.Name {
			continue // another host has dropped it
		}
		switch {
		case e == nil:
			dropped = append(dropped, d)
		case err == nil:
			err = e
		default:
			err = fmt.Errorf("%w; %w", err, e)
		}
	}
	return dropped, err
}

func (d *Dropped) drop(ctx context.Context, l *Server, p pglog.Partition, r Retirement) (err error) {
	if d.PruneReport, err = l.Extent(ctx, p); err != nil || r.DryRun {
		return err
	}
	var archived archive.Heads
	if r.ArchiveTo != "" {
		d.Archive = filepath.Join(r.ArchiveTo, p.Name+".ndjson"+archive.Compressed)
		_, archived, err = archive.WriteFile(ctx, l, d.Archive, eventlog.PruneOptions{FromULID: p.FromULID, ToULID: p.ToULID})
		if errors.Is(err, fs.ErrExist) { // it was interrupted after that
			_, archived, err = archive.ReadFile(ctx, d.Archive)
		}
		if err != nil {
			return fmt.Errorf("store: partition %s stays: %s: %w", p.Name, d.Archive, err)
		}
	}
	d.PruneReport, err = l.DropPartition(ctx, p, r.Why, archived)
	return err
}

// PruneOld removes the runs that have ended, in short transactions. With a folder, it removes the runs that
// an archive in it has, which is named by the time before which they began.
func PruneOld(ctx context.Context, l Database, r Retirement) (all eventlog.PruneReport, err error) {
	o := eventlog.PruneOptions{Before: r.Before, Why: r.Why}
	if r.ArchiveTo == "" {
		return eventlog.PruneInSteps(ctx, l, o)
	}
	o.DryRun = true
	if due, err := l.PruneRuns(ctx, o); err != nil || due.Runs == 0 {
		return all, err
	}
	o.DryRun = false
	path := filepath.Join(r.ArchiveTo, r.Before.UTC().Format("2006-01-02T150405.000Z")+".ndjson"+archive.Compressed)
	_, archived, err := archive.WriteFile(ctx, l, path, o)
	if err != nil {
		return all, fmt.Errorf("store: %s: %w", path, err)
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(archived)), 100) {
		o.RunIDs = ids
		step, err := eventlog.PruneInSteps(ctx, l, o)
		all.Runs += step.Runs
		all.Events += step.Events
		if err != nil {
			return all, err
		}
	}
	return all, nil
}
