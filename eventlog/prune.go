package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// ErrInvalidPrune means that the options of a pruning contradict each other.
var ErrInvalidPrune = errors.New("eventlog: invalid prune options")

// PruneOptions select runs to remove. The zero value selects all ended runs.
type PruneOptions struct {
	Before time.Time // only runs that started earlier; zero selects all
	Status string    // one of the Status constants; empty selects all ended runs

	Namespace string // only runs whose id begins with it and a slash; empty selects all

	// FromULID and ToULID select runs by the last 26 characters of their ids, which are ULIDs: those from
	// the first text on, and before the other one. An empty text sets no bound.
	FromULID, ToULID string

	// RunIDs selects only these runs; empty selects all. An id that does not exist
	// selects nothing. Their content is overwritten where the backend can: see
	// PruneRuns of package sqlitelog.
	RunIDs []string

	// IncludeOpen also selects runs without an end. No writer may be working on them:
	// PruneRuns leaves alone the open runs that this log has appended to, but does
	// not know other processes' runs.
	IncludeOpen bool

	Limit  int  // the most runs to remove, the oldest first; zero or less is unlimited
	DryRun bool // remove nothing

	Why string // the reason, which is recorded and sealed with the removal of a sealed run
}

// PruneReport describes what a pruning removed, or would remove.
type PruneReport struct {
	Runs   int   `json:"runs"`
	Events int64 `json:"events"`
	DryRun bool  `json:"dry_run"`
}

// Valid returns the first error in the options, or nil.
func (o PruneOptions) Valid() error {
	_, known := StatusKind(o.Status)
	switch {
	case o.Status != "" && !known:
		return fmt.Errorf("%w: unknown status %q", ErrInvalidPrune, o.Status)
	case o.Status == StatusOpen && !o.IncludeOpen:
		return fmt.Errorf("%w: status %q without IncludeOpen", ErrInvalidPrune, o.Status)
	case slices.ContainsFunc(o.RunIDs, func(id string) bool { return !utf8.ValidString(id) }):
		return fmt.Errorf("%w: a run id is not UTF-8", ErrInvalidPrune) // the database could change it into another id
	}
	return nil
}

// Match reports whether the options select a run.
func (o PruneOptions) Match(s RunSummary) bool {
	if o.FromULID+o.ToULID != "" {
		id := []rune(s.RunID)
		ulid := string(id[max(0, len(id)-26):])
		if ulid < o.FromULID || o.ToULID != "" && ulid >= o.ToULID {
			return false
		}
	}
	return InNamespace(s.RunID, o.Namespace) &&
		(len(o.RunIDs) == 0 || slices.Contains(o.RunIDs, s.RunID)) &&
		(o.Before.IsZero() || s.StartedAt.Before(o.Before)) &&
		(o.Status == "" || s.Status() == o.Status) &&
		(o.IncludeOpen || s.TerminalKind != 0)
}

// Select returns the runs that the options select, the oldest first, from all runs, the
// newest first.
func (o PruneOptions) Select(all []RunSummary) []RunSummary {
	runs := slices.DeleteFunc(slices.Clone(all), func(s RunSummary) bool { return !o.Match(s) })
	slices.Reverse(runs)
	if o.Limit > 0 && len(runs) > o.Limit {
		runs = runs[:o.Limit]
	}
	return runs
}

// Limits of one transaction of [PruneInSteps], except for a single longer run: on
// SQLite no other writer commits meanwhile.
const (
	pruneStepRuns   = 100
	pruneStepEvents = 5000
)

// PruneInSteps removes the selected runs as PruneRuns does, but in many short
// transactions, the oldest runs first, so that others write in between. If it
// fails, the runs already removed stay removed, and are in the report.
func PruneInSteps(ctx context.Context, p RunPruner, o PruneOptions) (all PruneReport, err error) {
	for step := o; !o.DryRun; {
		if step.Limit, err = fitting(ctx, p, o); err != nil {
			return all, err
		}
		if step.Limit == 0 {
			break
		}
		removed, err := p.PruneRuns(ctx, step)
		all.add(removed)
		if err != nil || o.Limit > 0 && removed.Runs == o.Limit {
			return all, err
		}
		if removed.Runs == 0 { // another process has removed them meanwhile
			break
		}
		if o.Limit > 0 {
			o.Limit -= removed.Runs
		}
	}
	rest, err := p.PruneRuns(ctx, o) // the rest, such as runs that never began
	all.add(rest)
	all.DryRun = o.DryRun
	return all, err
}

// fitting returns how many of the selected runs one transaction may remove; 0 if
// none are left.
func fitting(ctx context.Context, p RunPruner, o PruneOptions) (int, error) {
	if o.Limit <= 0 || o.Limit > pruneStepRuns {
		o.Limit = pruneStepRuns
	}
	for o.DryRun = true; ; o.Limit /= 2 {
		selected, err := p.PruneRuns(ctx, o)
		if err != nil || selected.Events <= pruneStepEvents || o.Limit == 1 {
			return selected.Runs, err
		}
	}
}

func (r *PruneReport) add(other PruneReport) {
	r.Runs += other.Runs
	r.Events += other.Events
}
