package daemon

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// fullID returns the id of a tenant's run in the log.
func fullID(tenantID, id string) string { return tenantID + "/" + id }

// View returns the log as a tenant sees it.
func (d *Daemon) View(a Account) (eventview.View, error) {
	log, err := a.open(share.Log{Database: d.config.Log})
	view := eventview.View{
		Log: log, Namespace: a.ID, Title: a.ID,
		Follow: func(ctx context.Context) (func(), error) {
			return enter(ctx, d.streams, a.Tenant, d.config.Requests.Streams)
		},
		Replayer: func(ctx context.Context, runID string) (agent.Verdict, error) {
			return d.replayInSlot(ctx, a.Tenant, log, runID)
		},
		Executor: func(ctx context.Context, o eventview.Execution) (eventview.Executor, error) {
			return d.execute(ctx, a.Tenant, log, o)
		},
		Modules: d.config.Log,
		Jobs: func(ctx context.Context, ids ...string) (map[string]queue.Status, error) { // but the host and the text of the last error, which are the operator's
			whole := lists.Map(ids, func(id string) string { return fullID(a.ID, id) })
			jobs, err := d.config.Queue.Lookup(ctx, whole...)
			found := make(map[string]queue.Status, len(jobs))
			for i, id := range ids {
				if s, ok := jobs[whole[i]]; ok {
					found[id] = queue.Status{Progress: s.Shown()}
				}
			}
			return found, err
		},
		Usage: func(ctx context.Context, f tenant.UsageFilter) (tenant.UsageList, error) {
			f.Tenant = a.ID
			return d.Usage(ctx, f)
		},
	}
	if d.config.Receipts != nil {
		view.Issuer = func(ctx context.Context, runID string) ([]*receipt.Receipt, error) {
			if err := share.Reserve(ctx, false, runID); err != nil {
				return nil, err
			}
			opener, _ := log.(seal.Opener)
			return d.config.Receipts.Issue(ctx, d.config.Log, opener, runID)
		}
	}
	return view, err
}

// OperatorView returns what an operator sees in the web view.
func (d *Daemon) OperatorView() eventview.View {
	return eventview.View{Title: "operator", Usage: d.Usage, Operator: &eventview.Operator{Queue: d.config.Queue, Names: d.names, Steer: d.Steer}}
}

// names returns what the runs of jobs call: tools, whose names operators also see in the metrics,
// and models. It leaves out what cannot be read. Goals and arguments are the tenant's alone.
func (d *Daemon) names(ctx context.Context, jobs []queue.Status) map[string]string {
	names := map[string]string{}
	for _, job := range jobs {
		a, err := d.account(ctx, job.Tenant)
		if err != nil {
			continue
		}
		v, err := d.View(a)
		if err != nil {
			continue
		}
		started, err := v.Started(ctx, strings.TrimPrefix(job.RunID, job.Tenant+"/"))
		if names[job.RunID] = started.ModelID; err == nil && started.ModelID == "" && len(started.ToolSchemas) == 1 {
			names[job.RunID] = started.ToolSchemas[0].Name
		}
	}
	return names
}

// open returns a log as a tenant sees it: with the tenant's own runs, decrypted.
func (a Account) open(log eventlog.EventLog) (eventlog.EventLog, error) {
	return store.Encrypted(log, a.snapshot.Key, a.ID)
}

// leased is the log of a worker that holds the lease of a run. It refuses appends once the
// run is taken from the worker, so that the cancellation of its context is not recorded as
// an outcome of the run. The run stays open, and the next worker goes on with it.
type leased struct {
	eventlog.EventLog
	ctx   context.Context // of the lease
	count func(bytes int)

	mu     sync.Mutex
	refuse func() error  // why the run must not go on, until it said so once: then the end is recorded; guarded by mu
	bytes  int           // of the run, as read and appended so far; guarded by mu
	read   string        // the run whose events before counts; guarded by mu
	before []event.Event // its events; guarded by mu
}

// Read implements [eventlog.EventLog]. It caches the last run until the next append: several parts
// of the host read a run before a worker continues it, and no other worker can append in the
// meantime.
func (l *leased) Read(ctx context.Context, runID string) (evs []event.Event, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.before != nil && l.read == runID {
		return l.before, nil
	}
	if evs, err = l.EventLog.Read(ctx, runID); err == nil {
		l.read, l.before, l.bytes = runID, evs, 0
		for _, ev := range evs {
			l.bytes += len(ev.Payload) + envelopeBytes
		}
	}
	return evs, err
}

// Events implements [eventlog.EventLog], by what Read keeps.
func (l *leased) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		evs, err := l.Read(ctx, runID)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		for _, ev := range evs[min(after, uint64(len(evs))):] {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// errHandedBack ends the work on a run that another worker continues.
var errHandedBack = errors.New("daemon: the run was handed back")

// Append implements [eventlog.EventLog].
func (l *leased) Append(ctx context.Context, runID string, ev event.Event) error {
	l.mu.Lock()
	l.before = nil
	refuse := l.refuse
	l.mu.Unlock()
	if refuse != nil && !ev.Kind.Terminal() {
		if err := refuse(); err != nil {
			l.mu.Lock()
			l.refuse = nil
			l.mu.Unlock()
			return err
		}
	}
	if cause := context.Cause(l.ctx); errors.Is(cause, queue.ErrStopping) || errors.Is(cause, queue.ErrLost) {
		return errHandedBack
	}
	err := l.EventLog.Append(ctx, runID, ev)
	if err == nil {
		l.count(len(ev.Payload) + envelopeBytes)
		l.mu.Lock()
		l.bytes += len(ev.Payload) + envelopeBytes
		l.mu.Unlock()
	}
	return err
}

// envelopeBytes is about what an event has around its payload.
const envelopeBytes = 128
