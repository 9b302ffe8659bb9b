package pglog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// view implements [eventlog.Querier] in a transaction.
type view struct {
	ctx     context.Context
	tx      pgx.Tx
	reading bool  // a query calls its function at this time
	failed  error // a statement has failed, and the transaction with it
}

// Query implements [eventlog.Querier].
func (v *view) Query(sql string, args []any, row func(eventlog.Row) error) error {
	if err := v.ready(sql, args); err != nil {
		return err
	}
	rows, err := v.tx.Query(v.ctx, sql, args...)
	if err != nil {
		return v.fail(sql, err)
	}
	v.reading = true
	defer func() { v.reading = false }()
	defer rows.Close()
	for rows.Next() {
		if err := row(resultRow{rows}); err != nil {
			return err // the caller's, which fails nothing
		}
	}
	if err := rows.Err(); err != nil {
		return v.fail(sql, err)
	}
	return nil
}

// ready checks that a statement can be run, with arguments that every database takes, or
// those of [eventlog.Bulk].
func (v *view) ready(sql string, args []any) error {
	if v.failed != nil {
		return v.failed
	}
	if v.reading {
		return v.fail(sql, errors.New("the rows of another statement are being read"))
	}
	for i, arg := range args {
		switch arg.(type) {
		case nil, bool, int64, float64, string, []byte, []int64, []float64, []string, [][]byte:
		default:
			return v.fail(sql, fmt.Errorf("argument $%d is a %T: want nil, bool, int64, float64, string, []byte, or many of the last four", i+1, arg))
		}
	}
	return nil
}

// fail keeps the error, since the server does nothing more in the transaction.
func (v *view) fail(sql string, err error) error {
	if isConflict(err) {
		err = fmt.Errorf("%w: %w", eventlog.ErrConflict, err)
	}
	v.failed = fmt.Errorf("pglog: %.80s: %w", sql, orUnavailable(err))
	return v.failed
}

// resultRow implements [eventlog.Row].
type resultRow struct{ rows pgx.Rows }

// Scan implements [eventlog.Row].
func (r resultRow) Scan(to ...any) error {
	fields := r.rows.FieldDescriptions()
	if len(to) != len(fields) {
		return fmt.Errorf("pglog: the row has %d columns, not %d", len(fields), len(to))
	}
	targets, copies := make([]any, len(to)), make([]func(), len(to))
	for i, dst := range to {
		targets[i], copies[i] = target(dst, fields[i].DataTypeOID)
		if targets[i] == nil {
			return fmt.Errorf("pglog: column %d cannot be read into a %T", i+1, dst)
		}
	}
	if err := r.rows.Scan(targets...); err != nil {
		return fmt.Errorf("pglog: %w", err)
	}
	for _, assign := range copies {
		assign()
	}
	return nil
}

// target returns what a column of a type is scanned into, and what then brings the value
// to dst. A number is true unless it is zero.
func target(dst any, oid uint32) (scan any, assign func()) {
	switch dst := dst.(type) {
	case *bool:
		if oid == pgtype.BoolOID {
			return orZero(dst)
		}
		var n int64
		scan, number := orZero(&n)
		return scan, func() { number(); *dst = n != 0 }
	case *int64:
		return orZero(dst)
	case *float64:
		return orZero(dst)
	case *string:
		return orZero(dst)
	case *[]byte:
		return dst, func() {}
	}
	return nil, nil
}

// orZero scans into a pointer, which NULL leaves nil.
func orZero[T any](dst *T) (scan any, assign func()) {
	var p *T
	return &p, func() {
		var zero T
		if *dst = zero; p != nil {
			*dst = *p
		}
	}
}

// Tx implements [eventlog.Tx] in a transaction of the server's.
type Tx struct {
	view
	log     *Log
	mark    *mark
	fences  map[string]uint64        // the epochs that it has made
	given   map[string]pending.Place // where these runs stand
	columns columns                  // what Append has taken
	rows    map[string]*txRun        // of the runs in columns
	doubt   *doubt
	wanted  []string // the runs that it has tried to fence
}

// txRun is a run that a transaction continues.
type txRun struct {
	at     int // in columns
	cursor eventlog.Cursor
}

// run runs fn, and writes the events that it has appended. A statement that failed
// fails the transaction, also when fn has said nothing about it; one that the server
// refused because of another transaction is the reason whatever fn says.
func (t *Tx) run(ctx context.Context, tx pgx.Tx, fn func(eventlog.Tx) error) error {
	t.view = view{ctx: ctx, tx: tx}
	err := fn(t)
	if err == nil || isRefusal(t.failed) {
		err = t.failed
	}
	if err != nil {
		return err
	}
	if err := t.mark.leave(ctx, tx); err != nil || len(t.rows) == 0 {
		return err
	}
	refused, err := t.columns.insert(ctx, tx.Conn(), nil)
	if isConflict(err) || err == nil && len(refused) > 0 {
		return fmt.Errorf("%w: concurrent append: another process continued the run", eventlog.ErrInvalidAppend)
	}
	if err != nil {
		return fmt.Errorf("pglog: store %d events: %w", len(t.columns.events), err)
	}
	return nil
}

// Exec implements [eventlog.Tx].
func (t *Tx) Exec(sql string, args ...any) (int64, error) {
	if err := t.ready(sql, args); err != nil {
		return 0, err
	}
	tag, err := t.tx.Exec(t.ctx, sql, args...)
	if err != nil {
		return 0, t.fail(sql, err)
	}
	return tag.RowsAffected(), nil
}

