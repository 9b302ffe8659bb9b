package eventlog

import (
	"context"
	"errors"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

// ErrFenced means that the run has been given to a later writer: see
// [Tx.Fence]. It wraps [ErrInvalidAppend].
var ErrFenced error = fencedError{}

type fencedError struct{}

func (fencedError) Error() string { return "eventlog: the run was given to another writer" }
func (fencedError) Unwrap() error { return ErrInvalidAppend }

// ErrConflict means that a transaction met an existing row.
var ErrConflict = errors.New("eventlog: the row exists")

// Transactor is implemented by logs in a database where their host keeps its own
// tables, so that an event and the host's rows about it are committed together
// or not at all.
type Transactor interface {
	// TableSteps returns how many steps of a set of tables the database has. More than
	// the program knows is [ErrSchemaTooNew].
	TableSteps(ctx context.Context, set TableSet) (int, error)

	// CreateTables brings a set of tables to its last step. Existing steps are
	// left alone; a set that has more steps than the program knows is
	// [ErrSchemaTooNew].
	CreateTables(ctx context.Context, set TableSet) error

	// Transact runs fn in a transaction that is serialisable with every other one,
	// and commits. When it returns nil, all of it is durable, and so is all that fn has
	// read. An error of fn rolls the transaction back and is returned as it is, once
	// what fn has read is durable. fn may run several times, must be quick, and MUST NOT
	// call the log.
	Transact(ctx context.Context, fn func(Tx) error) error

	// View runs fn on one consistent, read-only state of the database, some of which may
	// not be durable yet: see [Confirm].
	View(ctx context.Context, fn func(Querier) error) error
}

// TableSet is the tables of one part of the host. Its steps are applied in order,
// each once; the order and the texts of released steps never change. A step is statements
// separated by semicolons, with the words of SQLite: on a server a BLOB becomes a BYTEA, an
// INTEGER a BIGINT, a REAL a DOUBLE PRECISION, and COLLATE BINARY becomes COLLATE "C".
type TableSet struct {
	Name   string   // such as "tenant"; [a-z_]
	Tables []string // the names of the tables after the last step, for granting rights
	Steps  []string

	// Added is how many of the last steps a program that lacks them can work beside. It is for
	// steps that a release has first: hosts of the release before then share the database. The next
	// release may need them.
	Added int

	// Retention has the rights that a role needs to prune, such as "SELECT, DELETE", by
	// table. A host, which prunes as well, has all rights on all of them.
	Retention map[string]string
}

// Querier reads tables.
type Querier interface {
	// Query runs one statement and calls row for each row of its result until that
	// returns an error. Until Query returns, row has the transaction to itself and MUST
	// NOT run another statement. Placeholders are $1, $2 and so on; arguments are nil,
	// bool, int64, float64, string or []byte. Points in time are kept as nanoseconds
	// since 1970.
	Query(sql string, args []any, row func(Row) error) error
}

// Row is one row of a result.
type Row interface {
	// Scan copies the columns into *bool, *int, *int64, *uint64, *float64, *string, *[]byte,
	// *canon.Hash or *time.Time. NULL leaves zero; for a time, so does 0.
	Scan(to ...any) error
}

// Tx is a transaction. It belongs to the function that receives it, and to one
// goroutine. A statement that fails, also with [ErrConflict], fails the
// transaction: it is rolled back even if the function returns nil. Where a row
// may exist, use ON CONFLICT.
type Tx interface {
	Querier

	// Exec runs one statement and returns how many rows it changed. An existing
	// row is [ErrConflict].
	Exec(sql string, args ...any) (changed int64, err error)

	// Append takes an event as EventLog.Append does, under the epoch that this
	// transaction has made of the run, or under none.
	Append(runID string, ev event.Event) error

	// Fence makes a new epoch of the run, greater than all before, from 1. Once the
	// transaction is committed, events of the run under an earlier epoch, or none,
	// are refused with [ErrFenced], including queued ones.
	Fence(runID string) (epoch uint64, err error)
}

// Bulk is implemented by transactions on a server, where each statement costs a round
// trip. Their statements also take []int64, []float64, []string and [][]byte as arrays, so
// that one statement can change many rows.
type Bulk interface {
	// FenceAll is Tx.Fence of many runs, in one statement.
	FenceAll(runIDs []string) (epochs map[string]uint64, err error)
}

// Shared is implemented by logs on a server, which processes on many machines use at
// once.
type Shared interface {
	// TransactCommitted is Transact at the isolation level READ COMMITTED: each statement sees what
	// others have committed by then, and no transaction is rolled back because of what it has read. So a
	// row that is read and then changed is locked by the statement that reads it (FOR UPDATE), or changed
	// by one that says in its conditions what the row must be.
	TransactCommitted(ctx context.Context, fn func(Tx) error) error

	// Now returns the server's time.
	Now(ctx context.Context) (time.Time, error)

	// Signal wakes the other processes that use the database, soon and without waiting. A
	// signal may be lost, so they poll as well.
	Signal()

	// OnSignal calls heard after each signal of another process, and whenever signals may
	// have been lost, until stop is called. Signals that come together may be one call.
	OnSignal(heard func()) (stop func())
}

// Confirm returns nil once all that can be read in the log is durable, which shows as well that the log
// takes writes. A server may show what another process has committed before its standbys have it. So
// whoever acknowledges something because it is there already confirms it first. If the server waits for
// a standby when ctx ends, the error is [ErrStandbyAway].
func Confirm(ctx context.Context, log any) error {
	switch log := log.(type) {
	case interface{ Confirm(context.Context) error }:
		return log.Confirm(ctx)
	case Transactor:
		return log.Transact(ctx, func(Tx) error { return nil })
	}
	return nil
}

// QueryAll returns the result of scan for each row of a query.
func QueryAll[T any](q Querier, sql string, args []any, scan func(Row) (T, error)) (list []T, err error) {
	err = q.Query(sql, args, func(r Row) error {
		one, err := scan(r)
		list = append(list, one)
		return err
	})
	return list, err
}

// QueryOne scans the only row of a query, and reports whether there is one.
func QueryOne(q Querier, sql string, args []any, to ...any) (found bool, err error) {
	err = q.Query(sql, args, func(r Row) error {
		found = true
		return r.Scan(to...)
	})
	return found, err
}

// Columns returns the scan of [QueryAll] that reads each row into the places that to returns for its value.
func Columns[T any](to func(*T) []any) func(Row) (T, error) {
	return func(r Row) (one T, err error) {
		err = r.Scan(to(&one)...)
		return one, err
	}
}

// ViewAll is [QueryAll] on the database.
func ViewAll[T any](ctx context.Context, db Transactor, sql string, args []any, scan func(Row) (T, error)) ([]T, error) {
	return View(ctx, db, func(q Querier) ([]T, error) { return QueryAll(q, sql, args, scan) })
}

// Flag returns 1 or 0, as columns hold what is true or false.
func Flag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}

// View returns the result of read on one consistent state of the database.
func View[T any](ctx context.Context, db Transactor, read func(Querier) (T, error)) (value T, err error) {
	err = db.View(ctx, func(q Querier) (err error) {
		value, err = read(q)
		return err
	})
	return value, err
}
