package eventlog

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
)

// RunSummary is one line of a listing.
type RunSummary struct {
	RunID         string
	StartedAt     time.Time  // of the first event
	LastSeq       uint64     // number of the last event
	TerminalKind  event.Kind // zero while the run is open
	TurnCount     int
	ToolCallCount int // calls, not attempts
	InputTokens   int64
	OutputTokens  int64
	CostUSD       float64
	DurationMs    int64      // from the first event to the last; 0 if the clock was set back between them
	Head          chain.Hash // of the last event; zero where the backend keeps none
}

// Together adds up the events, turns, calls, tokens and costs of runs.
func Together(runs []RunSummary) (sum RunSummary) {
	for _, s := range runs {
		sum.LastSeq += s.LastSeq
		sum.TurnCount += s.TurnCount
		sum.ToolCallCount += s.ToolCallCount
		sum.InputTokens += s.InputTokens
		sum.OutputTokens += s.OutputTokens
		sum.CostUSD += s.CostUSD
	}
	return sum
}

// Status returns the word for the state of the run that listings filter by:
// "completed", "failed", "cancelled" or "open".
func (s RunSummary) Status() string {
	switch s.TerminalKind {
	case event.KindRunCompleted:
		return StatusCompleted
	case event.KindRunFailed:
		return StatusFailed
	case event.KindRunCancelled:
		return StatusCancelled
	}
	return StatusOpen
}

// The values of [RunPageOptions].Status.
const (
	StatusCompleted = "completed"
	StatusFailed    = "failed"
	StatusCancelled = "cancelled"
	StatusOpen      = "open" // it has no end: it is in progress, or its process died
)

// StatusKind returns the terminal kind that a status stands for, zero for an open
// run, and whether there is such a status.
func StatusKind(status string) (event.Kind, bool) {
	switch status {
	case StatusCompleted:
		return event.KindRunCompleted, true
	case StatusFailed:
		return event.KindRunFailed, true
	case StatusCancelled:
		return event.KindRunCancelled, true
	case StatusOpen:
		return 0, true
	}
	return 0, false
}

// RunLister lists all durable runs, the newest first.
type RunLister interface {
	ListRuns(ctx context.Context) ([]RunSummary, error)
}

// RunPageLister lists the durable runs that match, the newest first, a page at
// a time.
type RunPageLister interface {
	ListRunsPage(ctx context.Context, o RunPageOptions) (RunPage, error)
}

// RunPageOptions selects runs. The zero value selects the first page of all.
type RunPageOptions struct {
	Limit            int       // runs on the page; zero or less is DefaultPageLimit, more than MaxPageLimit is MaxPageLimit
	Offset           int       // matching runs to skip; less than zero is zero
	Status           string    // one of the Status constants; empty selects all, another value is an error
	Query            string    // substring of the run id behind the namespace, ASCII letters in any case; empty selects all
	Namespace        string    // only runs whose id begins with it and a slash; empty selects all
	StartedAfter     time.Time // only runs that started later; zero selects all
	RequireToolCalls bool      // only runs with at least one tool call

	// From has the page begin with runs that started then or earlier, of which Offset
	// skips. Those that started later are on earlier pages and count for TotalMatching.
	// So a place in a listing stays where it is when runs begin, end or are removed.
	// Zero is the newest run.
	From time.Time
}

// Bounds of [RunPageOptions].Limit.
const (
	DefaultPageLimit = 50
	MaxPageLimit     = 1000
)

// Normal returns o with Limit and Offset brought into their bounds.
func (o RunPageOptions) Normal() RunPageOptions {
	if o.Limit <= 0 {
		o.Limit = DefaultPageLimit
	}
	o.Limit = min(o.Limit, MaxPageLimit)
	o.Offset = max(o.Offset, 0)
	return o
}

// Valid reports whether the options select anything that exists.
func (o RunPageOptions) Valid() error {
	if _, ok := StatusKind(o.Status); o.Status != "" && !ok {
		return fmt.Errorf("eventlog: unknown status %q (want %s, %s, %s or %s)", o.Status,
			StatusCompleted, StatusFailed, StatusCancelled, StatusOpen)
	}
	return nil
}

// Select returns the page of all that o selects. It is for backends that hold
// all summaries, the newest first, in memory.
func (o RunPageOptions) Select(all []RunSummary) (RunPage, error) {
	if err := o.Valid(); err != nil {
		return RunPage{}, err
	}
	o = o.Normal()
	matching := slices.DeleteFunc(slices.Clone(all), func(s RunSummary) bool { return !o.match(s) })
	from := 0
	for !o.From.IsZero() && from < len(matching) && matching[from].StartedAt.After(o.From) {
		from++
	}
	from = min(from+o.Offset, len(matching))
	to := min(from+o.Limit, len(matching))
	return RunPage{Runs: matching[from:to], TotalMatching: len(matching), Limit: o.Limit, Offset: o.Offset}, nil
}

func (o RunPageOptions) match(s RunSummary) bool {
	return (o.Status == "" || s.Status() == o.Status) &&
		InNamespace(s.RunID, o.Namespace) &&
		strings.Contains(LowerASCII(s.RunID[len(o.prefix()):]), LowerASCII(o.Query)) &&
		(o.StartedAfter.IsZero() || s.StartedAt.After(o.StartedAfter)) &&
		(!o.RequireToolCalls || s.ToolCallCount > 0)
}

// prefix is what the ids in the namespace begin with.
func (o RunPageOptions) prefix() string {
	if o.Namespace == "" {
		return ""
	}
	return o.Namespace + "/"
}

// QueryStart returns the character of a run id, counted from 1, at which the search for
// Query begins: whoever sees a namespace sees ids without it.
func (o RunPageOptions) QueryStart() int { return utf8.RuneCountInString(o.prefix()) + 1 }

// Nanos returns a time as logs keep one, in nanoseconds since 1970. These reach 292
// years in either direction; a time beyond them is the last that they reach.
func Nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// InNamespace reports whether a run id begins with the namespace and a slash. All
// do if there is no namespace.
func InNamespace(runID, namespace string) bool {
	return namespace == "" || strings.HasPrefix(runID, namespace+"/")
}

// LowerASCII maps the letters A to Z to a to z and leaves the rest alone, as
// SQL's lower does.
func LowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

// RunPage is one page of a listing.
type RunPage struct {
	Runs          []RunSummary
	TotalMatching int // runs that match, on all pages
	Limit, Offset int // as they were applied
}

// RunFinder looks up one run. The backend keeps a summary of each run that it writes,
// apart from the events: the head in it is what [CheckRun] holds the last event against.
// Where that summary lacks events, because another program appended them or because it
// was lost, the backend computes one, which has no head.
type RunFinder interface {
	// Run returns the summary of a durable run, or [ErrRunNotFound] if it has no events.
	Run(ctx context.Context, runID string) (RunSummary, error)
}