// Append implements [eventlog.Tx]. It appends under the epoch that this transaction has
// made, if it has made one, and compares with the database alone: a writer in this
// process that is ahead of it has lost the run.
func (t *Tx) Append(runID string, ev event.Event) error {
	if err := t.ready("append", nil); err != nil {
		return err
	}
	if err := storable(runID); err != nil {
		return err
	}
	r := t.rows[runID]
	if r == nil {
		at, err := t.position(runID, ev)
		if err != nil {
			return t.fail("append", err)
		}
		r = &txRun{at: -1, cursor: at}
	}
	if err := r.cursor.Append(runID, ev); err != nil {
		t.doubt = &doubt{runID, r.cursor.Run().LastSeq}
		return err
	}
	t.take(runID, r, ev)
	return nil
}

// position returns where the run stands that an event is said to continue. A first event
// is taken for one without a look, and the end of the transaction will tell: had two
// transactions that begin runs both looked for theirs, then the server, which notes
// which page of an index was read, would take each for a reader of the other's run, and
// undo one.
func (t *Tx) position(runID string, ev event.Event) (c eventlog.Cursor, err error) {
	if ev.Seq == 1 && t.fences[runID] == 0 {
		return c, nil
	}
	at, _, err := find(t.ctx, t.tx, runID)
	if err == nil && at.Epoch != t.fences[runID] {
		err = pending.StaleEpoch(runID, t.fences[runID], at.Epoch)
	}
	return at.Cursor, err
}

// doubt is a run that an event did not continue, with the last event that the
// transaction saw of it.
type doubt struct {
	runID string
	seq   uint64
}

// wasBehind reports whether the transaction did not see all that the run has by now:
// events that this process had queued, or that somebody has appended since it began. It
// is asked after the transaction has ended.
func (t *Tx) wasBehind(ctx context.Context) bool {
	if t.doubt == nil || t.log.runs.Settle(ctx, t.doubt.runID) != nil {
		return false
	}
	at, _, err := t.log.look(ctx, t.doubt.runID)
	return err == nil && at.Run().LastSeq > t.doubt.seq
}

// take keeps an event for the end of the transaction.
func (t *Tx) take(runID string, r *txRun, ev event.Event) {
	if r.at < 0 {
		if t.rows == nil {
			t.rows = make(map[string]*txRun)
		}
		r.at = len(t.rows)
		t.rows[runID] = r
		t.columns.addRun(runID, ev.Seq-1, t.fences[runID])
	}
	t.columns.stand(r.at, r.cursor.Run())
	t.columns.addEvent(r.at, ev)
	if epoch := t.fences[runID]; epoch != 0 {
		t.given[runID] = pending.Place{Cursor: r.cursor, Epoch: epoch}
	}
}

// touched are the runs that the transaction has changed, or wanted to.
func (t *Tx) touched() []string {
	runs := slices.AppendSeq(slices.Collect(maps.Keys(t.fences)), maps.Keys(t.rows))
	if t.doubt != nil {
		runs = append(runs, t.doubt.runID)
	}
	return append(runs, t.wanted...)
}

// Fence implements [eventlog.Tx].
func (t *Tx) Fence(runID string) (epoch uint64, err error) {
	epochs, err := t.FenceAll([]string{runID})
	return epochs[runID], err
}

// FenceAll makes a new epoch of each of the runs, in one statement, and returns them by
// run.
func (t *Tx) FenceAll(runIDs []string) (epochs map[string]uint64, err error) {
	if err := t.ready("fence", nil); err != nil {
		return nil, err
	}
	for _, id := range runIDs {
		if err := storable(id); err != nil {
			return nil, err
		}
	}
	t.wanted = append(t.wanted, runIDs...)
	rows, err := t.tx.Query(t.ctx, fenceSQL, runIDs)
	if err != nil {
		return nil, t.fail("fence", err)
	}
	defer rows.Close()
	epochs = make(map[string]uint64, len(runIDs))
	for rows.Next() {
		epoch, s, err := scanRun(rows)
		if err != nil {
			return nil, t.fail("fence", err)
		}
		epochs[s.RunID] = epoch
		t.fence(s, epoch)
	}
	if err := rows.Err(); err != nil {
		return nil, t.fail("fence", err)
	}
	return epochs, nil
}

// fence notes an epoch that the transaction has made of a run, as it is in the database.
func (t *Tx) fence(s eventlog.RunSummary, epoch uint64) {
	if t.fences == nil {
		t.fences, t.given = make(map[string]uint64), make(map[string]pending.Place)
	}
	t.fences[s.RunID] = epoch
	at := pending.Place{Epoch: epoch}
	if s.LastSeq > 0 {
		at.Cursor = eventlog.NewCursor(s)
	}
	if r := t.rows[s.RunID]; r != nil {
		t.columns.rows[r.at].epoch = epoch
		at.Cursor = r.cursor
	}
	t.given[s.RunID] = at
}

// committed tells the writers in this process what the transaction has done to their
// runs, and who follows them.
func (t *Tx) committed() {
	l := t.log
	l.runs.Lock()
	defer l.runs.Unlock()
	for id, epoch := range t.fences {
		l.runs.Fenced(id, epoch)
	}
	for id, row := range t.rows {
		l.runs.Moved(id, row.cursor.Run().TerminalKind != 0)
		l.hub.Wake(id)
		l.notifier.tell(id)
	}
	for id, at := range t.given {
		l.runs.Given(id, at)
	}
}
