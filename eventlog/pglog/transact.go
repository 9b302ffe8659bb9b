package pglog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/starling-host/starling/eventlog"
)

// maxAttempts bounds how often a transaction is tried that the server undoes because of
// another one.
const maxAttempts = 20

// idleTime is how long a transaction may do nothing before the server ends it. It frees
// what a host that was cut off from the network has locked.
const idleTime = 30 * time.Second

// Transact implements [eventlog.Transactor]. The server runs it at the isolation level
// SERIALIZABLE and undoes it when it cannot be put in a row with others; then, and when
// the connection breaks, it is run again, up to twenty times, after a random pause.
// Events that Append takes are written at its end.
//
// When the connection breaks in COMMIT, it is found out what has become of the
// transaction, for as long as [Options].Patience; if it cannot be, the log stops.
func (l *Log) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	if err := l.runs.Writable(); err != nil {
		return err
	}
	m := l.marks.take()
	defer l.marks.put(m)
	var touched []string // runs that the attempt before could not get at
	for attempt := 1; ; attempt++ {
		t := &Tx{log: l, mark: m}
		err := l.inTx(ctx, touched, pgx.Serializable, func(tx pgx.Tx) error { return t.run(ctx, tx, fn) })
		if lost, ok := errors.AsType[*unanswered](err); ok {
			err = l.findOut(m, lost.cause)
		}
		if err == nil {
			t.committed()
			return nil
		}
		if attempt == maxAttempts || !isRefusal(err) && !errors.Is(err, errUndone) && !t.wasBehind(ctx) {
			return err
		}
		touched = t.touched()
		wait(ctx, rand.N(pause(attempt)))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// unanswered is the error of a COMMIT whose outcome is not known.
type unanswered struct{ cause error }

// Error says what has happened to the connection.
func (u *unanswered) Error() string {
	return fmt.Sprintf("pglog: whether the transaction was committed is unknown: %v", u.cause)
}

// Unwrap returns what has happened to the connection.
func (u *unanswered) Unwrap() error { return u.cause }

// inTx runs fn in a transaction, and commits it so that it is durable. Nobody appends to
// the runs in the meantime.
func (l *Log) inTx(ctx context.Context, runs []string, level pgx.TxIsoLevel, fn func(pgx.Tx) error) error {
	conn, err := l.pool.Acquire(ctx)
	if isTransient(err) {
		err = fmt.Errorf("%w: %w", errUndone, err)
	}
	if err != nil {
		return fmt.Errorf("pglog: %w", orUnavailable(err))
	}
	defer conn.Release()
	err = inOpenTx(ctx, conn, runs, level, fn)
	if _, lost := errors.AsType[*unanswered](err); err != nil && !lost && conn.Conn().IsClosed() {
		err = fmt.Errorf("%w: %w", errUndone, err)
	}
	return err
}

// beginSQL begins a transaction. A serialisable one that scans a whole table conflicts
// with each other one that changes anything in it, so the server is to use an index
// wherever there is one, also where a scan would be cheaper.
const beginSQL = "BEGIN ISOLATION LEVEL %s READ WRITE; " + durably + `;
	SET LOCAL idle_in_transaction_session_timeout = %d; SET LOCAL enable_seqscan = off; SET LOCAL jit = off`

// inOpenTx is inTx on a connection.
func inOpenTx(ctx context.Context, conn *pgxpool.Conn, runs []string, level pgx.TxIsoLevel, fn func(pgx.Tx) error) error {
	if len(runs) > 0 {
		unlock, err := lockGates(ctx, conn, runs)
		if err != nil {
			return err
		}
		defer unlock()
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(beginSQL, level, true, idleTime.Milliseconds())})
	if err != nil {
		return fmt.Errorf("pglog: begin: %w", orUnavailable(err))
	}
	defer undo(ctx, tx)
	if err := fn(tx); err != nil {
		return orUnavailable(err)
	}
	return commit(ctx, tx)
}

// undo rolls back what was not committed.
func undo(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	tx.Rollback(ctx)
}

// commit commits. From here on the caller's context makes no difference.
func commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTime)
	defer cancel()
	err := tx.Commit(ctx)
	e, fromServer := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback), fromServer && e.SeverityUnlocalized == "ERROR":
		return fmt.Errorf("pglog: commit: %w", orUnavailable(err))
	}
	return &unanswered{err}
}

// View implements [eventlog.Transactor].
func (l *Log) View(ctx context.Context, fn func(eventlog.Querier) error) error {
	if err := l.readable(); err != nil {
		return err
	}
	tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("pglog: begin: %w", orUnavailable(err))
	}
	defer undo(ctx, tx)
	return fn(&view{ctx: ctx, tx: tx})
}

// setName is what a set of tables may be called.
var setName = regexp.MustCompile(`^[a-z_]+$`)

// CreateTables implements [eventlog.Transactor]. The role needs to be one that may
// create tables only if steps are missing ([Denied] if it may not); see
// [InstallSchema]. A log that is read-only has the tables or is [eventlog.ErrReadOnly].
func (l *Log) CreateTables(ctx context.Context, set eventlog.TableSet) error {
	if !setName.MatchString(set.Name) || set.Name == layoutSet {
		return fmt.Errorf("pglog: a set of tables is called %q: want letters a to z and underscores, and not %s", set.Name, layoutSet)
	}
	if taken, err := l.TableSteps(ctx, set); err != nil || taken == len(set.Steps) {
		return err
	}
	if err := l.runs.Writable(); err != nil {
		return err
	}
	err := l.inTx(ctx, nil, pgx.ReadCommitted, func(tx pgx.Tx) error { return createTables(ctx, tx, set) })
	return l.explainForeign(err)
}

// TableSteps implements [eventlog.Transactor].
func (l *Log) TableSteps(ctx context.Context, set eventlog.TableSet) (int, error) {
	if err := l.readable(); err != nil {
		return 0, err
	}
	return stepsTaken(ctx, l.pool, set)
}

// stepsTaken returns how many steps of the set the database has.
func stepsTaken(ctx context.Context, q rowQuerier, set eventlog.TableSet) (n int, err error) {
	err = q.QueryRow(ctx, "SELECT coalesce(max(steps), 0) FROM table_set WHERE name = $1", set.Name).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("pglog: tables %q: %w", set.Name, err)
	}
	if n > len(set.Steps) {
		return 0, fmt.Errorf("%w: the tables %q are at step %d, this program knows %d", eventlog.ErrSchemaTooNew, set.Name, n, len(set.Steps))
	}
	return n, nil
}

// createTables takes the steps that are missing.
func createTables(ctx context.Context, tx pgx.Tx, set eventlog.TableSet) error {
	if err := lockTables(ctx, tx); err != nil {
		return err
	}
	taken, err := stepsTaken(ctx, tx, set)
	if err != nil {
		return err
	}
	for i, step := range set.Steps[taken:] {
		if _, err := tx.Exec(ctx, step.Postgres); err != nil {
			return fmt.Errorf("pglog: tables %q, step %d: %w", set.Name, taken+i+1, err)
		}
	}
	const record = "INSERT INTO table_set (name, steps) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET steps = excluded.steps"
	if _, err := tx.Exec(ctx, record, set.Name, len(set.Steps)); err != nil {
		return fmt.Errorf("pglog: tables %q: %w", set.Name, err)
	}
	return nil
}
