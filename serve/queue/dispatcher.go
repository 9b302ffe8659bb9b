package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/tenant"
)

// dispatcher hands jobs to the workers of one call of Work. Queue.mu guards its fields.
type dispatcher struct {
	q       *Queue
	ctx     context.Context // of the handlers, which outlives that of Work
	fail    context.CancelCauseFunc
	handler Handler

	owner    string // what its jobs are claimed under; empty until that is registered
	until    time.Time
	free     int  // workers without a job
	wanted   bool // there may be jobs to hand out
	due      bool // there may be jobs that have slept long enough
	stale    bool // limits may have changed
	recount  bool // the counts may be wrong
	doubt    bool // a transaction failed, and may or may not have been committed
	stopping bool // nothing is handed out any more
	draining bool // no job is handed out until an operator resumes it
	drained  bool // and the log has said that no job is left
	ready    bool // the last Config.Ready has succeeded
	tasks    map[string]*task
	kick     chan struct{}  // capacity 1: look again
	replaced chan struct{}  // of the registration: closed when another process took this one for dead
	over     chan struct{}  // closed when the handlers are not waited for any more
	active   sync.WaitGroup // tasks, and batches that may start some
}

// Work hands out jobs until ctx ends, up to Config.Workers at once. It then hands out no
// more, waits for the handlers, and returns nil. It returns an error only when the
// database fails for good.
func (q *Queue) Work(ctx context.Context, h Handler) error {
	run, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	d := &dispatcher{
		q: q, ctx: context.WithoutCancel(ctx), fail: fail, handler: h, free: q.cfg.Workers,
		tasks: make(map[string]*task), kick: make(chan struct{}, 1), over: make(chan struct{}),
	}
	q.mu.Lock()
	if q.dispatcher != nil {
		q.mu.Unlock()
		return ErrWorking
	}
	q.dispatcher = d
	q.mu.Unlock()
	living, end := context.WithCancel(d.ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer end()
	loops.Go(func() { d.keepLease(living) })
	loops.Go(func() { d.look(run) })
	if clock, ok := q.cfg.Clock.(*serverClock); ok {
		loops.Go(func() { clock.keep(living, min(q.cfg.Lease/3, time.Minute)) })
	}
	<-run.Done()
	d.stop()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(run)
}

// claims reports whether jobs may be handed out. The caller holds mu.
func (d *dispatcher) claims() bool { return d.owner != "" && d.ready && !d.stopping && !d.draining }

// stop waits for the handlers and leaves. Jobs whose handlers do not return are given
// back; those handlers can record nothing any more.
func (d *dispatcher) stop() {
	q := d.q
	q.mu.Lock()
	d.stopping = true
	q.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		d.active.Wait()
		close(idle)
	}()
	if !d.await(idle) {
		d.endAll(ErrStopping)
		if !d.await(idle) {
			q.cfg.Logger.Warn("handlers do not return; their jobs are given back", slog.Int("jobs", d.endAll(ErrLost)))
		}
	}
	q.mu.Lock()
	owner := d.owner
	d.owner, q.dispatcher = "", nil
	close(d.over)
	q.mu.Unlock()
	if owner == "" {
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, commitTime)
	defer cancel()
	err := q.do(ctx, nil, func(s *storeTx) (refusal, err error) {
		_, err = s.removeHosts("owner = $1", owner) // its jobs, if it has any, become ready
		return nil, err
	})
	if err != nil {
		q.cfg.Logger.Warn("the queue was not left in order; the lease will end", slog.Any("error", err))
	}
}

// await waits for the grace period, and reports whether the channel was closed.
func (d *dispatcher) await(idle <-chan struct{}) bool {
	if d.q.cfg.Grace < 0 {
		select {
		case <-idle:
			return true
		default:
			return false
		}
	}
	select {
	case <-idle:
		return true
	case <-d.q.cfg.Clock.After(d.q.cfg.Grace):
		return false
	}
}

// keepLease registers the dispatcher and renews its lease until ctx ends. When the lease
// is lost, it begins again under another name.
func (d *dispatcher) keepLease(ctx context.Context) {
	host, before, owner := d.q.cfg.Host, "", event.NewID()
	for ctx.Err() == nil {
		if !d.register(ctx, before, owner, host) {
			select {
			case <-d.q.cfg.Clock.After(d.q.cfg.Poll):
			case <-ctx.Done():
			}
			continue
		}
		host, before, owner = "", owner, event.NewID() // the process that has host's name now is not dead
		for d.renew(ctx) {
		}
		if ctx.Err() != nil {
			return
		}
		d.q.mu.Lock()
		d.owner = ""
		d.q.mu.Unlock()
		if n := d.endAll(ErrLost); n > 0 {
			d.q.cfg.Logger.Warn("the lease was lost", slog.Int("jobs", n))
		}
	}
}

