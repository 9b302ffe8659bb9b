package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/starling-host/starling/eventlog"
)

// transaction is a function of the host on its way to the file. It runs on the
// goroutine that called Transact while the writer waits, inside the writer's
// transaction: so it shares a sync with whatever has queued up beside it, and its
// panics stay its own.
type transaction struct {
	turn chan *tx   // the writer lends its transaction
	back chan error // and waits here for the function's end
	gone chan struct{}
	done chan error // capacity 1

	// The writer's, until it tells done.
	last *tx   // as the function left it
	err  error // of the function
}

// Transact implements [eventlog.Transactor]. A context that ends while the
// transaction waits for its turn undoes it; later it makes no difference.
func (l *Log) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	return l.inTransaction(ctx, func(t *tx) error { return fn(t) })
}

func (l *Log) inTransaction(ctx context.Context, fn func(*tx) error) error {
	t := &transaction{turn: make(chan *tx), back: make(chan error), gone: make(chan struct{}), done: make(chan error, 1)}
	defer close(t.gone) // whatever happens, the writer does not wait
	if err := l.queue.Put(ctx, item{Task: t}); err != nil {
		return err
	}
	for stop := ctx.Done(); ; {
		select {
		case tx := <-t.turn:
			stop = nil
			t.take(tx, fn)
		case err := <-t.done:
			return err
		case <-stop:
			return context.Cause(ctx)
		}
	}
}

// errNotReturned is what the writer hears of a function that panics.
var errNotReturned = errors.New("sqlitelog: the function of a transaction did not return")

// take runs the function in its turn.
func (t *transaction) take(tx *tx, fn func(*tx) error) {
	err := errNotReturned
	defer func() { t.back <- err }()
	err = fn(tx)
}

// errMixed means that a function has failed whose changes nothing tells apart from
// those of the rest of the batch.
var errMixed = errors.New("sqlitelog: the batch has to be written again without what a function did")

// do implements [task]. A function that fails undoes what it did, and nothing else.
// For that a savepoint is needed, which costs SQLite a copy of every page that the
// function changes; so there is none until one has failed, and then the batch is
// written again.
func (t *transaction) do(w *writer) error {
	if w.careful {
		if _, _, err := w.savepoint.exec(); err != nil {
			return fmt.Errorf("sqlitelog: savepoint: %w", err)
		}
	}
	t.last = newTx(w)
	select {
	case t.turn <- t.last:
		t.err = t.last.end(<-t.back)
	case <-t.gone:
		t.err = errNotReturned
	}
	switch {
	case isFatal(t.err):
		return t.err
	case w.careful:
		return w.endSavepoint(t.err == nil)
	case t.err != nil && t.last.wrote:
		return errMixed
	}
	return nil
}

// endSavepoint keeps what was done since the savepoint, or undoes it.
func (w *writer) endSavepoint(keep bool) error {
	if !keep {
		if _, _, err := w.undo.exec(); err != nil {
			return fmt.Errorf("sqlitelog: roll back to the savepoint: %w", err)
		}
	}
	if _, _, err := w.release.exec(); err != nil {
		return fmt.Errorf("sqlitelog: release the savepoint: %w", err)
	}
	return nil
}

// finish implements [task].
func (t *transaction) finish(l *Log, err error) {
	if err == nil && t.err == nil {
		t.last.committed(l)
	}
	if err == nil {
		err = t.err
	}
	t.done <- err
}

// Size implements [pending.Task].
func (t *transaction) Size() int { return 0 }

// View implements [eventlog.Transactor].
func (l *Log) View(ctx context.Context, fn func(eventlog.Querier) error) error {
	return l.readers.with(ctx, func(r *reader) (err error) {
		// A statement whose context ends may have been carried out all the same, and a
		// reader whose transaction nobody ends would show this moment for ever.
		if _, err := r.exec("BEGIN"); err != nil {
			return err
		}
		defer func() {
			_, rollbackErr := r.exec("ROLLBACK")
			err = errors.Join(err, rollbackErr)
		}()
		return fn(&view{ctx: ctx, conn: r.conn, stmts: &r.stmts})
	})
}

// setName is what a set of tables may be called.
var setName = regexp.MustCompile(`^[a-z_]+$`)

// CreateTables implements [eventlog.Transactor]. A log that is read-only has the
// tables or is [eventlog.ErrReadOnly].
func (l *Log) CreateTables(ctx context.Context, set eventlog.TableSet) error {
	if !setName.MatchString(set.Name) {
		return fmt.Errorf("sqlitelog: a set of tables is called %q: want letters a to z and underscores", set.Name)
	}
	if taken, err := l.TableSteps(ctx, set); err != nil || taken == len(set.Steps) {
		return err
	}
	whole := context.WithoutCancel(ctx) // a statement that is interrupted takes the transaction of others with it
	return l.inTransaction(ctx, func(t *tx) error { return t.createTables(whole, set) })
}

// TableSteps implements [eventlog.Transactor].
func (l *Log) TableSteps(ctx context.Context, set eventlog.TableSet) (taken int, err error) {
	err = l.View(ctx, func(q eventlog.Querier) error {
		known := int64(0)
		err := q.Query("SELECT count(*) FROM sqlite_schema WHERE name = 'table_set'", nil, scanInt(&known))
		if err == nil && known > 0 {
			taken, err = stepsTaken(q, set)
		}
		return err
	})
	return taken, err
}

// stepsTaken returns how many steps of the set the file has.
func stepsTaken(q eventlog.Querier, set eventlog.TableSet) (int, error) {
	var n int64
	if err := q.Query("SELECT steps FROM table_set WHERE name = $1", []any{set.Name}, scanInt(&n)); err != nil {
		return 0, err
	}
	if n > int64(len(set.Steps)) {
		return 0, fmt.Errorf("%w: the tables %q are at step %d, this program knows %d", eventlog.ErrSchemaTooNew, set.Name, n, len(set.Steps))
	}
	return int(n), nil
}

func scanInt(to *int64) func(eventlog.Row) error {
	return func(row eventlog.Row) error { return row.Scan(to) }
}

// createTables takes the steps that are missing, and makes sure that the file
// could be opened with them.
func (t *tx) createTables(ctx context.Context, set eventlog.TableSet) error {
	taken, err := stepsTaken(t, set)
	if err != nil {
		return err
	}
	t.wrote = true
	for i, step := range set.Steps[taken:] {
		if err := t.writer.conn.exec(ctx, step.SQLite); err != nil {
			return fmt.Errorf("tables %q, step %d: %w", set.Name, taken+i+1, err)
		}
	}
	if _, err := t.Exec("INSERT INTO table_set (name, steps) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET steps = excluded.steps",
		set.Name, int64(len(set.Steps))); err != nil {
		return err
	}
	all, err := objects(ctx, t.writer.conn)
	if err != nil {
		return err
	}
	if _, err := vet(all); err != nil {
		return fmt.Errorf("tables %q: %w", set.Name, err)
	}
	return nil
}
