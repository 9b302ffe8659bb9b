package sqlitelog

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// newestFirst is the order of listings.
const newestFirst = " ORDER BY started DESC, run_no DESC"

// Run implements [eventlog.RunFinder]. A summary that the log computes and does not keep
// has no head.
func (l *Log) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	if err := l.runs.Settle(ctx, runID); err != nil {
		return eventlog.RunSummary{}, err
	}
	_, s, kept, err := l.look(ctx, runID)
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
	return l.list(ctx, behind)
}

// list returns all runs, of which those that are named are summarised by their events.
func (l *Log) list(ctx context.Context, behind []string) (runs []eventlog.RunSummary, err error) {
	if l.layout.Load() == layoutVersion {
		err = l.readers.with(ctx, func(r *reader) error {
			runs, err = r.list(ctx, "SELECT "+runColumns+" FROM run"+newestFirst)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return tail.Merge(runs, behind, func(id string) (s eventlog.RunSummary, kept bool, err error) {
		_, s, kept, err = l.stands(ctx, id)
		return s, kept, err
	})
}

// ListRunsPage implements [eventlog.RunPageLister].
func (l *Log) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (page eventlog.RunPage, err error) {
	if err := o.Valid(); err != nil {
		return page, err
	}
	behind, err := l.behind(ctx)
	if err != nil {
		return page, err
	}
	if len(behind) > 0 || l.layout.Load() < layoutVersion {
		all, err := l.list(ctx, behind)
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
