package sqlitelog

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
)

// SchemaVersions implements [eventlog.SchemaKeeper]. Layout 0 is a file of the
// seed runtime. It fails once the log has stopped, or its file is not where it was.
func (l *Log) SchemaVersions(context.Context) (have, want int, err error) {
	if err := l.runs.Failure(); err != nil {
		return 0, 0, err
	}
	if err := l.inPlace(); err != nil {
		return 0, 0, err
	}
	return int(l.layout.Load()), layoutVersion, nil
}

// MigrateSchema implements [eventlog.SchemaKeeper]. All of it is one
// transaction: if the process dies, the file is as it was. Page size and
// auto-vacuum stay what they are, since changing them rewrites the whole file.
// A log that was opened for writing can be written to afterwards; logs that
// other processes have open keep reading.
func (l *Log) MigrateSchema(ctx context.Context, dryRun bool) (report eventlog.MigrationReport, err error) {
	report = eventlog.MigrationReport{From: int(l.layout.Load()), To: layoutVersion, DryRun: dryRun}
	if report.From == layoutVersion {
		return report, nil
	}
	report.Runs, report.Events, err = l.extent(ctx)
	if err != nil {
		return report, err
	}
	report.Steps = []string{
		"rebuild eventlog_events in append order, with the column pos",
		"add the table run, computed from the events",
		"add the table module",
		"switch to write-ahead logging",
	}
	if dryRun {
		return report, nil
	}
	if l.opts.ReadOnly {
		return report, eventlog.ErrReadOnly
	}
	return report, l.migrate(ctx)
}

// extent counts what there is to carry over.
func (l *Log) extent(ctx context.Context) (runs, events int64, err error) {
	err = l.readers.with(ctx, func(r *reader) error {
		if runs, err = r.conn.queryInt(ctx, "SELECT count(DISTINCT run_id) FROM eventlog_events"); err != nil {
			return err
		}
		events, err = r.conn.queryInt(ctx, "SELECT count(*) FROM eventlog_events")
		return err
	})
	return runs, events, err
}

// migrate holds the lock for the whole of it.
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
		if err := rebuild(ctx, c); err != nil {
			return errors.Join(err, c.exec(context.Background(), "ROLLBACK"))
		}
	}
	l.layout.Store(layoutVersion)
	return l.startWriter(ctx)
}

func rebuild(ctx context.Context, c *conn) error {
	steps := append([]string{
		"BEGIN IMMEDIATE",
		"ALTER TABLE eventlog_events RENAME TO eventlog_events_seed",
		eventsTable}, ownTables...)
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
		fmt.Sprintf("PRAGMA user_version=%d", layoutVersion),
		"COMMIT"})
}

// fillRuns computes the table run from the events, whatever state they are in:
// to judge them is the business of a check.
func fillRuns(ctx context.Context, c *conn) error {
	insert, err := c.prepare(ctx, insertRunSQL)
	if err != nil {
		return err
	}
	defer insert.Close()
	var at eventlog.Cursor
	flush := func() error {
		if at.Run().LastSeq == 0 {
			return nil
		}
		_, _, err := insert.exec(rowValues(at.Run(), 0)...)
		return err
	}
	const all = "SELECT run_id, seq, prev_hash, ts, kind, payload FROM eventlog_events ORDER BY run_id, seq"
	err = c.query(ctx, all, nil, func(row []driver.Value) error {
		id, _ := row[0].(string)
		e, err := eventOf(id, row)
		if err != nil {
			return err
		}
		if id != at.Run().RunID {
			if err := flush(); err != nil {
				return err
			}
			at = eventlog.Cursor{}
		}
		at.Skip(e)
		return nil
	})
	return errors.Join(err, flush())
}
