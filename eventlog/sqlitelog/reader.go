package sqlitelog

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/tail"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxReaders bounds how many calls read the file at once; more wait.
const maxReaders = 4

// readers is a pool of connections that read. A slot that was not needed yet
// is nil.
type readers struct {
	path, query string
	layout      int // of the file
	slots       chan *reader
}

func newReaders(path, query string, layout int) *readers {
	p := &readers{path: path, query: query, layout: layout, slots: make(chan *reader, maxReaders)}
	for range maxReaders {
		p.slots <- nil
	}
	return p
}

// with lends a reader to fn. fn must not hand anything of a statement that is
// still open to a caller: an open statement keeps the WAL from being reused.
func (p *readers) with(ctx context.Context, fn func(*reader) error) (err error) {
	var r *reader
	select {
	case got, open := <-p.slots:
		if !open {
			return eventlog.ErrLogClosed
		}
		r = got
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { p.slots <- r }()
	if r == nil {
		if r, err = p.open(ctx); err != nil {
			return err
		}
	}
	return fn(r)
}

// close waits for the readers that are lent.
func (p *readers) close() error {
	var errs []error
	for range maxReaders {
		if r := <-p.slots; r != nil {
			errs = append(errs, r.close())
		}
	}
	close(p.slots)
	return errors.Join(errs...)
}

// reader is a connection that reads, with its statements, each prepared when
// it is first needed.
type reader struct {
	conn  *conn
	stmts statements
}

func (p *readers) open(ctx context.Context) (*reader, error) {
	c, err := connect(ctx, p.path, p.query)
	if err != nil {
		return nil, err
	}
	setup := reading
	if p.layout == firstLayout {
		setup = append([]string{firstView}, reading...)
	}
	if err := c.execAll(ctx, setup); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &reader{conn: c}, nil
}

func (r *reader) close() error {
	r.stmts.close()
	return r.conn.Close()
}

// query runs a query, which stays prepared.
func (r *reader) query(ctx context.Context, query string, args []driver.Value, row func([]driver.Value) error) error {
	s, err := r.stmts.get(ctx, r.conn, query)
	if err != nil {
		return err
	}
	return s.query(ctx, args, row)
}

// exec runs a statement, which stays prepared and is not interrupted, and returns how many
// rows it changed.
func (r *reader) exec(query string, args ...driver.Value) (changed int64, err error) {
	s, err := r.stmts.get(context.Background(), r.conn, query)
	if err != nil {
		return 0, err
	}
	changed, _, err = s.exec(args...)
	return changed, err
}

// pageQuery finds the rows by the index and then reads the rows themselves, so
// that what is checked is the table and not the index's copy of two columns. A
// payload beyond the limit is not read; its length comes in its place, and so does that
// of what is too long for a hash. A limit that is nothing but a parameter would be looked
// at, and the statement prepared again each time.
const pageQuery = `SELECT e.run_id, e.seq, iif(octet_length(e.prev_hash) > 32, octet_length(e.prev_hash), e.prev_hash), e.ts, e.kind,
	iif(length(e.payload) <= ?, e.payload, length(e.payload))
FROM (SELECT rowid AS pos FROM eventlog_events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ? + 0) AS i
CROSS JOIN eventlog_events AS e ON e.rowid = i.pos`

// errPageFull ends a page early.
var errPageFull = errors.New("sqlitelog: page is full")

// page is a [tail.Page].
func (r *reader) page(ctx context.Context, runID string, after uint64, n int) ([]event.Event, error) {
	var evs []event.Event
	size, last := 0, after
	args := []driver.Value{int64(eventlog.MaxPayloadBytes), runID, int64(after), int64(n)}
	err := r.query(ctx, pageQuery, args, func(row []driver.Value) error {
		if size >= tail.MaxPageBytes {
			return errPageFull
		}
		e, err := eventOf(runID, row)
		if err != nil {
			return err
		}
		if e.Seq <= last { // or a reader who goes on from here goes round in circles
			return storage(runID, int64(e.Seq), "the index lists the event behind event %d", last)
		}
		last = e.Seq
		if len(evs) == 0 {
			evs = make([]event.Event, 0, n)
		}
		evs = append(evs, e)
		size += len(e.Payload)
		return nil
	})
	if err == errPageFull {
		err = nil
	}
	return evs, err
}

// eventOf builds an event from a row whose columns may hold anything: SQLite
// checks no types.
func eventOf(runID string, row []driver.Value) (event.Event, error) {
	id, okID := row[0].(string)
	seq, okSeq := row[1].(int64)
	prev, okPrev := row[2].([]byte)
	ts, okTS := row[3].(int64)
	kind, okKind := row[4].(int64)
	payload, okPayload := row[5].([]byte)
	e := event.Event{RunID: id, Seq: uint64(seq), PrevHash: prev, Timestamp: ts, Kind: event.Kind(kind), Payload: payload}
	switch {
	case !okID || id != runID:
		return e, storage(runID, seq, "the row that the index finds is run %.255q", id)
	case !okSeq || seq < 1:
		return e, storage(runID, seq, "column seq holds %s", shown(row[1]))
	case !okPrev && row[2] != nil:
		return e, storage(runID, seq, "column prev_hash holds a %T", row[2])
	case !okTS:
		return e, storage(runID, seq, "column ts holds a %T", row[3])
	case !okKind || kind < 0 || kind > 255:
		return e, storage(runID, seq, "column kind holds %s", shown(row[4]))
	case !okPayload:
		return e, storage(runID, seq, "column payload holds a %T, or more than %d bytes: %s", row[5], eventlog.MaxPayloadBytes, shown(row[5]))
	}
	return e, nil
}

// storage reports a row that is no event.
func storage(runID string, seq int64, format string, args ...any) error {
	return &eventlog.CorruptError{RunID: runID, Seq: uint64(seq), Invariant: "storage", Reason: fmt.Sprintf(format, args...)}
}

// shown is what a message says of a value, which may be as large as the file.
func shown(v driver.Value) string {
	if n, ok := v.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("a %T", v)
}

// boundedID yields a run's id unless it is so long that nobody can have meant one. A
// file of the seed runtime may have ids beyond [eventlog.MaxRunIDBytes], so this is more.
const boundedID = "iif(octet_length(run_id) <= 65536, run_id, NULL)"

// runColumns are the columns of the table run that make a summary.
const runColumns = "run_no, " + boundedID + ", started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms"

// runSQL yields one row: that of the run, or NULLs, and the number of its last event.
const runSQL = "SELECT " + runColumns + `, (SELECT max(seq) FROM eventlog_events WHERE run_id = ?1)
FROM (SELECT 1) LEFT JOIN run ON run_id = ?1`

// run returns the row of a run and its number, zero if there is none, and the number of
// the run's last event. The row knows of all events unless last is greater than LastSeq.
func (r *reader) run(ctx context.Context, runID string) (no int64, s eventlog.RunSummary, last uint64, err error) {
	err = r.query(ctx, runSQL, []driver.Value{runID}, func(row []driver.Value) (err error) {
		switch seq := row[len(row)-1].(type) {
		case nil:
		case int64:
			last = uint64(max(seq, 0))
		default: // whoever reads the events says what is wrong
			last = math.MaxInt64
		}
		if row[0] != nil {
			no, s, err = summaryOf(row[:len(row)-1])
		}
		return err
	})
	return no, s, last, err
}

// summaryOf builds a summary from a row of runColumns.
func summaryOf(row []driver.Value) (no int64, s eventlog.RunSummary, err error) {
	var ints [8]int64
	ok := true
	for i, column := range []int{0, 2, 3, 5, 6, 7, 8, 9} {
		n, okInt := row[column].(int64)
		ints[i], ok = n, ok && okInt
	}
	duration, okDuration := row[11].(int64)
	id, okID := row[1].(string)
	head, okHead := row[4].([]byte)
	cost, okCost := row[10].(float64)
	ok = ok && okDuration && okID && okHead && okCost && len(head) == len(chain.Hash{})
	if !ok || ints[2] < 0 || ints[3] < 0 || ints[3] > 255 || !isInt(ints[4]) || !isInt(ints[5]) {
		return 0, s, fmt.Errorf("%w: run %q: its row in the table run is malformed", eventlog.ErrLogCorrupt, id)
	}
	return ints[0], eventlog.RunSummary{
		RunID: id, StartedAt: unixNano(ints[1]), LastSeq: uint64(ints[2]), TerminalKind: event.Kind(ints[3]),
		TurnCount: int(ints[4]), ToolCallCount: int(ints[5]), InputTokens: ints[6], OutputTokens: ints[7],
		CostUSD: cost, DurationMs: duration, Head: chain.Hash(head),
	}, nil
}

// isInt reports whether a number is one that this processor counts with.
func isInt(n int64) bool { return int64(int(n)) == n }

// isCantOpen reports whether SQLite could not open one of its files, or would
// have to write to it.
func isCantOpen(err error) bool {
	code := codeOf(err) & 0xff
	return code == sqlite3.SQLITE_CANTOPEN || code == sqlite3.SQLITE_READONLY
}
