package sqlitelog

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// maxReaders bounds how many calls read the file at once; more wait.
const maxReaders = 4

// readers is a pool of connections that read. A slot that was not needed yet
// is nil.
type readers struct {
	path, query string
	slots       chan *conn
}

func newReaders(path, query string) *readers {
	p := &readers{path: path, query: query, slots: make(chan *conn, maxReaders)}
	for range maxReaders {
		p.slots <- nil
	}
	return p
}

// with lends a reader to fn. fn must not return anything that belongs to an open statement: an open
// statement prevents the reuse of the WAL.
func (p *readers) with(ctx context.Context, fn func(*conn) error) (err error) {
	var r *conn
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
		if c := <-p.slots; c != nil {
			errs = append(errs, c.Close())
		}
	}
	close(p.slots)
	return errors.Join(errs...)
}

func (p *readers) open(ctx context.Context) (*conn, error) {
	c, err := connect(ctx, p.path, p.query)
	if err != nil {
		return nil, err
	}
	if err := c.execAll(ctx, reading); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// querier implements [dblog.Execer] on a connection.
type querier struct {
	ctx context.Context
	*conn
}

// Query implements [eventlog.Querier]. SQLite accepts the placeholders unchanged.
func (q querier) Query(sql string, args []any, row func(eventlog.Row) error) error {
	return q.query(q.ctx, sql, args, func(cols []driver.Value) error { return row(resultRow(cols)) })
}

// resultRow implements [eventlog.Row].
type resultRow []driver.Value

// Scan implements [eventlog.Row].
func (r resultRow) Scan(to ...any) error { return dblog.ScanValues("sqlitelog", r, to) }

// Exec implements [dblog.Execer].
func (q querier) Exec(sql string, args ...any) (changed int64, err error) {
	changed, _, err = q.run(sql, args...)
	return changed, err
}

// pageQuery finds the rows by the index and then reads the rows themselves, so that the
// table is checked and not the index's copy of two columns. For a payload beyond the
// limit, or a hash that is too long, it returns the length instead. SQLite would peek at
// a bare parameter as the limit, and prepare the statement again each time.
const pageQuery = `SELECT e.run_id, e.seq, iif(octet_length(e.prev_hash) > 32, octet_length(e.prev_hash), e.prev_hash), e.ts, e.kind,
	iif(length(e.payload) <= ?, e.payload, length(e.payload))
FROM (SELECT rowid AS pos FROM eventlog_events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ? + 0) AS i
CROSS JOIN eventlog_events AS e ON e.rowid = i.pos`

// errPageFull ends a page early.
var errPageFull = errors.New("sqlitelog: page is full")

// page is a [tail.Page].
func (c *conn) page(ctx context.Context, runID string, after uint64, n int) ([]event.Event, error) {
	var evs []event.Event
	size, last := 0, after
	args := []any{int64(eventlog.MaxPayloadBytes), runID, int64(after), int64(n)}
	err := c.query(ctx, pageQuery, args, func(row []driver.Value) error {
		if size >= tail.MaxPageBytes {
			return errPageFull
		}
		e, err := dblog.EventOf(runID, row[1:])
		if id, ok := row[0].(string); !ok || id != runID {
			return dblog.Storage(e, "the row that the index finds is run %.255q", id)
		}
		if err != nil {
			return err
		}
		if e.Seq <= last { // or a reader that continues from here loops for ever
			return dblog.Storage(e, "the index lists the event after event %d", last)
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

// boundedID yields a run's id unless it is too long to be one. A
// file of the Starling runtime may have ids beyond [eventlog.MaxRunIDBytes], so this is more.
const boundedID = "iif(octet_length(run_id) <= 65536, run_id, NULL)"

// dialect is the SQL that SQLite and this layout spell their own way. A number of the
// wrong type counts as a large one, so that the events are read, which reports the error.
var dialect = dblog.Compile(dblog.Dialect{
	Name: "sqlitelog", Key: "run_no, 0, " + boundedID, Order: "run_no", Begun: "run_no", NewKey: "run_id", NewValue: "$1",
	LastSeq: "CASE typeof(max(seq)) WHEN 'integer' THEN max(seq) WHEN 'null' THEN 0 ELSE 9223372036854775807 END",
	Segment: firstSegment, SegmentEnd: "/", Position: "instr", ULID: "substr(run_id, -26)",
	Elements: "SELECT value FROM json_each(%s)", List: jsonList, Pieces: true,
})

func jsonList(ids []string) any {
	list, _ := json.Marshal(ids) // texts never fail
	return string(list)
}

// read is [dblog.Backend].Read.
func (l *Log) read(ctx context.Context, fn func(eventlog.Querier) error) error {
	return l.readers.with(ctx, func(r *conn) error { return fn(querier{ctx, r}) })
}

func (l *Log) page(ctx context.Context, runID string, after uint64, n int) ([]event.Event, error) {
	return dblog.Get(ctx, l.readers.with, func(r *conn) ([]event.Event, error) { return r.page(ctx, runID, after, n) })
}

// Stream implements [eventlog.EventLog]. Events of another process are noticed
// within twice pollEvery.
func (l *Log) Stream(ctx context.Context, runID string) (<-chan event.Event, error) {
	l.poll.Start(func(ctx context.Context) { l.poll.run(ctx, l) })
	return l.hub.Stream(ctx, runID, l.page)
}
