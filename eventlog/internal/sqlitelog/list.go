package sqlitelog

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

// A listing compares the rows of all runs with their events, unless every event since the
// last comparison was this process's own.

// position is an event's place in the order of appending. A row that was deleted gives
// its pos to a later one, so pos alone does not name an event.
type position struct {
	pos   int64
	runID string
	seq   int64
}

// compared is the position up to which the table run has been compared with the events.
type compared struct {
	mu   sync.Mutex
	once bool     // all rows were compared
	upTo position // the newest event then, or the writer's last one since
}

// wrote records a transaction of the writer: its last event before and after it, and
// whether another connection has committed in between.
func (c *compared) wrote(before, after position, others bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.once && !others && c.upTo.pos >= before.pos {
		c.upTo = after
	}
}

// maxGap is how many events since the last comparison are read one by one.
// Comparing all runs by the index over their events is faster than reading more
// rows.
const maxGap = 10_000

// behind returns the runs whose rows lack events and could not be brought up to date by a log
// opened for writing. In a file of the Starling runtime these are all runs.
func (l *Log) behind(ctx context.Context, _ dblog.Use) ([]string, error) {
	l.compared.mu.Lock()
	from := l.compared.upTo
	if !l.compared.once {
		from = position{}
	}
	l.compared.mu.Unlock()
	var newest position
	ids, err := l.index.Lagging(ctx, func() (ids []string, err error) {
		err = l.readers.with(ctx, func(r *conn) error {
			if newest, err = r.newest(ctx); err != nil || newest == from && newest.pos != 0 {
				return err
			}
			ids, err = r.behind(ctx, l.indexed(), from, newest)
			return err
		})
		return ids, err
	})
	if err == nil && len(ids) == 0 {
		l.compared.mu.Lock()
		l.compared.once, l.compared.upTo = true, newest
		l.compared.mu.Unlock()
	}
	return ids, err
}

// newest returns the event that was appended last.
func (c *conn) newest(ctx context.Context) (at position, err error) {
	const last = "SELECT rowid, " + boundedID + ", seq FROM eventlog_events ORDER BY rowid DESC LIMIT 1"
	err = c.query(ctx, last, nil, func(row []driver.Value) error {
		at.pos, _ = row[0].(int64)
		at.runID, _ = row[1].(string)
		at.seq, _ = row[2].(int64)
		return nil
	})
	return at, err
}

// The runs whose rows are behind their events: among all runs, and among runs with
// events appended between two positions.
const (
	lacksEvents   = "coalesce((SELECT last_seq FROM run WHERE run.run_id = e.run_id), 0) < e.seq"
	eachRun       = "(SELECT run_id, max(seq) AS seq FROM eventlog_events GROUP BY run_id) AS e"
	behindSQL     = "SELECT " + boundedID + " FROM " + eachRun + " WHERE " + lacksEvents
	behindGapSQL  = "SELECT DISTINCT " + boundedID + " FROM eventlog_events AS e WHERE e.rowid > ? AND " + lacksEvents
	everyRunSQL   = "SELECT DISTINCT " + boundedID + " FROM eventlog_events"
	isPositionSQL = "SELECT count(*) FROM eventlog_events WHERE rowid = ? AND run_id = ? AND seq = ?"
)

// behind returns the runs whose rows lack events, given that all rows had the events up to from.
func (c *conn) behind(ctx context.Context, indexed bool, from, newest position) (ids []string, err error) {
	query, args := behindSQL, []any(nil)
	switch gap := newest.pos - from.pos; {
	case !indexed:
		query = everyRunSQL
	case from.pos != 0 && 0 <= gap && gap <= maxGap:
		there, err := c.integer(ctx, isPositionSQL, from.pos, from.runID, from.seq)
		if err != nil {
			return nil, err
		}
		if there > 0 {
			query, args = behindGapSQL, []any{from.pos}
		}
	}
	err = c.query(ctx, query, args, func(row []driver.Value) error {
		id, ok := row[0].(string)
		if !ok {
			return fmt.Errorf("%w: column run_id holds a %T, or an id that is too long", eventlog.ErrLogCorrupt, row[0])
		}
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

// reindex brings the rows of runs up to date with their events.
func (l *Log) reindex(ctx context.Context, ids ...string) error {
	ids = slices.Clone(ids)
	_, err := perform(ctx, l, 0, func(w *writer) (none struct{}, err error) {
		ctx := context.Background()
		return none, dialect.Reindex(ctx, querier{ctx, w.conn}, w.conn.page, ids...)
	})
	return err
}

// PruneRuns implements [eventlog.Store]. The writer removes the runs between two batches,
// in one transaction.
//
// The content of runs removed by id is overwritten, because a caller that names runs wants it erased.
// After [Compact] it is in no page of the file, and in its WAL until the last log of the file is closed
// at the latest. The others give room back, and overwriting all of it would write as much as was
// recorded; but where a removal moves remaining rows, it leaves no copy behind that a later one would
// not find.
func (l *Log) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (eventlog.PruneReport, error) {
	overwrite := "FAST"
	if len(o.RunIDs) > 0 {
		overwrite = "ON"
	}
	return l.index.Prune(ctx, o, func(doomed, mark string, args, marking []any) (eventlog.PruneReport, error) {
		return perform(ctx, l, 0, func(w *writer) (report eventlog.PruneReport, err error) {
			ctx := context.Background()
			if err := w.conn.exec(ctx, "PRAGMA secure_delete="+overwrite); err != nil {
				return report, err
			}
			defer func() { _ = w.conn.exec(ctx, "PRAGMA secure_delete=OFF") }() // left on, it costs time alone
			err = querier{ctx, w.conn}.Query(doomed+dblog.CountDoomed, args, dblog.ScanReport(&report))
			if err == nil && mark != "" {
				err = w.conn.exec(ctx, doomed+" "+mark, marking...)
			}
			if err == nil {
				err = w.conn.exec(ctx, doomed+" DELETE FROM module_use WHERE used_by IN (SELECT run_id FROM doomed)"+dblog.NoFolder, args...)
			}
			for _, table := range []string{"eventlog_events", "run_fence", "run"} { // run last, because it names the runs
				if err == nil {
					err = w.conn.exec(ctx, doomed+" DELETE FROM "+table+" WHERE run_id IN (SELECT run_id FROM doomed)", args...)
				}
			}
			return report, err
		})
	})
}
