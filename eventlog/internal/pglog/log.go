package pglog

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/internal/tail"
	"github.com/starling-host/starling/internal/await"
)

// Log is an event log in a PostgreSQL database. Use [Open].
type Log struct {
	common
	index    *dblog.Backend
	pool     *pgxpool.Pool
	opts     Options
	layout   atomic.Int64
	hub      tail.Hub
	stopped  chan struct{} // closed when the writer has ended
	notifier notifier
	listener listener
	marks    marks
	compared compared
	runs     *pending.Runs[none]
}

var _ eventlog.Database = (*Log)(nil)

var _ eventlog.Shared = (*Log)(nil)

type common = dblog.Log

func newLog(pool *pgxpool.Pool, o Options) *Log {
	l := &Log{pool: pool, opts: o, stopped: make(chan struct{})}
	l.runs = pending.New(pending.Backend[none]{
		Name: "pglog", Sink: "server",
		Find: l.findRun, Refuse: l.refuse, Restart: l.restart,
		Uses: func(ctx context.Context, ev event.Event) ([]canon.Hash, error) { return l.index.Uses(ctx, ev) },
	})
	l.index = &dblog.Backend{
		SQL: dialect, Runs: l.runs, Indexed: func() bool { return true }, Counts: l.counts, Read: l.read, Page: l.page, Behind: l.behind, BringUp: l.reindex, Log: l,
		MayRemoveModules: l.mayRemoveModules,
	}
	l.common = dblog.NewLog(l.index, l)
	l.notifier.init(l)
	l.listener.init(l)
	l.compared.every = compareEvery
	return l
}

// refuse returns the reason why an open log takes no events, or nil.
func (l *Log) refuse() error {
	if l.opts.ReadOnly {
		return eventlog.ErrReadOnly
	}
	return eventlog.CheckSchema(int(l.layout.Load()), layoutVersion)
}

// readable returns the reason why the log cannot be read, or nil.
func (l *Log) readable() error {
	if l.runs.Closed() {
		return eventlog.ErrLogClosed
	}
	if l.layout.Load() == uncountedLayout {
		return nil
	}
	return eventlog.CheckSchema(int(l.layout.Load()), layoutVersion)
}

// counts is [dblog.Backend].Counts.
func (l *Log) counts() bool { return l.layout.Load() > uncountedLayout }

// Close implements [eventlog.EventLog]. It writes the queued events, which takes up
// to [Options].RetryTime when the server is gone, and ends the streams.
func (l *Log) Close() error {
	if !l.runs.Close() {
		return nil
	}
	if !l.opts.ReadOnly {
		<-l.stopped
		l.notifier.cancel()
		<-l.notifier.done
		l.marks.clear(l)
	}
	l.hub.Close()
	l.listener.Close()
	l.compared.work.Wait()
	l.pool.Close()
	return l.runs.Failure()
}

// mayRemoveModules is [dblog.Backend].MayRemoveModules.
func (l *Log) mayRemoveModules(ctx context.Context) (may bool, err error) {
	if err := l.pool.QueryRow(ctx, "SELECT has_table_privilege('module', 'DELETE')").Scan(&may); err != nil {
		return false, fmt.Errorf("pglog: look for the rights of the role: %w", orUnavailable(err))
	}
	return may, nil
}

// run is a run that this process writes, and item an event of a run that waits for
// the writer.
type (
	run  = pending.Run[none]
	item = pending.Item[none]
)

// none is the writer's state of a run: it keeps none.
type none = struct{}

// findRun is [pending.Backend].Find. A run id with a zero byte is refused.
func (l *Log) findRun(ctx context.Context, runID string) (pending.Position, error) {
	if err := storable(runID); err != nil {
		return pending.Position{}, err
	}
	at, _, err := l.index.Look(ctx, runID)
	return at, err
}

// isText reports whether the database can hold the text.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// storable refuses the id of a run that the database cannot hold.
func storable(runID string) error {
	if !isText(runID) {
		return fmt.Errorf("%w: run id %q has a zero byte, or is not UTF-8", eventlog.ErrInvalidAppend, runID)
	}
	return nil
}

// Stream implements [eventlog.EventLog]. Events of another process are announced by the
// server, and looked for where it cannot.
func (l *Log) Stream(ctx context.Context, runID string) (<-chan event.Event, error) {
	l.listener.Start(l.listener.run)
	return l.hub.Stream(ctx, runID, l.page)
}

func (l *Log) page(ctx context.Context, runID string, after uint64, n int) (evs []event.Event, err error) {
	err = l.again(ctx, func() (err error) {
		evs, err = page(ctx, l.pool, runID, after, n)
		return err
	})
	return evs, err
}

// readRetryTime is how long a read is retried after its connection broke. It is enough
// for a server that restarts.
const readRetryTime = 10 * time.Second

// again reads, and tries again when the connection breaks.
func (l *Log) again(ctx context.Context, read func() error) error {
	since := time.Now()
	for n := 0; ; n++ {
		if err := l.readable(); err != nil {
			return err
		}
		err := read()
		if !isTransient(err) || ctx.Err() != nil || time.Since(since) > readRetryTime {
			return orUnavailable(err)
		}
		await.Pause(ctx, pause(n))
	}
}

// read is [dblog.Backend].Read.
func (l *Log) read(ctx context.Context, fn func(eventlog.Querier) error) error {
	return l.again(ctx, func() error { return fn(querier{ctx, l.pool}) })
}

// queryer is a pool, a connection or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// querier implements [dblog.Execer].
type querier struct {
	ctx context.Context
	q   queryer
}

// Query implements [eventlog.Querier].
func (q querier) Query(sql string, args []any, row func(eventlog.Row) error) error {
	rows, err := q.q.Query(q.ctx, sql, args...)
	if err != nil {
		return fmt.Errorf("pglog: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(resultRow{rows}); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("pglog: %w", err)
	}
	return nil
}

// Exec implements [dblog.Execer].
func (q querier) Exec(sql string, args ...any) (int64, error) {
	tag, err := q.q.Exec(q.ctx, sql, args...)
	if err != nil {
		return 0, fmt.Errorf("pglog: %w", err)
	}
	return tag.RowsAffected(), nil
}

// pageSQL reads events until their payloads fill a page. A payload beyond the limit is
// not read.
const pageSQL = `SELECT seq, prev_hash, ts, kind, CASE WHEN octet_length(payload) <= $4 THEN payload END
FROM (
	SELECT *, sum(octet_length(payload)) OVER (ORDER BY seq) - octet_length(payload) AS before
	FROM (
		SELECT seq, prev_hash, ts, kind, payload FROM eventlog_events
		WHERE run_id = $1 AND seq > $2` + inPartition + ` ORDER BY seq LIMIT $3
	) AS next
) AS sized
WHERE before < $5 ORDER BY seq`

// page is a [tail.Page].
func page(ctx context.Context, q queryer, runID string, after uint64, n int) ([]event.Event, error) {
	if !isText(runID) {
		return nil, nil
	}
	rows, _ := q.Query(ctx, pageSQL, runID, int64(after), n, eventlog.MaxPayloadBytes, tail.MaxPageBytes) // CollectRows returns its error
	evs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (event.Event, error) {
		values, err := row.Values()
		if err != nil {
			return event.Event{}, err
		}
		return dblog.EventOf(runID, values)
	})
	if err != nil {
		return nil, fmt.Errorf("pglog: read run %q: %w", runID, err)
	}
	return evs, nil
}