// register enters the dispatcher into the store as owner, in place of what it was before.
func (d *dispatcher) register(ctx context.Context, before, owner, host string) bool {
	until := d.q.cfg.Clock.Now().Add(d.q.cfg.Lease)
	d.q.mu.Lock()
	draining := d.draining
	d.q.mu.Unlock()
	var dead []lost
	err := d.q.do(ctx, nil, func(s *storeTx) (refusal, err error) {
		dead, err = s.register(before, owner, host, until, draining)
		return nil, err
	})
	if err != nil {
		d.trouble("the queue cannot be entered", err)
		return false
	}
	d.logLostHosts(dead)
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	d.owner, d.until, d.replaced = owner, until, make(chan struct{})
	d.stale, d.recount = true, true
	d.q.wake()
	return true
}

// renew waits for a third of the lease and renews it. It returns false when the lease is
// lost or ctx has ended.
func (d *dispatcher) renew(ctx context.Context) bool {
	cfg := &d.q.cfg
	d.q.mu.Lock()
	owner, until, replaced := d.owner, d.until, d.replaced
	d.q.mu.Unlock()
	select {
	case <-cfg.Clock.After(cfg.Lease / 3):
	case <-replaced:
		return false
	case <-ctx.Done():
		return false
	}
	next := cfg.Clock.Now().Add(cfg.Lease)
	renewed := d.q.submit(&change{ctx: ctx, do: func(s *storeTx) (refusal, err error) {
		if err = s.renew(owner, next); errors.Is(err, errReplaced) {
			return err, nil
		}
		return nil, err
	}})
	select {
	case err := <-renewed:
		if err == nil {
			d.q.mu.Lock()
			d.until, d.stale = next, true
			d.q.wake()
			d.q.mu.Unlock()
			return true
		}
		d.trouble("the lease was not renewed", err)
		return !errors.Is(err, errReplaced) && cfg.Clock.Now().Before(until)
	case <-cfg.Clock.After(until.Sub(cfg.Clock.Now())):
	case <-ctx.Done():
	}
	return false
}

// look looks for changes by other processes and for jobs that wake, at every signal and
// every poll. It also checks whether this process is ready.
func (d *dispatcher) look(ctx context.Context) {
	q, cfg := d.q, &d.q.cfg
	if q.shared != nil {
		defer q.shared.OnSignal(d.lookAgain)()
	}
	var asked, looked time.Time // when Ready was asked, and when this process has looked
	for wait := time.Duration(0); ; {
		if wait > 0 {
			select {
			case <-ctx.Done():
				return
			case <-d.kick:
				time.Sleep(time.Until(looked.Add(breath)))
			case <-cfg.Clock.After(wait):
			}
		}
		wait, looked = cfg.Poll, time.Now()
		q.mu.Lock()
		ready := d.ready
		q.mu.Unlock()
		if now := cfg.Clock.Now(); !ready || now.Sub(asked) >= cfg.Lease/3 {
			asked = now
			d.askReady(ctx)
		}
		n, err := d.read(ctx)
		if err != nil {
			d.trouble("the queue cannot be read", err)
			continue
		}
		left := n.due.Sub(cfg.Clock.Now())
		if n.dead {
			d.takeOver(ctx)
		}
		if n.dead || n.open || !n.due.IsZero() && left <= 0 {
			q.mu.Lock()
			d.due = true
			q.wake()
			q.mu.Unlock()
		}
		if !n.due.IsZero() && left > 0 {
			wait = min(wait, left)
		}
	}
}

// breath is the least time between two looks, so that many signals are answered by one.
const breath = 20 * time.Millisecond

// lookAgain makes look run soon.
func (d *dispatcher) lookAgain() { await.Offer(d.kick, struct{}{}) }

// readyTime bounds a call of Config.Ready.
const readyTime = 10 * time.Second

// askReady asks whether jobs may be claimed.
func (d *dispatcher) askReady(ctx context.Context) {
	var err error
	if d.q.cfg.Ready != nil {
		limited, cancel := context.WithTimeout(ctx, readyTime)
		defer cancel()
		err = d.q.cfg.Ready(limited)
	}
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	if d.ready = err == nil; d.ready {
		d.q.wake()
	}
}

