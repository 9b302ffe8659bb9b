package eventview

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// ErrNoReplay is returned by [View.Replay] of a view that cannot execute runs.
var ErrNoReplay = errors.New("eventview: runs cannot be replayed here")

// View is what one reader may see of a log. Log is required. A View is safe for
// concurrent use.
type View struct {
	// Log is read.
	Log eventlog.EventLog

	// Namespace selects the runs whose ids begin with it and a slash, and is left
	// out of the ids that the reader sees. Empty selects all runs under their whole
	// ids.
	Namespace string

	// Title names the view to its reader, such as a file or a tenant. It may be
	// empty.
	Title string

	// Database is what a reader names in commands to read the log. It is empty for a reader who has
	// no access to the database itself.
	Database string

	// Follow lets a reader follow a run until leave is called. Nil lets all.
	Follow func(ctx context.Context) (leave func(), err error)

	// Checker validates the run with this whole id. Nil means [eventlog.CheckRun] in
	// the strict profile, open runs allowed.
	Checker func(ctx context.Context, runID string) (eventlog.Report, error)

	// Replayer executes the run with this whole id again and compares. Nil means that
	// runs cannot be replayed here.
	Replayer func(ctx context.Context, runID string) (agent.Verdict, error)

	// Issuer signs the receipts of the run with this whole id. Nil signs none.
	Issuer func(ctx context.Context, runID string) ([]*receipt.Receipt, error)

	// Executor executes runs again in a way that the page chooses. Nil means that it cannot be done
	// here.
	Executor func(ctx context.Context, o Execution) (Executor, error)

	// Modules has the modules of the log. Pages ask for those that runs of the view name.
	Modules eventlog.ModuleReader

	// Ended returns the functions, with their lines, in which a replayed run diverged or, if d is nil,
	// in which its last call was stopped, the innermost first. It may be nil.
	Ended func(ctx context.Context, runID string, d *agent.Divergence) []string

	// Jobs returns the states of those runs that are in a queue and have not ended, by their ids in
	// the view. It is nil without a queue.
	Jobs func(ctx context.Context, ids ...string) (map[string]queue.Status, error)

	// Usage returns the usage of the tenant, or for an operator of all tenants. It is nil if it is
	// unknown.
	Usage func(ctx context.Context, f tenant.UsageFilter) (tenant.UsageList, error)

	// Operator shows the queue of all tenants. Nil for readers who are not operators. A view
	// with it may be without a Log.
	Operator *Operator
}

// Execution is a way to execute runs again.
type Execution struct {
	// Module is the digest of a module that takes the place of those of the runs. Empty for
	// none.
	Module string
	// Observers see what the calls do.
	sandbox.Observers
}

// Executor executes runs again. It must be closed.
type Executor struct {
	Replay func(ctx context.Context, runID string) (agent.Verdict, error)
	Close  func()
}

// Operator is what operators see beside runs, and do.
type Operator struct {
	Queue *queue.Queue

	// Names returns what runs in the queue call, by their ids: tools, or the models of agents. It
	// is nil if that is unknown.
	Names func(ctx context.Context, jobs []queue.Status) map[string]string

	// Steer controls runs and hosts: it cancels or retries a run by its whole id ("cancel",
	// "retry"), and drains or resumes a host by its id ("drain", "resume"). It is nil for a
	// read-only view.
	Steer func(ctx context.Context, what, of string) error
}

// RunDocument is a run as JSON, with its place in the queue of a host.
type RunDocument struct {
	span.Document
	SilentMs int64           `json:"silent_ms,omitempty"` // since the last event of an open run, whose process may have died
	Position int             `json:"position,omitempty"`  // among the tenant's runs that wait, 1 is next
	Job      *queue.Progress `json:"job,omitempty"`       // until the run has ended
}

// Describe returns the documents with their places in the queue, but for the position.
func (v View) Describe(ctx context.Context, docs ...span.Document) []RunDocument {
	runs, all := make([]eventlog.RunSummary, len(docs)), make([]RunDocument, len(docs))
	for i, doc := range docs {
		runs[i], all[i].Document = doc.RunSummary, doc
	}
	jobs := v.OpenJobs(ctx, runs...)
	for i := range all {
		one := &all[i]
		if one.TerminalKind == 0 {
			one.SilentMs = one.Silent(time.Now()).Milliseconds()
		}
		if job, ok := jobs[one.RunID]; ok {
			one.Job = &job.Progress
		}
	}
	return all
}

