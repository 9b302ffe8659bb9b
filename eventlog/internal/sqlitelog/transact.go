package sqlitelog

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// transaction is a function of the host queued for the writer. It runs on the goroutine that called
// Transact, inside the writer's transaction, while the writer waits. So it shares a sync with
// everything queued beside it, and a panic stays on its own goroutine.
type transaction struct {
	lent       chan *tx   // the writer lends its transaction
	back       chan error // and waits here for the function's end
	callerGone chan struct{}
	done       chan error // capacity 1

	// Owned by the writer until done has the error.
	last *tx   // as the function left it
	err  error // of the function
}

// Transact implements [eventlog.Transactor]. If its context ends while the
// transaction waits for the writer, it is rolled back; later, that makes no
// difference.
func (l *Log) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	return l.inTransaction(ctx, func(t *tx) error { return fn(t) })
}

func (l *Log) inTransaction(ctx context.Context, fn func(*tx) error) error {
	// The writer may lend its transaction before the select below sees that ctx has ended.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := &transaction{lent: make(chan *tx), back: make(chan error), callerGone: make(chan struct{}), done: make(chan error, 1)}
	defer close(t.callerGone) // the writer never waits for it
	task := pending.Task{Do: func() error { return t.do(&l.writer) }, Done: func(err error) { t.finish(l, err) }}
	if err := l.runs.Put(ctx, item{Task: &task}); err != nil {
		return err
	}
	for stop := ctx.Done(); ; {
		select {
		case tx := <-t.lent:
			stop = nil
			t.take(tx, fn)
		case err := <-t.done:
			return err
		case <-stop:
			return context.Cause(ctx)
		}
	}
}

// errNotReturned is the error that the writer sees when a function panics.
var errNotReturned = errors.New("sqlitelog: the function of a transaction did not return")

// take runs the function in the transaction that the writer has lent.
func (t *transaction) take(tx *tx, fn func(*tx) error) {
	err := errNotReturned
	defer func() { t.back <- err }()
	err = fn(tx)
}

// errMixed means that a function failed and its changes cannot be separated from the rest of the
// batch.
var errMixed = errors.New("sqlitelog: the batch has to be written again without what a function did")

// do runs in the writer. A failed function undoes only its own changes. That needs a savepoint,
// which makes SQLite copy every page that the function changes. So the first attempt uses none;
// after a failure, the batch is written again with savepoints.
func (t *transaction) do(w *writer) error {
	if w.careful {
		if err := w.conn.exec(context.Background(), "SAVEPOINT host"); err != nil {
			return err
		}
	}
	t.last = &tx{Statements: statements(querier{context.Background(), w.conn}), writer: w}
	select {
	case t.lent <- t.last:
		// A failed statement fails the transaction, even if the function returned nil.
		if t.err = <-t.back; t.err == nil || isFatal(t.last.Failed) {
			t.err = t.last.Failed
		}
	case <-t.callerGone:
		t.err = errNotReturned
	}
	switch {
	case isFatal(t.err):
		return t.err
	case w.careful && t.err == nil:
		return w.conn.exec(context.Background(), "RELEASE host")
	case w.careful:
		return w.conn.execAll(context.Background(), []string{"ROLLBACK TO host", "RELEASE host"})
	case t.err != nil && t.last.wrote:
		return errMixed
	}
	return nil
}

// finish reports the outcome of the transaction to the caller. It holds the lock of Log.runs.
func (t *transaction) finish(l *Log, err error) {
	if err == nil && t.err == nil {
		l.runs.Committed(&t.last.changes, &l.hub)
	}
	if err == nil {
		err = t.err
	}
	t.done <- err
}

// View implements [eventlog.Transactor].
func (l *Log) View(ctx context.Context, fn func(eventlog.Querier) error) error {
	return l.readers.with(ctx, func(r *conn) (err error) {
		// A statement whose context ends may still have been carried out, and a reader
		// whose transaction never ends would see this moment for ever.
		if _, _, err := r.run("BEGIN"); err != nil {
			return err
		}
		defer func() {
			_, _, rollbackErr := r.run("ROLLBACK")
			err = errors.Join(err, rollbackErr)
		}()
		return fn(statements(querier{ctx, r}))
	})
}

// CreateTables implements [eventlog.Transactor]. A log that is read-only has the
// tables or is [eventlog.ErrReadOnly].
func (l *Log) CreateTables(ctx context.Context, set eventlog.TableSet) error {
	if missing, err := dblog.Missing(ctx, l, "sqlitelog", set); err != nil || !missing {
		return err
	}
	whole := context.WithoutCancel(ctx) // a statement that is interrupted takes the transaction of others with it
	return l.inTransaction(ctx, func(t *tx) error { return t.createTables(whole, set) })
}

// TableSteps implements [eventlog.Transactor].
func (l *Log) TableSteps(ctx context.Context, set eventlog.TableSet) (int, error) {
	return eventlog.View(ctx, l, func(q eventlog.Querier) (taken int, err error) {
		exists := false
		_, err = eventlog.QueryOne(q, "SELECT count(*) FROM sqlite_schema WHERE name = 'table_set'", nil, &exists)
		if err == nil && exists {
			taken, err = dblog.StepsTaken(q, set)
		}
		return taken, err
	})
}