// read reads the changes that other processes have made. It ends the contexts of
// cancelled tasks, and of tasks whose tenants are paused.
func (d *dispatcher) read(ctx context.Context) (n news, err error) {
	q := d.q
	q.mu.Lock()
	owner := d.owner
	q.mu.Unlock()
	err = q.log.View(ctx, func(v eventlog.Querier) error {
		n, err = readNews(v, owner, q.cfg.Clock.Now())
		return err
	})
	if err != nil {
		return n, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range n.cancelled {
		d.end(l.RunID, l.Epoch, ErrCancelled)
	}
	for _, t := range d.tasks {
		if !t.lease.Cancelled && !t.lease.Exhausted && q.cfg.Limits(t.lease.Tenant).Paused {
			t.end(ErrStopping)
		}
	}
	if owner == "" || owner != d.owner {
		return n, nil
	}
	switch {
	case n.draining && !d.draining:
		q.cfg.Logger.Info("draining: no more jobs are claimed", slog.Int("jobs", len(d.tasks)))
		d.drained = false
	case !n.draining && d.draining:
		q.cfg.Logger.Info("no longer draining")
	}
	if d.draining = n.draining; d.draining && len(d.tasks) == 0 && !d.drained {
		q.cfg.Logger.Info("drained: no job is left")
		d.drained = true
	}
	return n, nil
}

// takeOver makes the jobs of processes ready that have died.
func (d *dispatcher) takeOver(ctx context.Context) {
	var dead []lost
	d.q.mu.Lock()
	owner := d.owner
	d.q.mu.Unlock()
	err := d.q.do(ctx, nil, func(s *storeTx) (refusal, err error) {
		dead, err = s.recover(owner)
		return nil, err
	})
	if err != nil {
		d.trouble("jobs of other processes were not taken over", err)
		return
	}
	d.logLostHosts(dead)
}

// logLostHosts logs the hosts whose leases have expired.
func (d *dispatcher) logLostHosts(dead []lost) {
	for _, l := range dead {
		d.q.cfg.Logger.Warn("a host is gone: its jobs are handed out again", slog.String("host", l.label), slog.Time("seen", time.Unix(0, l.seen)), slog.Int("jobs", l.jobs))
	}
}

// trouble reports a failure. An error that the log does not recover from ends Work.
func (d *dispatcher) trouble(what string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	d.q.cfg.Logger.Warn(what, slog.Any("error", err))
	for _, final := range []error{eventlog.ErrLogLost, eventlog.ErrLogClosed, eventlog.ErrReadOnly} {
		if errors.Is(err, final) {
			d.fail(err)
		}
	}
}

// task is a job that was handed out in this process.
type task struct {
	d     *dispatcher
	lease Lease
	used  tenant.DayUsage // as reported by the handler
	ctx   context.Context
	end   context.CancelCauseFunc
}

// start starts the claimed jobs, and takes back the workers that got none.
func (d *dispatcher) start(b *batch, leases []Lease, err error) {
	if err != nil {
		d.trouble("no jobs were handed out", err)
	}
	q := d.q
	q.mu.Lock()
	defer q.mu.Unlock()
	d.doubt = err != nil
	d.stale, d.recount = d.stale || d.doubt && b.stale, d.recount || d.doubt && b.recount
	if errors.Is(err, errReplaced) && d.owner == b.owner {
		d.owner = ""
		close(d.replaced)
	}
	if err != nil || d.owner != b.owner { // the lease was lost meanwhile: the jobs come back when it ends
		leases = nil
	}
	if d.free += b.workers - len(leases); len(leases) == b.workers {
		d.wanted = true // there may be more
	}
	for _, l := range leases {
		t := &task{d: d, lease: l}
		t.ctx, t.end = context.WithCancelCause(d.ctx)
		t.lease.Begin, t.lease.Used = t.begin, func(u tenant.DayUsage) { t.used = u }
		d.tasks[l.RunID] = t
		d.active.Add(1)
		go t.work()
	}
}

// end ends the context of a task. The caller holds mu.
func (d *dispatcher) end(runID string, epoch uint64, cause error) {
	if t := d.tasks[runID]; t != nil && t.lease.Epoch == epoch {
		t.end(cause)
	}
}

// endAll ends the contexts of all tasks and returns how many there are. It drops tasks whose lease
// was lost.
func (d *dispatcher) endAll(cause error) int {
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	n := len(d.tasks)
	for _, t := range d.tasks {
		t.end(cause)
	}
	if errors.Is(cause, ErrLost) {
		clear(d.tasks)
	}
	return n
}

// begin makes durable that the run begins, if the job is a suspect.
func (t *task) begin(ctx context.Context) error {
	if !t.lease.Suspect() {
		return nil
	}
	return t.d.q.do(ctx, &t.lease.Tenant, func(s *storeTx) (refusal, err error) {
		n, err := s.tx.Exec("UPDATE queue_job SET begun = 1 WHERE run_id = $1 AND epoch = $2 AND state = 2", t.lease.RunID, int64(t.lease.Epoch))
		if err == nil && n == 0 { // it was handed out again since, or is gone
			refusal = ErrLost
		}
		return refusal, err
	})
}

// errPanicked stands for the error of a handler that panicked.
type errPanicked struct{ value any }

func (e errPanicked) Error() string { return fmt.Sprintf("queue: the handler panicked: %v", e.value) }

// call runs the handler.
func (t *task) call() (err error) {
	defer func() {
		if r := recover(); r != nil {
			t.d.q.cfg.Logger.Error("a handler panicked", slog.String("run_id", t.lease.RunID), slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
			err = errPanicked{r}
		}
	}()
	return t.d.handler(t.ctx, t.lease)
}

// work runs the handler, lets another one start, and commits the outcome of the job. As
// long as the database fails it tries again: the job is this process's until the lease
// is lost.
func (t *task) work() {
	d, q := t.d, t.d.q
	defer d.active.Done()
	defer t.end(nil)
	err := t.call()
	v := t.verdict(err)
	q.mu.Lock()
	q.pace.note(q.cfg.Clock.Now())
	d.free++
	if v != nil && v.host && q.cfg.Ready != nil {
		d.ready = false
		d.lookAgain()
	}
	held := d.tasks[t.lease.RunID] == t
	q.mu.Unlock()
	for held {
		err := <-q.submit(&change{ctx: context.WithoutCancel(t.ctx), tenant: &t.lease.Tenant, later: v == nil, do: func(s *storeTx) (refusal, err error) {
			if v == nil {
				s.finish(t.lease, t.used)
				return nil, nil
			}
			return nil, s.giveBack(t.lease, *v)
		}})
		if err == nil {
			break
		}
		d.trouble("what became of a job was not committed", err)
		select {
		case <-q.cfg.Clock.After(q.cfg.Poll):
		case <-d.over:
			return
		}
		q.mu.Lock()
		held = d.tasks[t.lease.RunID] == t
		q.mu.Unlock()
	}
	switch {
	case held && v != nil && v.class != "":
		t.logRetry(*v, err)
	case held && v != nil && v.free:
		q.cfg.Logger.Info("run returned to the queue", slog.String("run_id", t.lease.RunID))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.tasks[t.lease.RunID] == t {
		delete(d.tasks, t.lease.RunID)
	}
}

// logRetry logs that the job will be handed out again. It logs the reason only for the
// host's own failures: other error texts may come from a tenant.
func (t *task) logRetry(v verdict, err error) {
	attrs := []slog.Attr{
		slog.String("run_id", t.lease.RunID), slog.String("class", v.class), slog.Int("attempt", t.lease.Attempt),
		slog.Int("max_attempts", t.lease.MaxAttempts), slog.Duration("after", v.after.Round(time.Millisecond)),
	}
	if v.host {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	level := slog.LevelWarn
	if v.snooze {
		level = slog.LevelInfo
	}
	t.d.q.cfg.Logger.LogAttrs(context.Background(), level, "run will be retried", attrs...)
}

const (
	// defaultSnooze is the length of a snooze that gives no time.
	defaultSnooze = 10 * time.Second
	// maxEnding bounds the time between two attempts to end a run.
	maxEnding = 10 * time.Minute
	// maxReason bounds Lease.Failure, in bytes.
	maxReason = 1024
)

// backoff is the fourth power of the attempt in seconds, a tenth more or less.
var backoff = tool.RetryConfig{Jitter: 0.1}

// verdict maps the handler's error to how the job comes back, or to nil when it is
// done.
func (t *task) verdict(err error) *verdict {
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), "\x00", "")
	v := &verdict{class: "internal", reason: strings.ToValidUTF8(text[:min(len(text), maxReason)], "")} // as every database takes it
	host, ofHost := errors.AsType[*HostError](err)
	_, panicked := errors.AsType[errPanicked](err)
	switch kind, after := tool.KindOf(err); {
	case kind == abi.ErrorDiscard, kind == abi.ErrorCancel:
		return nil
	case kind == abi.ErrorSnooze:
		if v.after = after; after <= 0 {
			v.after = defaultSnooze
		}
		v.snooze, v.class = true, "snooze"
		return v
	case errors.Is(context.Cause(t.ctx), ErrStopping):
		return &verdict{free: true}
	case errors.Is(context.Cause(t.ctx), ErrCancelled):
		return &verdict{} // at once, so that its run ends
	case ofHost:
		v.after, v.host, v.class = time.Second<<min(t.lease.HostFailures, 8), true, host.Class
		return v
	case panicked:
		v.class = "panic"
	}
	v.after = backoff.Delay(t.lease.Attempt, rand.Uint64())
	if t.lease.Cancelled || t.lease.Exhausted {
		v.after = min(v.after, maxEnding)
	}
	return v
}