// OpenJobs returns the states of the jobs of runs that have not ended. Unknown states are left out,
// so that a failure of the queue does not hide the runs.
func (v View) OpenJobs(ctx context.Context, runs ...eventlog.RunSummary) map[string]queue.Status {
	var open []string
	for _, run := range runs {
		if run.TerminalKind == 0 {
			open = append(open, run.RunID)
		}
	}
	if v.Jobs == nil || len(open) == 0 {
		return nil
	}
	found, err := v.Jobs(ctx, open...)
	if err != nil {
		return nil
	}
	return found
}

// Unreadable returns why this program cannot read a run that is whole, or nothing for every
// other error. The text is for readers of the view.
func Unreadable(err error) string {
	switch {
	case errors.Is(err, store.ErrDataKey):
		return "the run is encrypted with another key than that of its tenant"
	case errors.Is(err, eventlog.ErrSchemaTooNew):
		return "a newer version of the program has written the run"
	}
	return ""
}

// logID returns the id of a run in the log, or [eventlog.ErrRunNotFound]
// for what cannot be one: the error is the same as for a run that is absent.
func (v View) logID(id string) (string, error) {
	if id == "" || len(id) > eventlog.MaxRunIDBytes {
		return "", fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, id[:min(len(id), eventlog.MaxRunIDBytes)])
	}
	if v.Namespace == "" {
		return id, nil
	}
	return v.Namespace + "/" + id, nil
}

// Reserve takes the memory to read runs until the end of the request, see [share.Reserve].
func (v View) Reserve(ctx context.Context, ids ...string) error {
	for i, id := range ids {
		ids[i] = v.Namespace + "/" + id // of runs that are not there nothing is read
	}
	return share.Reserve(ctx, false, ids...)
}

// findRun is full for a run that exists.
func (v View) findRun(ctx context.Context, id string) (string, error) {
	runID, err := v.logID(id)
	if err == nil {
		_, err = v.Log.Run(ctx, runID)
	}
	return runID, err
}

// ShortID returns the id of a run for the reader.
func (v View) ShortID(runID string) string {
	if v.Namespace == "" {
		return runID
	}
	return strings.TrimPrefix(runID, v.Namespace+"/")
}

// CanReplay reports whether runs can be replayed here.
func (v View) CanReplay() bool { return v.Replayer != nil }

// Runs lists runs, the newest first. It ignores the option Namespace and uses the view's.
func (v View) Runs(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	o.Namespace = v.Namespace
	page, err := v.Log.ListRunsPage(ctx, o)
	if err != nil {
		return page, err
	}
	for i := range page.Runs {
		page.Runs[i].RunID = v.ShortID(page.Runs[i].RunID)
	}
	return page, nil
}

// Newest yields at least the given number of runs, the newest first, in pages of o.Limit, and sets more if there
// are older ones.
func (v View) Newest(ctx context.Context, o eventlog.RunPageOptions, most int, more *bool) iter.Seq2[eventlog.RunSummary, error] {
	return func(yield func(eventlog.RunSummary, error) bool) {
		for o.Offset = 0; o.Offset < most; {
			page, err := v.Runs(ctx, o)
			if err != nil {
				yield(eventlog.RunSummary{}, err)
				return
			}
			for _, run := range page.Runs {
				if !yield(run, nil) {
					return
				}
			}
			o.Offset += len(page.Runs)
			if *more = o.Offset < page.TotalMatching; !*more || len(page.Runs) == 0 {
				return
			}
		}
	}
}

// Search finds runs, the newest first. It ignores the option Namespace and uses the view's.
func (v View) Search(ctx context.Context, q search.Query, o search.Options) (search.Found, error) {
	o.Namespace = v.Namespace
	found, err := search.Find(ctx, v.Log, q, o)
	for i := range found.Runs {
		found.Runs[i].RunID = v.ShortID(found.Runs[i].RunID)
	}
	return found, err
}

// Run returns the summary of a run, or [eventlog.ErrRunNotFound].
func (v View) Run(ctx context.Context, id string) (eventlog.RunSummary, error) {
	runID, err := v.logID(id)
	if err != nil {
		return eventlog.RunSummary{}, err
	}
	summary, err := v.Log.Run(ctx, runID)
	summary.RunID = v.ShortID(summary.RunID)
	return summary, err
}

