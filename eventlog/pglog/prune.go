package pglog

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
)

// PruneRuns implements [eventlog.RunPruner]. However many runs match, they are named by
// a condition and not one by one, and removed in one transaction.
func (l *Log) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (report eventlog.PruneReport, err error) {
	report.DryRun = o.DryRun
	if err := o.Valid(); err != nil {
		return report, err
	}
	check := l.runs.Writable
	if o.DryRun {
		check = l.readable
	}
	if err := check(); err != nil {
		return report, err
	}
	if !isText(o.Namespace) {
		return report, nil
	}
	behind, err := l.lately(ctx)
	if err != nil {
		return report, err
	}
	if o.DryRun && len(behind) > 0 {
		all, err := l.computed(ctx, behind)
		for _, s := range o.Select(all) {
			report.Runs++
			report.Events += int64(s.LastSeq)
		}
		return report, err
	}
	doomed, args := l.doomed(o)
	count := func(q rowQuerier, sql string) error {
		err := q.QueryRow(ctx, sql, args...).Scan(&report.Runs, &report.Events)
		if err != nil {
			return fmt.Errorf("pglog: prune: %w", err)
		}
		return nil
	}
	if o.DryRun {
		return report, count(l.pool, doomed+" SELECT count(*), coalesce(sum(last_seq), 0)::bigint FROM doomed")
	}
	err = l.inTx(ctx, nil, pgx.ReadCommitted, func(tx pgx.Tx) error {
		if err := count(tx, doomed+removeSQL); err != nil || !everything(o) {
			return err
		}
		return removeEmpty(ctx, tx, o.Namespace)
	})
	if err != nil {
		return eventlog.PruneReport{}, err
	}
	return report, nil
}

// everything reports whether the options select all there is in a namespace.
func everything(o eventlog.PruneOptions) bool {
	return o.IncludeOpen && o.Status == "" && o.Before.IsZero() && o.Limit <= 0 && len(o.RunIDs) == 0
}

// removeEmpty removes what is left of runs that were given to a writer and never begun.
func removeEmpty(ctx context.Context, tx pgx.Tx, namespace string) error {
	c := &conditions{all: []string{"last_seq = 0"}}
	c.namespace(namespace)
	if _, err := tx.Exec(ctx, "DELETE FROM run"+c.where(), c.args...); err != nil {
		return fmt.Errorf("pglog: prune: %w", err)
	}
	return nil
}

// removeSQL removes the runs in doomed, and counts those that it has removed itself.
const removeSQL = `, events AS (
	DELETE FROM eventlog_events USING doomed WHERE eventlog_events.run_id = doomed.run_id
), gone AS (
	DELETE FROM run USING doomed WHERE run.run_id = doomed.run_id RETURNING run.last_seq
)
SELECT count(*), coalesce(sum(last_seq), 0)::bigint FROM gone`

// doomed selects what is to go. Runs that this log is at work on are left alone.
func (l *Log) doomed(o eventlog.PruneOptions) (with string, args []any) {
	c := &conditions{all: []string{begun}}
	c.namespace(o.Namespace)
	if !o.Before.IsZero() {
		c.add("started < " + c.arg(eventlog.Nanos(o.Before)))
	}
	if kind, _ := eventlog.StatusKind(o.Status); o.Status != "" {
		c.add("terminal = " + c.arg(int16(kind)))
	}
	if !o.IncludeOpen {
		c.add("terminal <> 0")
	}
	if len(o.RunIDs) > 0 { // one that the database cannot hold is not there
		stored := slices.DeleteFunc(slices.Clone(o.RunIDs), func(id string) bool { return !isText(id) })
		c.add("run_id = ANY (" + c.arg(stored) + "::text[])")
	}
	c.add("run_id <> ALL (" + c.arg(l.runs.AtWork()) + "::text[])")
	with = "WITH doomed AS (SELECT run_id, last_seq FROM run" + c.where() + " ORDER BY started, run_id"
	if o.Limit > 0 {
		with += " LIMIT " + c.arg(o.Limit)
	}
	return with + ")", c.args
}
