package pglog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// newestFirst is the order of listings.
const newestFirst = " ORDER BY started DESC, run_id DESC"

// begun leaves out the runs that were given to a writer before they had an event.
const begun = "last_seq > 0"

// find returns where a run stands.
func find(ctx context.Context, q rowQuerier, runID string) (at pending.Place, err error) {
	epoch, s, err := scanRun(q.QueryRow(ctx, "SELECT epoch, "+runValues+" FROM run WHERE run_id = $1", runID))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return at, nil
	case err != nil:
		return at, fmt.Errorf("pglog: look up run %q: %w", runID, err)
	case s.LastSeq > 0:
		at.Cursor = eventlog.NewCursor(s)
	}
	at.Epoch = epoch
	return at, nil
}

// look is find, through the pool.
func (l *Log) look(ctx context.Context, runID string) (pending.Place, error) {
	return again(ctx, l, func() (pending.Place, error) { return find(ctx, l.pool, runID) })
}

// scanRun builds a summary from a row of epoch and runValues.
func scanRun(row pgx.Row) (epoch uint64, s eventlog.RunSummary, err error) {
	var started, last int64
	var head []byte
	var terminal int16
	err = row.Scan(&epoch, &s.RunID, &started, &last, &head, &terminal, &s.TurnCount, &s.ToolCallCount,
		&s.InputTokens, &s.OutputTokens, &s.CostUSD, &s.DurationMs)
	if err != nil {
		return 0, s, err
	}
	if len(head) != len(chain.Hash{}) || last < 0 || terminal < 0 || terminal > 255 {
		return 0, s, fmt.Errorf("%w: run %q: its row in the table run is malformed", eventlog.ErrLogCorrupt, s.RunID)
	}
	s.StartedAt, s.LastSeq = time.Unix(0, started).UTC(), uint64(last)
	s.Head, s.TerminalKind = chain.Hash(head), event.Kind(terminal)
	return epoch, s, nil
}

// Run implements [eventlog.RunFinder].
func (l *Log) Run(ctx context.Context, runID string) (s eventlog.RunSummary, err error) {
	if err := l.runs.Settle(ctx, runID); err != nil {
		return s, err
	}
	var at pending.Place
	if isText(runID) {
		at, err = l.look(ctx, runID)
	}
	if err == nil && at.Run().LastSeq == 0 {
		err = fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
	}
	return at.Run(), err
}

// ListRuns implements [eventlog.RunLister].
func (l *Log) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	return l.list(ctx, " WHERE "+begun+newestFirst)
}

func (l *Log) list(ctx context.Context, which string, args ...any) ([]eventlog.RunSummary, error) {
	return again(ctx, l, func() ([]eventlog.RunSummary, error) {
		rows, err := l.pool.Query(ctx, "SELECT epoch, "+runValues+" FROM run"+which, args...)
		if err != nil {
			return nil, fmt.Errorf("pglog: list runs: %w", err)
		}
		runs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (eventlog.RunSummary, error) {
			_, s, err := scanRun(row)
			return s, err
		})
		if err != nil {
			return nil, fmt.Errorf("pglog: list runs: %w", err)
		}
		return runs, nil
	})
}

func (l *Log) count(ctx context.Context, which string, args ...any) (int, error) {
	return again(ctx, l, func() (n int, err error) {
		if err = l.pool.QueryRow(ctx, "SELECT count(*) FROM run"+which, args...).Scan(&n); err != nil {
			return 0, fmt.Errorf("pglog: count runs: %w", err)
		}
		return n, nil
	})
}

// ListRunsPage implements [eventlog.RunPageLister].
func (l *Log) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (page eventlog.RunPage, err error) {
	if err := o.Valid(); err != nil {
		return page, err
	}
	o = o.Normal()
	page = eventlog.RunPage{Limit: o.Limit, Offset: o.Offset}
	if !isText(o.Query) || !isText(o.Namespace) {
		return page, nil
	}
	c := pageConditions(o)
	if page.TotalMatching, err = l.count(ctx, c.where(), c.args...); err != nil {
		return page, err
	}
	if !o.From.IsZero() {
		c.add("started <= " + c.arg(eventlog.Nanos(o.From)))
	}
	page.Runs, err = l.list(ctx, c.where()+newestFirst+" LIMIT "+c.arg(o.Limit)+" OFFSET "+c.arg(o.Offset), c.args...)
	return page, err
}

// conditions are SQL that selects rows of the table run, with its arguments. The texts
// are few, so each stays prepared.
type conditions struct {
	all  []string
	args []any
}

// arg adds an argument and returns its placeholder.
func (c *conditions) arg(v any) string {
	c.args = append(c.args, v)
	return fmt.Sprintf("$%d", len(c.args))
}

func (c *conditions) add(cond string) { c.all = append(c.all, cond) }

func (c *conditions) where() string { return " WHERE " + strings.Join(c.all, " AND ") }

// namespace selects the runs of a namespace. The first condition, on what stands before
// the first slash, is what the index run_by_namespace is for.
func (c *conditions) namespace(ns string) {
	if ns == "" {
		return
	}
	first, _, _ := strings.Cut(ns, "/")
	c.add("split_part(run_id, '/', 1) = " + c.arg(first))
	c.add("starts_with(run_id, " + c.arg(ns+"/") + ")")
}

func pageConditions(o eventlog.RunPageOptions) *conditions {
	c := &conditions{all: []string{begun}}
	c.namespace(o.Namespace)
	if kind, ok := eventlog.StatusKind(o.Status); ok {
		c.add("terminal = " + c.arg(int16(kind)))
	}
	if o.Query != "" {
		c.add("strpos(lower(substr(run_id, " + c.arg(o.QueryStart()) + ")), " + c.arg(eventlog.LowerASCII(o.Query)) + ") > 0")
	}
	if !o.StartedAfter.IsZero() {
		c.add("started > " + c.arg(eventlog.Nanos(o.StartedAfter)))
	}
	if o.RequireToolCalls {
		c.add("tools > 0")
	}
	return c
}