// Events yields the events of a run with numbers above after.
func (v View) Events(ctx context.Context, id string, after uint64) iter.Seq2[event.Event, error] {
	runID, err := v.logID(id)
	if err != nil {
		return func(yield func(event.Event, error) bool) { yield(event.Event{}, err) }
	}
	return v.Log.Events(ctx, runID, after)
}

// ErrEventNotFound means that a run has no event of that number.
var ErrEventNotFound = errors.New("eventview: event not found")

// Event returns one event of a run, [eventlog.ErrRunNotFound] or
// [ErrEventNotFound].
func (v View) Event(ctx context.Context, id string, seq uint64) (event.Event, error) {
	runID, err := v.logID(id)
	if err == nil {
		ctx, err = share.HoldEvent(ctx, runID, seq)
	}
	if err != nil {
		return event.Event{}, err
	}
	for ev, err := range v.Events(ctx, id, max(seq, 1)-1) {
		if err != nil {
			return event.Event{}, err
		}
		if ev.Seq == seq {
			return ev, nil
		}
		break
	}
	return event.Event{}, fmt.Errorf("%w: event %d of run %q", ErrEventNotFound, seq, id)
}

// Started returns what the first event of a run says of it.
func (v View) Started(ctx context.Context, id string) (event.RunStarted, error) {
	first, err := v.Event(ctx, id, 1)
	if err != nil {
		return event.RunStarted{}, err
	}
	return first.AsRunStarted()
}

// Stream delivers the events of a run that exists, from the first on and as they
// come, until the run or ctx ends.
func (v View) Stream(ctx context.Context, id string) (<-chan event.Event, error) {
	runID, err := v.findRun(ctx, id) // Stream itself waits for a run that has not begun
	if err != nil {
		return nil, err
	}
	return v.Log.Stream(ctx, runID)
}

// Check validates a run. See [View].Checker.
func (v View) Check(ctx context.Context, id string) (eventlog.Report, error) {
	runID, err := v.findRun(ctx, id)
	if errors.Is(err, eventlog.ErrRunNotFound) {
		return eventlog.Report{}, err // the checker would report a run without events as one that lost them
	}
	if v.Checker != nil {
		return v.Checker(ctx, runID)
	}
	return eventlog.CheckRun(ctx, v.Log, runID, eventlog.CheckOptions{Strict: true, AllowOpen: true})
}

// ErrNoReceipts is returned by [View.Receipts] of a view without an issuer.
var ErrNoReceipts = errors.New("eventview: no key signs receipts here")

// Receipts returns the receipts of the calls of a run that has ended.
func (v View) Receipts(ctx context.Context, id string) ([]*receipt.Receipt, error) {
	if v.Issuer == nil {
		return nil, ErrNoReceipts
	}
	runID, err := v.findRun(ctx, id)
	if err != nil {
		return nil, err
	}
	return v.Issuer(ctx, runID)
}

// Execute begins to execute runs of the view again, or returns [ErrNoReplay]. The ids that Replay
// takes are those of the view.
func (v View) Execute(ctx context.Context, o Execution) (Executor, error) {
	if v.Executor == nil {
		return Executor{}, ErrNoReplay
	}
	x, err := v.Executor(ctx, o)
	v.Replayer = x.Replay
	x.Replay = v.Replay
	return x, err
}

// Replay executes a run again and compares, or returns [ErrNoReplay].
func (v View) Replay(ctx context.Context, id string) (agent.Verdict, error) {
	if v.Replayer == nil {
		return agent.Verdict{}, ErrNoReplay
	}
	runID, err := v.findRun(ctx, id)
	if err != nil {
		return agent.Verdict{}, err
	}
	verdict, err := v.Replayer(ctx, runID)
	verdict.RunID = v.ShortID(verdict.RunID)
	return verdict, err
}

// Where returns the functions in which a replayed run diverged or was stopped, as far as that is
// known. See [View].Ended.
func (v View) Where(ctx context.Context, id string, d *agent.Divergence) []string {
	runID, err := v.logID(id)
	if err != nil || v.Ended == nil {
		return nil
	}
	return v.Ended(ctx, runID, d)
}
