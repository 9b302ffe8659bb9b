package sqlitelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

// SchemaVersions implements [eventlog.Database]. Layout 0 is a file of the
// Starling runtime. It fails once the log has stopped, or its file is not where it was.
func (l *Log) SchemaVersions(context.Context) (have, want int, err error) {
	if err := l.runs.Failure(); err != nil {
		return 0, 0, err
	}
	if err := l.inPlace(); err != nil {
		return 0, 0, err
	}
	return int(l.layout.Load()), layoutVersion, nil
}

// MigrateSchema implements [eventlog.Database]. The migration is one transaction: if
// the process dies, the file is unchanged. Page size and auto-vacuum stay, since
// changing them rewrites the whole file. A log that was opened for writing can be
// written to afterwards; logs that other processes have open keep reading. In a file
// of our layout it brings the table run up to date.
func (l *Log) MigrateSchema(ctx context.Context, dryRun bool) (report eventlog.MigrationReport, err error) {
	layout := int(l.layout.Load())
	report = eventlog.MigrationReport{From: layout, To: layoutVersion, DryRun: dryRun}
	if layout == layoutVersion {
		ids, err := dblog.Get(ctx, l.readers.with, func(r *conn) ([]string, error) { return r.behind(ctx, true, position{}, position{}) })
		if err != nil {
			return report, err
		}
		return report, l.index.CatchUp(ctx, &report, ids)
	}
	const extent = "SELECT count(DISTINCT run_id), count(*) FROM eventlog_events"
	err = l.read(ctx, func(q eventlog.Querier) error {
		return q.Query(extent, nil, func(r eventlog.Row) error { return r.Scan(&report.Runs, &report.Events) })
	})
	if err != nil {
		return report, err
	}
	report.Steps = []string{eventlog.StepCount}
	if layout == seedLayout {
		report.Steps = []string{
			"rebuild eventlog_events in append order, with the column pos",
			"add the table run, computed from the events",
			"add the table module",
			"switch to write-ahead logging"}
	}
	if dryRun {
		return report, nil
	}
	if l.opts.ReadOnly {
		return report, eventlog.ErrReadOnly
	}
	return report, l.migrate(ctx)
}

// migrate holds the lock throughout.
func (l *Log) migrate(ctx context.Context) (err error) {
	if err := l.lock.Lock(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.lock.Unlock()) }()
	c := l.writer.conn
	layout, err := examine(ctx, c)
	if err != nil {
		return err
	}
	if layout < layoutVersion { // another process may have been faster
		err := c.exec(ctx, "BEGIN IMMEDIATE")
		if err == nil && layout == seedLayout {
			err = rebuild(ctx, c)
		} else if err == nil {
			err = addCounts(ctx, c)
		}
		if err == nil {
			err = c.exec(ctx, "COMMIT")
		}
		if err != nil {
			return errors.Join(err, c.exec(context.Background(), "ROLLBACK"))
		}
	}
	l.layout.Store(layoutVersion)
	return l.startWriter(ctx)
}

// addCounts brings a file of layout 1 to layout 2.
func addCounts(ctx context.Context, c *conn) error {
	return c.execAll(ctx, []string{
		"ALTER TABLE run ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0",
		"ALTER TABLE run ADD COLUMN counted INTEGER NOT NULL DEFAULT 0",
		dialect.Recount,
		fmt.Sprintf("PRAGMA user_version=%d", layoutVersion)})
}

// rebuild brings a file of the Starling runtime to our layout.
func rebuild(ctx context.Context, c *conn) error {
	steps := append([]string{
		"ALTER TABLE eventlog_events RENAME TO eventlog_events_seed",
		eventsTable,
		"INSERT OR IGNORE INTO eventlog_schema_migrations (version, applied_at) VALUES (1, 0), (2, 0)"}, ownTables...)
	steps = append(steps,
		`INSERT INTO eventlog_events (run_id, seq, prev_hash, ts, kind, payload)
			SELECT run_id, seq, prev_hash, ts, kind, payload FROM eventlog_events_seed ORDER BY rowid`,
		"DROP TABLE eventlog_events_seed")
	if err := c.execAll(ctx, steps); err != nil {
		return err
	}
	if err := fillRuns(ctx, c); err != nil {
		return err
	}
	return c.execAll(ctx, []string{
		fmt.Sprintf("PRAGMA application_id=%d", applicationID),
		fmt.Sprintf("PRAGMA user_version=%d", layoutVersion)})
}

// fillRuns computes the table run from the events, valid or not: validation is left to a check.
func fillRuns(ctx context.Context, c *conn) error {
	ids, err := c.behind(ctx, true, position{}, position{})
	if err == nil {
		err = dialect.Reindex(ctx, querier{ctx, c}, c.page, ids...)
	}
	return err
}
