package sqlitelog

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// view implements [eventlog.Querier] on a connection that is in a transaction.
type view struct {
	ctx   context.Context
	conn  *conn
	stmts *statements

	reading bool  // a query calls its function at this time
	failed  error // a statement has failed, and the transaction with it
}

// Query implements [eventlog.Querier]. SQLite takes the placeholders as they are.
func (v *view) Query(sql string, args []any, row func(eventlog.Row) error) error {
	s, vals, err := v.statement(sql, args)
	if err != nil {
		return err
	}
	v.reading = true
	defer func() { v.reading = false }()
	var refused error // by the caller, which fails nothing
	err = s.query(v.ctx, vals, func(cols []driver.Value) error {
		refused = row(resultRow(cols))
		return refused
	})
	if err != nil && refused == nil {
		err = v.fail(sql, err)
	}
	return err
}

// statement prepares the statement and its arguments.
func (v *view) statement(sql string, args []any) (*stmt, []driver.Value, error) {
	switch {
	case v.failed != nil:
		return nil, nil, v.failed
	case v.reading:
		return nil, nil, v.fail(sql, errors.New("the rows of another statement are being read"))
	}
	vals, err := values(args)
	if err != nil {
		return nil, nil, v.fail(sql, err)
	}
	s, err := v.stmts.get(v.ctx, v.conn, sql)
	if err != nil {
		return nil, nil, v.fail(sql, err)
	}
	return s, vals, nil
}

// fail keeps the error, so that what follows in the transaction fails as it would
// in other databases.
func (v *view) fail(sql string, err error) error {
	if isConflict(err) {
		err = fmt.Errorf("%w: %w", eventlog.ErrConflict, err)
	}
	v.failed = fmt.Errorf("sqlitelog: %.80s: %w", sql, err)
	return v.failed
}

// values turns arguments into what the driver takes. Nil bytes are NULL.
func values(args []any) ([]driver.Value, error) {
	vals := make([]driver.Value, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case nil, bool, int64, float64, string:
			vals[i] = arg
		case []byte:
			if arg != nil {
				vals[i] = arg
			}
		default:
			return nil, fmt.Errorf("argument $%d is a %T: want nil, bool, int64, float64, string or []byte", i+1, arg)
		}
	}
	return vals, nil
}

// resultRow implements [eventlog.Row].
type resultRow []driver.Value

// Scan implements [eventlog.Row].
func (r resultRow) Scan(to ...any) error {
	if len(to) != len(r) {
		return fmt.Errorf("sqlitelog: the row has %d columns, not %d", len(r), len(to))
	}
	for i, v := range r {
		if !scan(v, to[i]) {
			return fmt.Errorf("sqlitelog: column %d holds a %T, which does not go into a %T", i+1, v, to[i])
		}
	}
	return nil
}

func scan(v driver.Value, to any) bool {
	switch to := to.(type) {
	case *bool:
		n, ok := v.(int64)
		*to = n != 0
		return ok || v == nil
	case *int64:
		return scanAs(v, to)
	case *float64:
		if n, ok := v.(int64); ok {
			v = float64(n)
		}
		return scanAs(v, to)
	case *string:
		return scanAs(v, to)
	case *[]byte:
		ok := scanAs(v, to)
		if v != nil && *to == nil {
			*to = []byte{} // it is there, and empty
		}
		return ok
	}
	return false
}

func scanAs[T any](v driver.Value, to *T) (ok bool) {
	*to, ok = v.(T)
	return ok || v == nil
}

// tx implements [eventlog.Tx] inside the writer's transaction.
type tx struct {
	view
	writer *writer
	wrote  bool                     // something that would have to be undone
	fences map[string]uint64        // the epochs that it has made
	given  map[string]pending.Place // where these runs stand
	moved  map[string]pending.Place // the runs that it has continued, and where they stand
}

func newTx(w *writer) *tx {
	return &tx{view: view{ctx: context.Background(), conn: w.conn, stmts: &w.reader.stmts}, writer: w}
}

// end returns the error with which the transaction ends. A statement that failed
// fails it, also when the function has said nothing about it.
func (t *tx) end(err error) error {
	if err == nil || isFatal(t.failed) {
		return t.failed
	}
	return err
}