// createTables takes the steps that are missing, and makes sure that the file
// could be opened with them.
func (t *tx) createTables(ctx context.Context, set eventlog.TableSet) error {
	t.wrote = true
	err := dblog.TakeSteps(t, set, func(statements string) error { return t.writer.conn.exec(ctx, statements) })
	if err != nil {
		return err
	}
	all, err := objects(ctx, t.writer.conn)
	if err == nil {
		_, err = vet(all)
	}
	if err != nil {
		return fmt.Errorf("tables %q: %w", set.Name, err)
	}
	return nil
}

// statements returns the statements of the connection's transaction.
func statements(on querier) *dblog.Statements {
	return &dblog.Statements{Name: "sqlitelog", On: on, Conflict: isConflict}
}

// tx implements [eventlog.Tx] inside the writer's transaction.
type tx struct {
	*dblog.Statements
	writer  *writer
	wrote   bool // something that would have to be undone
	changes pending.Changes
}

// Exec implements [eventlog.Tx].
func (t *tx) Exec(sql string, args ...any) (int64, error) {
	t.wrote = t.wrote || t.Ready(sql, args...) == nil
	return t.Statements.Exec(sql, args...)
}

// Append implements [eventlog.Tx]. It appends under the epoch that this
// transaction has made, if it has made one, and compares with the file alone: a
// writer in this process that is ahead of the file has lost the run.
func (t *tx) Append(runID string, ev event.Event) error {
	if t.Failed != nil {
		return t.Failed
	}
	var at pending.Position
	var err error
	if ev.Seq != 1 { // if a run begins that is there, storing its event fails
		at, err = t.writer.position(runID)
	}
	if err != nil {
		return t.Fail("append", err)
	}
	from, epoch := at.Run().LastSeq, t.changes.Epochs[runID]
	if err := at.Append(runID, ev); err != nil {
		return err
	}
	t.wrote = true
	if err := t.writer.storeEvent(ev); err != nil {
		return t.refused(runID, ev, err)
	}
	if from == 0 {
		at.Row, err = t.writer.createRow(at.Run(), len(ev.Payload), epoch)
	} else {
		err = t.writer.updateRow(at.Row, from, at.Run(), len(ev.Payload), epoch)
	}
	if err != nil {
		t.Failed = err
		return err
	}
	t.changes.Move(runID, at)
	return nil
}

// refused explains why an event could not be stored. An existing one changes
// nothing.
func (t *tx) refused(runID string, ev event.Event, err error) error {
	if isConflict(err) {
		at, lookErr := t.writer.position(runID)
		if refusal := at.Append(runID, ev); lookErr == nil && refusal != nil {
			return refusal
		}
	}
	return t.Fail("append", err)
}

// Fence implements [eventlog.Tx].
func (t *tx) Fence(runID string) (epoch uint64, err error) {
	if t.Failed != nil {
		return 0, t.Failed
	}
	t.wrote = true
	if epoch, err = t.writer.conn.epoch(context.Background(), fenceSQL, runID); err != nil {
		return 0, t.Fail("fence", err)
	}
	t.changes.Fence(runID, epoch)
	at, moved := t.changes.Moved[runID]
	if !moved {
		at, err = t.writer.position(runID)
	}
	switch {
	case err == nil:
		t.changes.Give(runID, at)
	case !errors.Is(err, eventlog.ErrLogCorrupt): // reading the run reports that
		return 0, t.Fail("fence", err)
	}
	return epoch, nil
}

// position returns the position of the run in the file. It brings its row up to date if
// another program has appended to the run.
func (w *writer) position(runID string) (at pending.Position, err error) {
	q := querier{context.Background(), w.conn}
	at, last, err := dialect.Find(q, runID)
	if err == nil && last > at.Run().LastSeq {
		if err = dialect.Reindex(q.ctx, q, w.conn.page, runID); err == nil {
			at, _, err = dialect.Find(q, runID)
		}
	}
	return at, err
}

// A run that was never fenced has no row in run_fence and has epoch 0: the epoch
// of the log itself, outside every writer's epoch. The statements that write the
// run's row compare the epoch in the transaction that writes the events. So they
// leave out what a writer had queued when its run was given away.
const (
	inEpochSQL = "coalesce((SELECT epoch FROM run_fence WHERE run_id = ?), 0) = ?"
	epochSQL   = "SELECT epoch FROM run_fence WHERE run_id = ?"
	fenceSQL   = "INSERT INTO run_fence (run_id, epoch) VALUES (?, 1) ON CONFLICT DO UPDATE SET epoch = epoch + 1 RETURNING epoch"
)

// epoch returns the last epoch of a run, zero if it was never fenced. The query is
// epochSQL, or fenceSQL, which makes a new one.
func (c *conn) epoch(ctx context.Context, query, runID string) (epoch uint64, err error) {
	err = c.query(ctx, query, []any{runID}, func(row []driver.Value) error {
		n, ok := row[0].(int64)
		if !ok || n < 0 {
			return fmt.Errorf("%w: run_fence holds the epoch %v", eventlog.ErrLogCorrupt, row[0])
		}
		epoch = uint64(n)
		return nil
	})
	return epoch, err
}
