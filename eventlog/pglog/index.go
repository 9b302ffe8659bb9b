package pglog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// The table run is an index over the events, and a row of it can be missing or behind
// them: the Starling runtime goes on appending to a database that was migrated and does
// not know the table, and a dump of one table is restored without the other. So the events
// decide. Whoever looks up one run compares its row with its last event, in the same
// statement. To compare all runs the server reads the whole index of the events, about a
// second for a million of them. So all runs are compared for a list of all of them, and
// at most once in compareEvery for pages and for pruning; the pages of a log that writes
// do not wait for it.
//
// A log that writes brings the rows up to date, one that only reads computes what it
// returns. A row that claims more events than there are, or that differs from the events
// which it covers, is never replaced: it is the evidence that somebody has changed the run.

const compareEvery = time.Minute

// compared is the last comparison of all runs with their events.
type compared struct {
	every time.Duration // compareEvery

	mu      sync.Mutex // guards what follows
	at      time.Time
	behind  []string // what it has returned
	running bool     // another one is on its way, for the pages of a log that writes
	work    sync.WaitGroup
}

// behindSQL yields the runs whose rows lack events. The table that the seed runtime made
// has another collation.
const behindSQL = `SELECT e.run_id FROM (SELECT run_id, max(seq) AS seq FROM eventlog_events GROUP BY run_id) AS e
	LEFT JOIN run ON run.run_id = e.run_id COLLATE "C" WHERE coalesce(run.last_seq, 0) < e.seq`

// unindexed returns the runs whose rows lack events.
func (l *Log) unindexed(ctx context.Context) ([]string, error) {
	return again(ctx, l, func() ([]string, error) {
		rows, err := l.pool.Query(ctx, behindSQL)
		if err != nil {
			return nil, fmt.Errorf("pglog: compare runs with their events: %w", err)
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	})
}

// behind returns the runs of whose events the table run lacks some, and that a log which
// writes could not bring up to date.
func (l *Log) behind(ctx context.Context) ([]string, error) {
	began := time.Now()
	ids, err := l.unindexed(ctx)
	if err == nil && len(ids) > 0 && l.runs.Writable() == nil {
		for _, id := range ids {
			if err := l.reindex(ctx, id); err != nil {
				return nil, err
			}
		}
		ids, err = l.unindexed(ctx)
	}
	if err == nil {
		l.compared.mu.Lock()
		l.compared.at, l.compared.behind = began, ids
		l.compared.mu.Unlock()
	}
	return ids, err
}

// lately is behind, as it was at most compareEvery ago.
func (l *Log) lately(ctx context.Context) ([]string, error) {
	l.compared.mu.Lock()
	at, ids := l.compared.at, l.compared.behind
	l.compared.mu.Unlock()
	if time.Since(at) < l.compared.every {
		return ids, nil
	}
	return l.behind(ctx)
}

// lazily is lately for a page: a log that writes compares behind its back.
func (l *Log) lazily(ctx context.Context) ([]string, error) {
	if l.opts.ReadOnly {
		return l.lately(ctx)
	}
	c := &l.compared
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running && time.Since(c.at) >= c.every && !l.runs.Closed() {
		c.running = true
		c.work.Go(func() {
			_, err := l.behind(l.listener.ctx) // which ends with the log
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.running = false; err != nil {
				c.at = time.Now() // a server in trouble is not asked again at once
			}
		})
	}
	return c.behind, nil
}

// stands returns where a run stands by its events. kept says that its row says the same;
// otherwise the summary was computed.
func (l *Log) stands(ctx context.Context, runID string) (at pending.Place, kept bool, err error) {
	var last uint64
	at, err = again(ctx, l, func() (at pending.Place, err error) {
		at, last, err = find(ctx, l.pool, runID)
		return at, err
	})
	row := at.Run()
	if err != nil || last <= row.LastSeq {
		return at, true, err
	}
	s, err := tail.Summary(runID, tail.Events(ctx, runID, 0, l.page), row)
	if err != nil || s == row {
		return at, true, err
	}
	at.Cursor = eventlog.NewCursor(s)
	return at, false, nil
}

// look is stands, for a row that a log which writes brings up to date.
func (l *Log) look(ctx context.Context, runID string) (at pending.Place, kept bool, err error) {
	at, kept, err = l.stands(ctx, runID)
	if err == nil && !kept && l.runs.Writable() == nil && l.reindex(ctx, runID) == nil {
		return l.stands(ctx, runID)
	}
	return at, kept, err
}

// reindex writes the row of a run by its events, if the run has more of them than the row
// says, and otherwise fits it.
func (l *Log) reindex(ctx context.Context, runID string) error {
	row, err := again(ctx, l, func() (pending.Place, error) {
		row, _, err := find(ctx, l.pool, runID)
		return row, err
	})
	if errors.Is(err, eventlog.ErrLogCorrupt) {
		return nil // it stays as it is
	}
	if err != nil {
		return err
	}
	kept := row.Run()
	s, err := tail.Summary(runID, tail.Events(ctx, runID, 0, l.page), kept)
	if errors.Is(err, eventlog.ErrRunNotFound) || err == nil && s.LastSeq <= kept.LastSeq {
		return nil
	}
	if err != nil {
		return err
	}
	const set = `INSERT INTO run (epoch, ` + runValues + `) VALUES (0, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (run_id) DO UPDATE SET (` + movedColumns + `) = ROW ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11) WHERE run.last_seq = $12`
	_, err = l.pool.Exec(ctx, set, runID, s.StartedAt.UnixNano(), int64(s.LastSeq), s.Head[:], int16(s.TerminalKind), s.TurnCount, s.ToolCallCount,
		s.InputTokens, s.OutputTokens, s.CostUSD, s.DurationMs, int64(kept.LastSeq))
	if err != nil {
		return fmt.Errorf("pglog: bring the row of run %q up to date: %w", runID, orUnavailable(err))
	}
	return nil
}

// computed returns all runs, of which those that are named are summarised by their events.
func (l *Log) computed(ctx context.Context, behind []string) ([]eventlog.RunSummary, error) {
	runs, err := l.list(ctx, " WHERE "+begun+newestFirst)
	if err != nil {
		return nil, err
	}
	return tail.Merge(runs, behind, func(id string) (s eventlog.RunSummary, kept bool, err error) {
		at, kept, err := l.stands(ctx, id)
		if err == nil && at.Run().LastSeq == 0 {
			err = eventlog.ErrRunNotFound
		}
		return at.Run(), kept, err
	})
}
