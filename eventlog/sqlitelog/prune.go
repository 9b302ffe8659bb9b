package sqlitelog

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math"

	"github.com/starling-host/starling/eventlog"
)

// pruning is a pruning on its way to the file.
type pruning struct {
	where     string
	args      []driver.Value
	overwrite string // how secure_delete is set meanwhile
	report    eventlog.PruneReport
	done      chan error
}

// PruneRuns implements [eventlog.RunPruner]. However many runs match, they are named
// by a condition and not one by one. The writer removes them between two batches,
// in one transaction.
//
// What runs held that are removed by their ids is overwritten: who names them wants to be
// rid of what is in them. After [Compact] it is in no page of the file, and in its WAL
// until the last log of the file is closed at the latest. The others give room back, and
// to overwrite all of it would write as much as was recorded; but where a removal moves
// what stays, no copy is left behind that a later one would not find.
func (l *Log) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (report eventlog.PruneReport, err error) {
	report.DryRun = o.DryRun
	if err := o.Valid(); err != nil {
		return report, err
	}
	indexed := l.layout.Load() == layoutVersion
	if !indexed && !o.DryRun {
		return report, eventlog.ErrSchemaOutdated
	}
	behind, err := l.behind(ctx)
	if err != nil {
		return report, err
	}
	if o.DryRun && (!indexed || len(behind) > 0) {
		all, err := l.list(ctx, behind)
		for _, s := range o.Select(all) {
			report.Runs++
			report.Events += int64(s.LastSeq)
		}
		return report, err
	}
	p := &pruning{overwrite: "FAST", report: report, done: make(chan error, 1)}
	if len(o.RunIDs) > 0 {
		p.overwrite = "ON"
	}
	if p.where, p.args, err = l.doomed(o); err != nil {
		return report, err
	}
	if o.DryRun {
		err = l.countDoomed(ctx, p)
		return p.report, err
	}
	if err := l.perform(ctx, p, p.done); err != nil {
		return report, err
	}
	return p.report, nil
}

// doomed returns the condition on the table run that selects what is to go. Runs
// that this log is at work on are left alone.
func (l *Log) doomed(o eventlog.PruneOptions) (where string, args []driver.Value, err error) {
	where = "1"
	if o.Namespace != "" {
		where, args = where+" AND "+inNamespaceSQL, append(args, o.Namespace+"/", o.Namespace+"0")
	}
	if !o.Before.IsZero() {
		where, args = where+" AND started < ?", append(args, eventlog.Nanos(o.Before))
	}
	if kind, _ := eventlog.StatusKind(o.Status); o.Status != "" {
		where, args = where+" AND terminal = ?", append(args, int64(kind))
	}
	if !o.IncludeOpen {
		where += " AND terminal <> 0"
	}
	if len(o.RunIDs) > 0 {
		named, err := json.Marshal(o.RunIDs)
		if err != nil {
			return "", nil, err
		}
		where, args = where+" AND run_id IN (SELECT value FROM json_each(?))", append(args, string(named))
	}
	open, err := json.Marshal(l.runs.AtWork())
	if err != nil {
		return "", nil, err
	}
	limit := int64(math.MaxInt64)
	if o.Limit > 0 { // the oldest, and not a sort of all for each few that are removed
		limit = int64(o.Limit)
		where, args = byStart(where, args, o.Namespace)
	}
	where = "run_no IN (SELECT run_no FROM run WHERE " + where +
		" AND run_id NOT IN (SELECT value FROM json_each(?)) ORDER BY started, run_no LIMIT ?)"
	return where, append(args, string(open), limit), nil
}

// countDoomed fills in the report of a dry run.
func (l *Log) countDoomed(ctx context.Context, p *pruning) error {
	return l.readers.with(ctx, func(r *reader) error {
		return r.conn.query(ctx, countDoomedSQL+p.where, p.args, p.count)
	})
}

const countDoomedSQL = "SELECT count(*), coalesce(sum(last_seq), 0) FROM run WHERE "

func (p *pruning) count(row []driver.Value) error {
	runs, _ := row[0].(int64)
	events, _ := row[1].(int64)
	p.report.Runs, p.report.Events = int(runs), events
	return nil
}

// do removes the runs inside the transaction that has begun: the row of the table
// run last, because it says which.
func (p *pruning) do(w *writer) error {
	ctx := context.Background()
	if err := w.conn.exec(ctx, "PRAGMA secure_delete="+p.overwrite); err != nil {
		return fmt.Errorf("sqlitelog: prune: %w", err)
	}
	defer func() { _ = w.conn.exec(ctx, "PRAGMA secure_delete=OFF") }() // left on, it costs time alone
	err := w.conn.query(ctx, countDoomedSQL+p.where, p.args, p.count)
	for _, statement := range []string{
		"DELETE FROM eventlog_events WHERE run_id IN (SELECT run_id FROM run WHERE " + p.where + ")",
		"DELETE FROM run_fence WHERE run_id IN (SELECT run_id FROM run WHERE " + p.where + ")",
		"DELETE FROM run WHERE " + p.where,
	} {
		if err == nil {
			err = w.conn.exec(ctx, statement, p.args...)
		}
	}
	if err != nil {
		return fmt.Errorf("sqlitelog: prune: %w", err)
	}
	return nil
}
