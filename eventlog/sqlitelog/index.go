package sqlitelog

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// The table run is an index over the events, and a row of it can be missing or behind
// them: the Starling runtime goes on appending to a file that was migrated and does not
// know the table, and tables are restored one by one. So the events decide. Whoever looks
// up one run compares its row with its last event, in the same statement. Whoever lists
// runs compares all rows, unless every event since the last comparison was this
// process's own. A log that writes brings the rows up to date, one that only reads
// computes what it returns.
//
// A row that claims more events than there are, or that differs from the events which it
// covers, is never replaced: it is the evidence that somebody has changed the run.

// position is an event's place in the order of appending. A row that was deleted gives
// its pos to a later one, so pos alone does not name an event.
type position struct {
	pos   int64
	runID string
	seq   int64
}

// compared is how far the table run is known to have the events.
type compared struct {
	mu   sync.Mutex
	once bool     // all rows were compared
	upTo position // the newest event then, or the writer's last one since
}

// wrote is told of a transaction of the writer: its last event before and after it, and
// whether another connection has committed in between.
func (c *compared) wrote(before, after position, others bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.once && !others && c.upTo.pos >= before.pos {
		c.upTo = after
	}
}

// maxGap is how many events since the last comparison are looked at one by one. To
// compare all runs by the index over their events is faster than to read more rows.
const maxGap = 10_000

// behind returns the runs of whose events the table run lacks some, and that a log which
// writes could not bring up to date. In a file of the seed runtime that is every run.
func (l *Log) behind(ctx context.Context) ([]string, error) {
	l.compared.mu.Lock()
	from := l.compared.upTo
	if !l.compared.once {
		from = position{}
	}
	l.compared.mu.Unlock()
	var ids []string
	var newest position
	look := func(r *reader) (err error) {
		if newest, err = r.newest(ctx); err != nil || newest == from && newest.pos != 0 {
			return err
		}
		ids, err = r.behind(ctx, l.layout.Load() == layoutVersion, from, newest)
		return err
	}
	err := l.readers.with(ctx, look)
	if err == nil && len(ids) > 0 && l.running.Load() {
		if l.reindex(ctx, ids...) == nil { // a log that has stopped still shows what is durable
			err = l.readers.with(ctx, look)
		}
	}
	if err == nil && len(ids) == 0 {
		l.compared.mu.Lock()
		l.compared.once, l.compared.upTo = true, newest
		l.compared.mu.Unlock()
	}
	return ids, err
}

// newest returns the event that was appended last.
func (r *reader) newest(ctx context.Context) (at position, err error) {
	const last = "SELECT rowid, " + boundedID + ", seq FROM eventlog_events ORDER BY rowid DESC LIMIT 1"
	err = r.query(ctx, last, nil, func(row []driver.Value) error {
		at.pos, _ = row[0].(int64)
		at.runID, _ = row[1].(string)
		at.seq, _ = row[2].(int64)
		return nil
	})
	return at, err
}

// The runs whose rows are behind their events: among all of them, and among those with
// events that were appended between two positions.
const (
	lacksEvents   = "coalesce((SELECT last_seq FROM run WHERE run.run_id = e.run_id), 0) < e.seq"
	eachRun       = "(SELECT run_id, max(seq) AS seq FROM eventlog_events GROUP BY run_id) AS e"
	behindSQL     = "SELECT " + boundedID + " FROM " + eachRun + " WHERE " + lacksEvents
	behindGapSQL  = "SELECT DISTINCT " + boundedID + " FROM eventlog_events AS e WHERE e.rowid > ? AND " + lacksEvents
	everyRunSQL   = "SELECT DISTINCT " + boundedID + " FROM eventlog_events"
	isPositionSQL = "SELECT count(*) FROM eventlog_events WHERE rowid = ? AND run_id = ? AND seq = ?"
)

// behind returns the runs whose rows lack events, if all had those up to from.
func (r *reader) behind(ctx context.Context, indexed bool, from, newest position) (ids []string, err error) {
	query, args := behindSQL, []driver.Value(nil)
	switch gap := newest.pos - from.pos; {
	case !indexed:
		query = everyRunSQL
	case from.pos != 0 && 0 <= gap && gap <= maxGap:
		there, err := r.count(ctx, isPositionSQL, []driver.Value{from.pos, from.runID, from.seq})
		if err != nil {
			return nil, err
		}
		if there > 0 {
			query, args = behindGapSQL, []driver.Value{from.pos}
		}
	}
	err = r.query(ctx, query, args, func(row []driver.Value) error {
		id, ok := row[0].(string)
		if !ok {
			return fmt.Errorf("%w: column run_id holds a %T, or an id that is too long", eventlog.ErrLogCorrupt, row[0])
		}
		ids = append(ids, id)
		return nil
	})
	return ids, err
}

// stands returns where a run stands by its events, and the number of its row. kept says
// that the row says the same; otherwise the summary was computed.
func (l *Log) stands(ctx context.Context, runID string) (no int64, s eventlog.RunSummary, kept bool, err error) {
	if l.layout.Load() == layoutVersion {
		var last uint64
		err = l.readers.with(ctx, func(r *reader) error {
			no, s, last, err = r.run(ctx, runID)
			return err
		})
		switch {
		case err != nil:
			return 0, s, false, err
		case last == 0 && no == 0:
			return 0, s, false, fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
		case last <= s.LastSeq:
			return no, s, true, nil
		}
	}
	row := s
	s, err = tail.Summary(runID, tail.Events(ctx, runID, 0, l.page), row)
	return no, s, no != 0 && s == row, err
}

// look is stands, for a row that a log which writes brings up to date.
func (l *Log) look(ctx context.Context, runID string) (no int64, s eventlog.RunSummary, kept bool, err error) {
	no, s, kept, err = l.stands(ctx, runID)
	if err == nil && !kept && l.running.Load() && l.reindex(ctx, runID) == nil {
		return l.stands(ctx, runID)
	}
	return no, s, kept, err
}

// reindexing brings the rows of runs up to date with their events.
type reindexing struct {
	ids  []string
	done chan error
}

func (t *reindexing) do(w *writer) error {
	for _, id := range t.ids {
		if err := reindex(context.Background(), &w.reader, id); err != nil {
			return fmt.Errorf("sqlitelog: bring the row of run %q up to date: %w", id, err)
		}
	}
	return nil
}

func (t *reindexing) finish(_ *Log, err error) { t.done <- err }
func (t *reindexing) Size() int                { return 0 }

func (l *Log) reindex(ctx context.Context, ids ...string) error {
	t := &reindexing{ids: ids, done: make(chan error, 1)}
	return l.perform(ctx, t, t.done)
}

// reindex writes the row of a run by its events, in a transaction of the connection. It
// leaves a row alone that says more than the events, or otherwise than they do.
func reindex(ctx context.Context, r *reader, runID string) error {
	_, kept, last, err := r.run(ctx, runID)
	if errors.Is(err, eventlog.ErrLogCorrupt) || err == nil && last <= kept.LastSeq {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := tail.Summary(runID, tail.Events(ctx, runID, 0, r.page), kept)
	if err != nil || s.LastSeq <= kept.LastSeq {
		return err
	}
	const set = `INSERT INTO run (started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms, run_id)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET last_seq = excluded.last_seq, head = excluded.head,
	terminal = excluded.terminal, turns = excluded.turns, tools = excluded.tools, input_tokens = excluded.input_tokens,
	output_tokens = excluded.output_tokens, cost_usd = excluded.cost_usd, duration_ms = excluded.duration_ms`
	_, err = r.exec(set, append(summaryValues(s), runID)...)
	return err
}
