package memlog

import (
	"context"
	"slices"

	"github.com/starling-host/starling/eventlog"
)

// PruneRuns implements [eventlog.RunPruner]. Whoever has appended to a run in
// memory is at work on it, so runs without an end are never selected.
func (l *Log) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (eventlog.PruneReport, error) {
	report := eventlog.PruneReport{DryRun: o.DryRun}
	if err := o.Valid(); err != nil {
		return report, err
	}
	all, err := l.ListRuns(ctx)
	if err != nil {
		return report, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range slices.Backward(all) {
		if o.Limit > 0 && report.Runs == o.Limit {
			break
		}
		if s.TerminalKind == 0 || !o.Match(s) {
			continue
		}
		report.Runs++
		report.Events += int64(s.LastSeq)
		if !o.DryRun {
			delete(l.runs, s.RunID)
		}
	}
	return report, nil
}
