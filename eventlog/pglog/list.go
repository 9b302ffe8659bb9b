package pglog

import (
	"context"
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

// find returns where a run stands by its row, and the number of its last event, which is
// greater if another program has appended to the run.
func find(ctx context.Context, q rowQuerier, runID string) (at pending.Place, last uint64, err error) {
	const query = "SELECT coalesce(epoch, 0), coalesce(run_id, ''), coalesce(started, 0), coalesce(last_seq, 0), coalesce(head, decode(repeat('00', 32), 'hex')), " +
		"coalesce(terminal, 0), coalesce(turns, 0), coalesce(tools, 0), coalesce(input_tokens, 0), coalesce(output_tokens, 0), coalesce(cost_usd, 0), " +
		"coalesce(duration_ms, 0), (SELECT coalesce(max(seq), 0) FROM eventlog_events WHERE run_id = $1) FROM (SELECT 1) AS one LEFT JOIN run ON run_id = $1"
	var seq int64
	epoch, s, err := scanRun(q.QueryRow(ctx, query, runID), &seq)
	if err != nil {
		return at, 0, fmt.Errorf("pglog: look up run %q: %w", runID, err)
	}
	if s.LastSeq > 0 {
		at.Cursor = eventlog.NewCursor(s)
	}
	at.Epoch = epoch
	return at, uint64(max(seq, 0)), nil
}

// scanRun builds a summary from a row of epoch and runValues, behind which there may be
// more.
func scanRun(row pgx.Row, more ...any) (epoch uint64, s eventlog.RunSummary, err error) {
	var started, last int64
	var head []byte
	var terminal int16
	err = row.Scan(append([]any{&epoch, &s.RunID, &started, &last, &head, &terminal, &s.TurnCount, &s.ToolCallCount,
		&s.InputTokens, &s.OutputTokens, &s.CostUSD, &s.DurationMs}, more...)...)
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
	kept := true
	if isText(runID) {
		at, kept, err = l.look(ctx, runID)
	}
	s = at.Run()
	if err == nil && s.LastSeq == 0 {
		err = fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
	}
	if !kept {
		s.Head = chain.Hash{}
	}
	return s, err
}

// ListRuns implements [eventlog.RunLister].
func (l *Log) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	behind, err := l.behind(ctx)
	if err != nil {
		return nil, err
	}
	return l.computed(ctx, behind)
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
	behind, err := l.lazily(ctx)
	if err != nil {
		return page, err
	}
	if len(behind) > 0 {
		all, err := l.computed(ctx, behind)
		if err != nil {
			return page, err
		}
		return o.Select(all)
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
