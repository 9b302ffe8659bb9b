package sqlitelog

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// newestFirst is the order of listings.
const newestFirst = " ORDER BY started DESC, run_no DESC"

// Run implements [eventlog.RunFinder]. For a file of the seed runtime, which
// keeps nothing about runs, the summary is computed and has no head.
func (l *Log) Run(ctx context.Context, runID string) (s eventlog.RunSummary, err error) {
	if err := l.runs.Settle(ctx, runID); err != nil {
		return s, err
	}
	if l.layout.Load() < layoutVersion {
		return l.summarize(ctx, runID)
	}
	err = l.readers.with(ctx, func(r *reader) error {
		_, s, err = r.run(ctx, runID)
		return err
	})
	return s, err
}

// summarize computes the summary of one run from its events.
func (l *Log) summarize(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	var c eventlog.Cursor
	for e, err := range l.Events(ctx, runID, 0) {
		if err != nil {
			return eventlog.RunSummary{}, err
		}
		c.Skip(e)
	}
	s := c.Run()
	s.Head = chain.Hash{}
	return s, nil
}

// ListRuns implements [eventlog.RunLister].
func (l *Log) ListRuns(ctx context.Context) (runs []eventlog.RunSummary, err error) {
	if l.layout.Load() < layoutVersion {
		return l.listSeed(ctx)
	}
	err = l.readers.with(ctx, func(r *reader) error {
		runs, err = r.list(ctx, "SELECT "+runColumns+" FROM run"+newestFirst)
		return err
	})
	return runs, err
}

// ListRunsPage implements [eventlog.RunPageLister].
func (l *Log) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (page eventlog.RunPage, err error) {
	if err := o.Valid(); err != nil {
		return page, err
	}
	if l.layout.Load() < layoutVersion {
		all, err := l.listSeed(ctx)
		if err != nil {
			return page, err
		}
		return o.Select(all)
	}
	o = o.Normal()
	where, args := conditions(o)
	page = eventlog.RunPage{Limit: o.Limit, Offset: o.Offset}
	err = l.readers.with(ctx, func(r *reader) error {
		page.TotalMatching, err = r.count(ctx, "SELECT count(*) FROM run"+where, args)
		if err != nil {
			return err
		}
		where, args = byStart(where, args, o.Namespace)
		where, args = startingAt(where, args, o.From)
		args = append(args, int64(o.Limit), int64(o.Offset))
		page.Runs, err = r.list(ctx, "SELECT "+runColumns+" FROM run"+where+newestFirst+" LIMIT ? OFFSET ?", args...)
		return err
	})
	return page, err
}

// inNamespaceSQL takes the least id of a namespace and the one behind its last:
// "0" is the character after the slash.
const inNamespaceSQL = "run_id >= ? AND run_id < ?"

// byStart adds to the conditions of a listing one that selects nothing further, and
// has the index run_by_namespace, which is in the order of listings, be used for it.
// To count, the ids alone are faster.
func byStart(where string, args []driver.Value, namespace string) (string, []driver.Value) {
	if namespace == "" {
		return where, args
	}
	first, _, _ := strings.Cut(namespace, "/")
	return where + " AND " + firstSegment + " = ?", append(args, first+"/")
}

// startingAt adds to the conditions of a listing where its page begins.
func startingAt(where string, args []driver.Value, from time.Time) (string, []driver.Value) {
	if from.IsZero() {
		return where, args
	}
	return cmp.Or(where, " WHERE 1") + " AND started <= ?", append(args, eventlog.Nanos(from))
}

// conditions turns the options into SQL. The texts are few, so each stays
// prepared.
func conditions(o eventlog.RunPageOptions) (where string, args []driver.Value) {
	var conds []string
	add := func(cond string, vals ...driver.Value) {
		conds = append(conds, cond)
		args = append(args, vals...)
	}
	if kind, ok := eventlog.StatusKind(o.Status); ok {
		add("terminal = ?", int64(kind))
	}
	if o.Namespace != "" {
		add(inNamespaceSQL, o.Namespace+"/", o.Namespace+"0")
	}
	if o.Query != "" {
		add("instr(lower(substr(run_id, ?)), ?) > 0", int64(o.QueryStart()), eventlog.LowerASCII(o.Query))
	}
	if !o.StartedAfter.IsZero() {
		add("started > ?", eventlog.Nanos(o.StartedAfter))
	}
	if o.RequireToolCalls {
		add("tools > 0")
	}
	if len(conds) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(conds, " AND "), args
}

func (r *reader) list(ctx context.Context, query string, args ...driver.Value) (runs []eventlog.RunSummary, err error) {
	err = r.query(ctx, query, args, func(row []driver.Value) error {
		_, s, err := summaryOf(row)
		runs = append(runs, s)
		return err
	})
	return runs, err
}

func (r *reader) count(ctx context.Context, query string, args []driver.Value) (n int, err error) {
	err = r.query(ctx, query, args, func(row []driver.Value) error {
		v, ok := row[0].(int64)
		if !ok {
			return fmt.Errorf("sqlitelog: count: %v is not an integer", row[0])
		}
		n = int(v)
		return nil
	})
	return n, err
}

// listSeed lists a file of the seed runtime, by reading all of it.
func (l *Log) listSeed(ctx context.Context) ([]eventlog.RunSummary, error) {
	var ids []string
	err := l.readers.with(ctx, func(r *reader) error {
		return r.query(ctx, "SELECT DISTINCT "+boundedID+" FROM eventlog_events", nil, func(row []driver.Value) error {
			id, ok := row[0].(string)
			if !ok {
				return fmt.Errorf("%w: column run_id holds a %T, or an id that is too long", eventlog.ErrLogCorrupt, row[0])
			}
			ids = append(ids, id)
			return nil
		})
	})
	runs := make([]eventlog.RunSummary, 0, len(ids))
	for _, id := range ids {
		s, sumErr := l.summarize(ctx, id)
		if sumErr != nil {
			return nil, sumErr
		}
		runs = append(runs, s)
	}
	slices.SortFunc(runs, func(a, b eventlog.RunSummary) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), strings.Compare(b.RunID, a.RunID))
	})
	return runs, err
}
