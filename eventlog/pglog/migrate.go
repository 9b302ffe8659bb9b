package pglog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// SchemaVersions implements [eventlog.SchemaKeeper]. Layout 0 is a database without our
// tables, or with those of the seed runtime alone.
func (l *Log) SchemaVersions(ctx context.Context) (have, want int, err error) {
	if have, err = findLayout(ctx, l.pool); err != nil {
		return 0, 0, l.explainForeign(err)
	}
	l.layout.Store(int64(have))
	return have, layoutVersion, nil
}

// MigrateSchema implements [eventlog.SchemaKeeper]. All of it is one transaction, and a
// second program that migrates at the same time waits and finds it done. The role has to
// be one that may create tables; see [InstallSchema] for another way.
func (l *Log) MigrateSchema(ctx context.Context, dryRun bool) (report eventlog.MigrationReport, err error) {
	have, want, err := l.SchemaVersions(ctx)
	report = eventlog.MigrationReport{From: have, To: want, DryRun: dryRun}
	switch {
	case err != nil:
	case have > want:
		err = eventlog.CheckSchema(have, want)
	case have == want:
		err = l.catchUp(ctx, &report)
	case l.opts.ReadOnly && !dryRun:
		err = eventlog.ErrReadOnly
	default:
		err = l.inTx(ctx, nil, pgx.ReadCommitted, func(tx pgx.Tx) error { return migrate(ctx, tx, &report) })
		if err != nil {
			err = fmt.Errorf("pglog: migrate: %w", l.explainForeign(err))
		}
	}
	if err != nil || dryRun || l.opts.ReadOnly {
		return report, err
	}
	l.layout.Store(layoutVersion)
	return report, l.CreateTables(ctx, eventlog.ModuleTables)
}

// catchUp is a migration of a database that has our layout: what another program has
// appended, or what was restored without the table run, is added to that.
func (l *Log) catchUp(ctx context.Context, report *eventlog.MigrationReport) error {
	ids, err := l.unindexed(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	report.Runs, report.Steps = int64(len(ids)), []string{eventlog.StepCatchUp}
	if report.DryRun {
		return nil
	}
	if err := l.runs.Writable(); err != nil {
		return err
	}
	_, err = l.behind(ctx)
	return err
}

// Grant runs what [Grants] returns, in one transaction. The connection's role has to own
// the tables; one that does not is told so by an error of which [Denied] is true.
func (l *Log) Grant(ctx context.Context, r Roles, sets ...eventlog.TableSet) error {
	if l.opts.ReadOnly {
		return eventlog.ErrReadOnly
	}
	return l.inTx(ctx, nil, pgx.ReadCommitted, func(tx pgx.Tx) error {
		if err := lockTables(ctx, tx); err != nil { // or the server refuses one of two that grant at once
			return err
		}
		if err := mustOwn(ctx, tx, "eventlog_events"); err != nil {
			return fmt.Errorf("pglog: grant: %w", err)
		}
		if _, err := tx.Exec(ctx, Grants(r, sets...)); err != nil {
			return fmt.Errorf("pglog: grant: %w", err)
		}
		return nil
	})
}

// mustOwn refuses a role that does not own the tables, of which one is named. The server
// only warns when one grants what it has and may not hand on.
func mustOwn(ctx context.Context, q rowQuerier, table string) error {
	const query = "SELECT pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1::text::regclass"
	var owner string
	var owns bool
	if err := q.QueryRow(ctx, query, table).Scan(&owner, &owns); err != nil {
		return fmt.Errorf("look for the owner of the tables: %w", err)
	}
	if !owns {
		return fmt.Errorf("%w %q", errNotOwner, owner)
	}
	return nil
}

// migrationLock is the key of the lock that programs hold while they change tables
// ("STLH").
const migrationLock = 0x53544C48

// lockTables waits until nobody else changes tables.
func lockTables(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", migrationLock)
	return err
}

func migrate(ctx context.Context, tx pgx.Tx, report *eventlog.MigrationReport) error {
	if !report.DryRun {
		if err := lockTables(ctx, tx); err != nil {
			return err
		}
	}
	have, err := findLayout(ctx, tx)
	if err != nil || have == layoutVersion {
		return err // another process was faster
	}
	seed, err := hasTable(ctx, tx, "eventlog_events")
	if err != nil {
		return err
	}
	create := eventsTable + migrationsTable + ownTables
	report.Steps = []string{"create the tables"}
	if seed {
		create = ownTables
		report.Steps = []string{"add the table run, computed from the events", "add the tables module and table_set"}
		const extent = "SELECT count(DISTINCT run_id), count(*) FROM eventlog_events"
		if err := tx.QueryRow(ctx, extent).Scan(&report.Runs, &report.Events); err != nil {
			return err
		}
	}
	if report.DryRun {
		return nil
	}
	if _, err := tx.Exec(ctx, create); err != nil {
		return err
	}
	if seed {
		return fillRuns(ctx, tx)
	}
	return nil
}

// fillRuns computes the table run from the events, whatever state they are in: to judge
// them is the business of a check. It holds a run at a time.
func fillRuns(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "LOCK TABLE eventlog_events IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return err
	}
	next := ""
	for {
		err := tx.QueryRow(ctx, "SELECT coalesce(min(run_id), '') FROM eventlog_events WHERE run_id > $1", next).Scan(&next)
		if err != nil || next == "" {
			return err
		}
		if err := fillRun(ctx, tx, next); err != nil {
			return err
		}
	}
}

func fillRun(ctx context.Context, tx pgx.Tx, runID string) error {
	var at eventlog.Cursor
	read := func(ctx context.Context, runID string, after uint64, n int) ([]event.Event, error) {
		return page(ctx, tx, runID, after, n)
	}
	for e, err := range tail.Events(ctx, runID, 0, read) {
		if err != nil {
			return err
		}
		at.Skip(e)
	}
	var c columns
	c.addRun(runID, 0, 0)
	c.stand(0, at.Run())
	_, err := c.insert(ctx, tx.Conn(), nil)
	return err
}
