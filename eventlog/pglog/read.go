package pglog

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Read implements [eventlog.EventLog].
func (l *Log) Read(ctx context.Context, runID string) ([]event.Event, error) {
	return tail.Collect(l.Events(ctx, runID, 0))
}

// Events implements [eventlog.EventSource]. No connection is held while the caller
// works, so a caller may take its time.
func (l *Log) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return l.runs.Events(ctx, runID, after, l.page)
}

// Stream implements [eventlog.EventLog]. Events of another process are announced by the
// server, and looked for where it cannot.
func (l *Log) Stream(ctx context.Context, runID string) (<-chan event.Event, error) {
	l.listener.start()
	return l.hub.Stream(ctx, runID, l.page)
}

func (l *Log) page(ctx context.Context, runID string, after uint64, n int) ([]event.Event, error) {
	return again(ctx, l, func() ([]event.Event, error) { return page(ctx, l.pool, runID, after, n) })
}

// readPatience is how long a read whose connection broke is tried again. It is enough
// for a server that starts anew.
const readPatience = 10 * time.Second

// again reads, and tries again when the connection breaks.
func again[T any](ctx context.Context, l *Log, read func() (T, error)) (v T, err error) {
	since := time.Now()
	for n := 0; ; n++ {
		if err := l.readable(); err != nil {
			return v, err
		}
		v, err = read()
		if !isTransient(err) || ctx.Err() != nil || time.Since(since) > readPatience {
			return v, orUnavailable(err)
		}
		wait(ctx, pause(n))
	}
}

// pageSQL reads events until their payloads fill a page. A payload beyond the limit is
// not read.
const pageSQL = `SELECT seq, prev_hash, ts, kind, CASE WHEN octet_length(payload) <= $4 THEN payload END
FROM (
	SELECT *, sum(octet_length(payload)) OVER (ORDER BY seq) - octet_length(payload) AS before
	FROM (
		SELECT seq, prev_hash, ts, kind, payload FROM eventlog_events
		WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
	) AS next
) AS sized
WHERE before < $5 ORDER BY seq`

// page is a [tail.Page].
func page(ctx context.Context, q queryer, runID string, after uint64, n int) ([]event.Event, error) {
	if !isText(runID) {
		return nil, nil
	}
	rows, err := q.Query(ctx, pageSQL, runID, int64(after), n, eventlog.MaxPayloadBytes, tail.MaxPageBytes)
	if err != nil {
		return nil, fmt.Errorf("pglog: read run %q: %w", runID, err)
	}
	var evs []event.Event
	var seq, ts int64
	var prev, payload []byte
	var kind int16
	_, err = pgx.ForEachRow(rows, []any{&seq, &prev, &ts, &kind, &payload}, func() error {
		e := event.Event{RunID: runID, Seq: uint64(seq), PrevHash: prev, Timestamp: ts, Kind: event.Kind(kind), Payload: payload}
		if err := checkRow(e, kind); err != nil {
			return err
		}
		evs = append(evs, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("pglog: read run %q: %w", runID, err)
	}
	return evs, nil
}

// checkRow refuses a row that is no event.
func checkRow(e event.Event, kind int16) error {
	reason := ""
	switch {
	case int64(e.Seq) < 1:
		reason = "its number is less than 1"
	case kind < 0 || kind > 255:
		reason = fmt.Sprintf("its kind is %d", kind)
	case e.Payload == nil:
		reason = fmt.Sprintf("its payload has more than %d bytes", eventlog.MaxPayloadBytes)
	default:
		return nil
	}
	return &eventlog.CorruptError{RunID: e.RunID, Seq: e.Seq, Invariant: "storage", Reason: reason}
}
