package pglog

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

// Comparing all runs with their events makes the server read the whole index of the events:
// about a second for a million. So all runs are compared for a list of all of them, and for
// pruning without names unless that was done within compareEvery. No page waits for it: of the
// logs that write and show pages, one compares in compareEvery, in the background.
const compareEvery = 24 * time.Hour

// compared is the last comparison of all runs with their events.
type compared struct {
	every time.Duration // compareEvery

	mu      sync.Mutex // guards what follows
	at      time.Time
	behind  []string // the runs it has returned
	running bool     // another comparison is in progress, for the pages of a log that writes
	work    sync.WaitGroup
}

// behindSQL yields the runs whose rows lack events. The table that the Starling runtime made
// has another collation.
const behindSQL = `SELECT e.run_id FROM (SELECT run_id, max(seq) AS seq FROM eventlog_events GROUP BY run_id) AS e
	LEFT JOIN run ON run.run_id = e.run_id COLLATE "C" WHERE coalesce(run.last_seq, 0) < e.seq`

// unindexed returns the runs whose rows lack events.
func (l *Log) unindexed(ctx context.Context) ([]string, error) { return l.index.IDs(ctx, behindSQL) }

// compare returns the runs of whose events the table run lacks some, and that a log which
// writes could not bring up to date.
func (l *Log) compare(ctx context.Context) ([]string, error) {
	began := time.Now()
	ids, err := l.index.Lagging(ctx, func() ([]string, error) { return l.unindexed(ctx) })
	if err == nil {
		l.compared.mu.Lock()
		l.compared.at, l.compared.behind = began, ids
		l.compared.mu.Unlock()
	}
	return ids, err
}

// behind is compare, but for a page or for pruning the result is that of an earlier comparison.
func (l *Log) behind(ctx context.Context, use dblog.Use) ([]string, error) {
	c := &l.compared
	c.mu.Lock()
	ids, recent := c.behind, time.Since(c.at) < c.every
	if use == dblog.ForPage && !l.opts.ReadOnly && !recent && !c.running && !l.runs.Closed() {
		c.running = true
		c.work.Go(l.compareInTurn)
	}
	c.mu.Unlock()
	if use == dblog.ForPage || use == dblog.ForPruning && recent {
		return ids, nil
	}
	return l.compare(ctx)
}

// compareInTurn compares in the background, unless another log on the database has lately. A server in
// trouble is not asked again at once.
func (l *Log) compareInTurn() {
	const turn = `INSERT INTO commit_mark (slot, mark, at) VALUES ('compared', 0, $1)
		ON CONFLICT (slot) DO UPDATE SET at = excluded.at WHERE commit_mark.at <= $2`
	ctx, now, c := l.notifier.ctx, time.Now(), &l.compared // ctx ends with the log
	tag, err := l.pool.Exec(ctx, turn, now.UnixNano(), now.Add(-c.every).UnixNano())
	if err == nil && tag.RowsAffected() == 1 {
		_, err = l.compare(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running = false; err != nil || tag.RowsAffected() == 0 {
		c.at = now
	}
}

// reindex brings the rows of runs up to date with their events.
func (l *Log) reindex(ctx context.Context, ids ...string) error {
	if err := l.runs.Writable(); err != nil {
		return err
	}
	for _, id := range ids {
		err := l.read(ctx, func(q eventlog.Querier) error { return dialect.Reindex(ctx, q.(querier), l.page, id) })
		if err != nil {
			return err
		}
	}
	return nil
}

// inPartition lets the server look for the events of a run $1 in one partition: that of the time in its
// id (docs/partitions.md). In a table without partitions it is true of each row of the run.
const inPartition = " AND right(eventlog_events.run_id, 26) = right($1, 26)"

// dialect is the SQL that PostgreSQL and this layout spell their own way.
var dialect = dblog.Compile(dblog.Dialect{
	Name: "pglog", Key: "0, epoch, run_id", Order: "run_id", HasEvents: "last_seq > 0", NewKey: "epoch, run_id", NewValue: "0, $1",
	LastSeq: "max(seq)", Partition: inPartition, Segment: "split_part(run_id, '/', 1)", Position: "strpos", ULID: "right(run_id, 26)",
	Elements: "SELECT unnest(%s::text[])", List: func(ids []string) any { return ids }, Holds: isText,
})

// PruneRuns implements [eventlog.Store]. All runs are removed in one transaction.
func (l *Log) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (eventlog.PruneReport, error) {
	return l.index.Prune(ctx, o, func(doomed, mark string, _, args []any) (report eventlog.PruneReport, err error) {
		err = l.change(ctx, func(tx pgx.Tx) error {
			q := querier{ctx, tx}
			err := q.Query(doomed+marking(mark)+removeEventsSQL+removeSQL, args, dblog.ScanReport(&report))
			if everything := o.IncludeOpen && o.Status == "" && o.Before.IsZero() && o.Limit <= 0 && len(o.RunIDs) == 0; err == nil && everything {
				// Runs that were given to a writer and never had an event go with the namespace.
				c := dialect.Select("last_seq = 0").Namespace(o.Namespace)
				_, err = q.Exec("DELETE FROM run"+c.Where(), c.Args...)
			}
			return err
		})
		return report, err
	})
}

// marking is the part of a statement that records removals, if there is one.
func marking(mark string) string {
	if mark == "" {
		return ""
	}
	return ", marked AS (" + mark + ")"
}

const removeEventsSQL = `, events AS (
	DELETE FROM eventlog_events USING doomed WHERE eventlog_events.run_id = doomed.run_id
)`

// removeSQL removes the rows of the runs in doomed, and counts the runs that it has removed itself.
const removeSQL = `, unused AS (
	DELETE FROM module_use USING doomed WHERE module_use.used_by = doomed.run_id` + dblog.NoFolder + `
), gone AS (
	DELETE FROM run USING doomed WHERE run.run_id = doomed.run_id RETURNING run.last_seq
)
SELECT count(*), coalesce(sum(last_seq), 0)::bigint FROM gone`
