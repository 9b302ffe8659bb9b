package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/archive"
	"github.com/starling-host/starling/eventlog/internal/pglog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/keyfile"
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
// archive of a partition that has runs is NAME.ndjson.zst, beside the newest checkpoint of a sealed database, NAME.note: a partition is dropped
// when that file is on the disk, and was read again and has all of its runs. A partition that cannot be dropped,
// such as one with a run that has not ended, keeps no other one from being dropped.
func DropPartitions(ctx context.Context, l *Server, r Retirement) (dropped []Dropped, err error) {
	all, err := l.Partitions(ctx)
	for _, p := range all {
		if p.ToULID > event.IDPrefix(r.Before) {
			continue
		}
		d, e := drop(ctx, l, p, r)
		if e == nil {
			dropped = append(dropped, d)
			continue
		}
		left, failed := l.Partitions(ctx)
		switch {
		case (failed == nil || errors.Is(failed, pglog.ErrNotPartitioned)) && !slices.Contains(left, p): // another host has dropped it
		case err == nil:
			err = fmt.Errorf("store: %s stays: %w", p.Name, e)
		default:
			err = fmt.Errorf("%w; %s stays: %w", err, p.Name, e)
		}
	}
	return dropped, err
}

func drop(ctx context.Context, l *Server, p Partition, r Retirement) (d Dropped, err error) {
	d.Name = p.Name
	if d.PruneReport, err = l.Extent(ctx, p); err != nil || r.DryRun {
		return d, err
	}
	var archived archive.Heads
	if r.ArchiveTo != "" {
		archived = archive.Heads{} // so that a run that comes now keeps the partition
	}
	if r.ArchiveTo != "" && d.Runs > 0 { // without runs it may be gone: another host has dropped it
		path := filepath.Join(r.ArchiveTo, p.Name)
		d.Archive = path + ArchiveSuffix
		_, archived, err = archive.WriteFile(ctx, l, d.Archive, eventlog.PruneOptions{FromULID: p.FromULID, ToULID: p.ToULID})
		if err == nil && len(archived) < d.Runs { // another host is dropping the partition, and what remains is no archive of it
			err = errors.Join(fmt.Errorf("it had %d runs, of which %d are left", d.Runs, len(archived)), os.Remove(d.Archive))
		}
		if errors.Is(err, fs.ErrExist) { // it was interrupted after that
			_, archived, err = archive.ReadFile(ctx, d.Archive)
		}
		if err == nil {
			err = writeCheckpoint(ctx, l, path+".note")
		}
		if err != nil {
			return d, fmt.Errorf("%s: %w", d.Archive, err)
		}
	}
	d.PruneReport, err = l.DropPartition(ctx, p, r.Why, archived)
	return d, err
}

// ArchiveSuffix ends the names of the archives of what is removed.
const ArchiveSuffix = ".ndjson.zst"

// writeCheckpoint writes the newest checkpoint of a database to a file, if it is sealed.
func writeCheckpoint(ctx context.Context, l Database, path string) error {
	_, signed, err := seal.Newest(ctx, l)
	if errors.Is(err, seal.ErrNoLog) {
		return nil
	}
	return cmp.Or(err, keyfile.Replace(path, signed, 0o600))
}

// PruneOld removes the runs that have ended, in short transactions. With a folder, it removes the runs that
// an archive in it has, which is named by the time before which they began.
func PruneOld(ctx context.Context, l Database, r Retirement) (all eventlog.PruneReport, err error) {
	o := eventlog.PruneOptions{Before: r.Before, Why: r.Why}
	if r.ArchiveTo == "" {
		return eventlog.PruneInSteps(ctx, l, o)
	}
	if due, err := l.PruneRuns(ctx, eventlog.PruneOptions{Before: r.Before, DryRun: true}); err != nil || due.Runs == 0 {
		return all, err
	}
	path := filepath.Join(r.ArchiveTo, r.Before.UTC().Format("2006-01-02T150405.000Z")+ArchiveSuffix)
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