// Exec implements [eventlog.Tx].
func (t *tx) Exec(sql string, args ...any) (int64, error) {
	s, vals, err := t.statement(sql, args)
	if err != nil {
		return 0, err
	}
	t.wrote = true
	changed, _, err := s.exec(vals...)
	if err != nil {
		return 0, t.fail(sql, err)
	}
	return changed, nil
}

// Append implements [eventlog.Tx]. It appends under the epoch that this
// transaction has made, if it has made one, and compares with the file alone: a
// writer in this process that is ahead of the file has lost the run.
func (t *tx) Append(runID string, ev event.Event) error {
	if t.failed != nil {
		return t.failed
	}
	no, cursor, err := t.stands(runID, ev)
	if err != nil {
		return t.fail("append", err)
	}
	from := cursor.Run().LastSeq
	if err := cursor.Append(runID, ev); err != nil {
		return err
	}
	t.wrote = true
	if err := t.writer.storeEvent(ev); err != nil {
		return t.refused(runID, ev, err)
	}
	if from == 0 {
		no, err = t.writer.createRow(cursor.Run(), t.fences[runID])
	} else {
		err = t.writer.updateRow(no, from, cursor.Run(), t.fences[runID])
	}
	if err != nil {
		t.failed = err
		return err
	}
	if t.moved == nil {
		t.moved = make(map[string]pending.Place)
	}
	at := pending.Place{Cursor: cursor, Epoch: t.fences[runID], Row: no}
	t.moved[runID] = at
	if at.Epoch != 0 {
		t.given[runID] = at
	}
	return nil
}

// stands returns where the run stands in the file. Of a run that begins it takes for
// granted that it is not there, which shows when its event is stored.
func (t *tx) stands(runID string, ev event.Event) (no int64, c eventlog.Cursor, err error) {
	if ev.Seq == 1 {
		return 0, c, nil
	}
	return t.writer.cursor(runID)
}

// refused explains why an event could not be stored. One that is there already
// changed nothing.
func (t *tx) refused(runID string, ev event.Event, err error) error {
	if isConflict(err) {
		_, cursor, lookErr := t.writer.cursor(runID)
		if refusal := cursor.Append(runID, ev); lookErr == nil && refusal != nil {
			return refusal
		}
	}
	return t.fail("append", err)
}

// Fence implements [eventlog.Tx].
func (t *tx) Fence(runID string) (epoch uint64, err error) {
	if t.failed != nil {
		return 0, t.failed
	}
	t.wrote = true
	if epoch, err = t.writer.fence(runID); err != nil {
		return 0, t.fail("fence", err)
	}
	if t.fences == nil {
		t.fences, t.given = make(map[string]uint64), make(map[string]pending.Place)
	}
	t.fences[runID] = epoch
	at, moved := t.moved[runID]
	if !moved {
		at.Row, at.Cursor, err = t.writer.cursor(runID)
	}
	switch {
	case err == nil:
		at.Epoch = epoch
		t.given[runID] = at
	case !errors.Is(err, eventlog.ErrLogCorrupt): // which is for those to find who read the run
		return 0, t.fail("fence", err)
	}
	return epoch, nil
}

// committed tells the writers in this process what the transaction has done to
// their runs. The caller holds the lock of Log.runs.
func (t *tx) committed(l *Log) {
	for id, epoch := range t.fences {
		l.runs.Fenced(id, epoch)
	}
	for id, at := range t.moved {
		l.runs.Moved(id, at.Run().TerminalKind != 0)
		l.hub.Wake(id)
	}
	for id, at := range t.given {
		l.runs.Given(id, at)
	}
}

// query runs a query of the writer, which stays prepared.
func (w *writer) query(sql string, args []driver.Value, row func([]driver.Value) error) error {
	return w.reader.query(context.Background(), sql, args, row)
}

// exec runs a statement of the writer, which stays prepared.
func (w *writer) exec(sql string, args ...driver.Value) (changed int64, err error) {
	return w.reader.exec(sql, args...)
}

// cursor returns where the run stands in the file, and the number of its row, which it
// brings up to date if another program has appended to the run.
func (w *writer) cursor(runID string) (no int64, c eventlog.Cursor, err error) {
	ctx := context.Background()
	no, s, last, err := w.reader.run(ctx, runID)
	if err == nil && last > s.LastSeq {
		if err = reindex(ctx, &w.reader, runID); err == nil {
			no, s, _, err = w.reader.run(ctx, runID)
		}
	}
	if err == nil && no != 0 {
		c = eventlog.NewCursor(s)
	}
	return no, c, err
}
