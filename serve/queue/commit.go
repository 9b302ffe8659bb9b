package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
)

// Queue is a durable queue: a job store in the database of a log, and a dispatcher that hands its
// jobs to workers in this process. Use [Open]. All methods may be called from any goroutine, and
// any number of processes may have a Queue on one database.
//
// One goroutine at a time makes transactions, as long as there is work. While one commit waits for
// the disk, requests gather, so that one transaction can enqueue, hand out and finish any number of
// jobs. A single request is committed at once. Only the end of a job lingers a moment when no job
// waits.
//
// Of all processes on a server, one at a time hands out jobs. A transaction that finds another one at it
// does the rest of its work, and the process looks a moment later whether jobs are left.
type Queue struct {
	log    eventlog.Transactor
	shared eventlog.Shared // nil when the database is a file
	cfg    Config

	// mu guards everything below. It is never held during a transaction.
	mu         sync.Mutex
	changes    []*change
	committing bool // a goroutine makes transactions
	drained    bool // no job waited when the last transaction was made
	lingering  bool // a timer runs for the changes that may linger
	pace       pace
	dispatcher *dispatcher // nil while Work does not run

	// The goroutine that makes transactions has these to itself.
	waiting int64     // jobs of all tenants that are not running
	counted time.Time // when that was read last; what this process does since is added
}

// Open opens the queue in a log's database, and creates its tables. The queue needs no closing;
// close the log after Work has returned. Without a clock in the configuration the time is the
// database server's, if it has one.
func Open(ctx context.Context, log eventlog.Transactor, cfg Config) (*Queue, error) {
	q := &Queue{log: log}
	q.shared, _ = log.(eventlog.Shared)
	if cfg.Clock == nil && q.shared != nil {
		clock := &serverClock{server: q.shared}
		if err := clock.ask(ctx); err != nil {
			return nil, err
		}
		cfg.Clock = clock
	}
	var err error
	if q.cfg, err = cfg.resolve(); err != nil {
		return nil, err
	}
	if q.cfg.Existing {
		if taken, err := log.TableSteps(ctx, Tables); err != nil {
			return nil, fmt.Errorf("queue: %w", err)
		} else if taken == 0 {
			return nil, ErrNoTables
		}
	}
	if err := log.CreateTables(ctx, Tables); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return q, nil
}

// Enqueue stores the job and the writes of also, such as the run's first events, in one
// transaction. When it returns nil, all of it is durable. [ErrExists], [ErrFull] and
// [ErrTenantFull] change nothing. If ctx ends first, the job may have been stored nevertheless.
//
// also must follow the rules of eventlog.Transactor: it may run several times and must be quick.
// Its error rolls everything back and is returned unchanged. It may be nil.
func (q *Queue) Enqueue(ctx context.Context, j Job, also func(eventlog.Tx) error) error {
	if err := j.Check(); err != nil {
		return err
	}
	var waiting int64 // of the jobs that were counted for a refusal
	err := q.do(ctx, &j.Tenant, func(s *storeTx) (refusal, err error) {
		refusal, err = s.enqueue(j)
		switch {
		case err != nil:
		case refusal == nil && also != nil:
			err = also(s.tx)
		case refusal == nil:
		case errors.Is(refusal, ErrFull):
			waiting = s.waiting
		default:
			waiting, err = s.waitingOf(j.Tenant)
		}
		return refusal, err
	})
	if errors.Is(err, ErrFull) || errors.Is(err, ErrTenantFull) {
		q.mu.Lock()
		defer q.mu.Unlock()
		return &FullError{Reason: err, After: q.pace.room(waiting)}
	}
	return err
}

// Cancel stops a job. The context of a running job ends, in any process; a waiting job is handed
// out with Lease.Cancelled set. When Cancel returns nil, the cancellation is durable, but it may
// come too late for a handler that is about to return. If the job does not exist, the error is
// [ErrNotFound].
func (q *Queue) Cancel(ctx context.Context, runID string) error {
	var was jobRow
	err := q.do(ctx, nil, func(s *storeTx) (refusal, err error) {
		var ok bool
		switch was, ok, err = s.find(runID); {
		case err != nil, ok && was.cancelled:
			return nil, err
		case !ok:
			return ErrNotFound, nil
		}
		to := ending // and it is handed out soon
		if was.state == running {
			to, s.signal = running, true // its host ends it
		}
		if _, err = s.tx.Exec("UPDATE queue_job SET cancelled = 1, state = $1 WHERE run_id = $2", int64(to), runID); err == nil && to == ending {
			err = s.move(was.tenant, was.state, ending)
		}
		return nil, err
	})
	if err == nil && was.state == running {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.dispatcher != nil {
			q.dispatcher.end(runID, was.epoch, ErrCancelled)
		}
	}
	return err
}

// Retry makes a sleeping job ready, so that it is handed out when its tenant is next. A
// job that does not sleep is [ErrNotSleeping]; a job that does not exist is
// [ErrNotFound].
func (q *Queue) Retry(ctx context.Context, runID string) error {
	return q.do(ctx, nil, func(s *storeTx) (refusal, err error) {
		switch r, ok, err := s.find(runID); {
		case err != nil:
			return nil, err
		case !ok:
			return ErrNotFound, nil
		case r.state != sleeping:
			return ErrNotSleeping, nil
		}
		_, err = s.reset("SELECT run_id, tenant, cancelled FROM queue_job WHERE run_id = $1", sleeping, runID)
		return nil, err
	})
}

// Steer carries out an operator's request: "cancel" or "retry" for a run by its id, "drain" or
// "resume" for a host by its id or name.
func (q *Queue) Steer(ctx context.Context, what, of string) error {
	switch what {
	case "cancel":
		return q.Cancel(ctx, of)
	case "retry":
		return q.Retry(ctx, of)
	case "drain", "resume":
		return q.Drain(ctx, of, what == "drain")
	}
	return ErrNotFound
}

// Drain makes the processes with an id or a name stop claiming jobs, or claim them again.
// They finish the jobs that they have. A name that no process has is [ErrNoHost].
func (q *Queue) Drain(ctx context.Context, host string, drain bool) error {
	return q.do(ctx, nil, func(s *storeTx) (refusal, err error) {
		n, err := s.tx.Exec("UPDATE queue_host SET draining = $1 WHERE gone = 0 AND (owner = $2 OR label = $2 OR label = '' AND host = $2)", eventlog.Flag(drain), host)
		if err == nil && n == 0 {
			refusal = ErrNoHost
		}
		s.signal = true
		return refusal, err
	})
}

// Draining reports whether this process claims no more jobs because of [Queue.Drain].
func (q *Queue) Draining() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dispatcher != nil && q.dispatcher.draining
}

// pace is how fast jobs are done in this process.
type pace struct {
	last     time.Time
	interval time.Duration // a moving average of the time between two
}

func (p *pace) note(now time.Time) {
	if !p.last.IsZero() {
		p.interval += (now.Sub(p.last) - p.interval) / 16
	}
	p.last = now
}

// room returns when there may be room for that many waiting jobs: when a tenth of
// them are done.
func (p *pace) room(waiting int64) time.Duration {
	after := min(p.interval, time.Minute) * time.Duration(min(waiting, 1e6)/10)
	return min(max(after.Round(time.Second), time.Second), 5*time.Minute)
}

const (
	// maxChanges and maxClaims bound one transaction.
	maxChanges = 256
	maxClaims  = 256
	// maxWake bounds the jobs that one transaction wakes of those that have slept long enough.
	maxWake = 256
	// commitTime bounds the duration of one transaction. Beyond it, the outcome of the commit is
	// unknown.
	commitTime = 30 * time.Second
	// linger is how long a finished job waits for other changes to share its
	// transaction. If the process dies meanwhile, the next handler finds that the run
	// is over.
	linger = 10 * time.Millisecond
)

// change is a change that a caller waits to see committed.
type change struct {
	ctx    context.Context
	tenant *string // whose row it will need, if that is known
	later  bool    // it may linger, as long as no job waits
	// do returns a refusal, having changed nothing, or an error, which rolls the
	// transaction back. It may be called several times.
	do   func(*storeTx) (refusal, err error)
	done chan error

	refusal, err error // of the last call
}

// do makes a change and waits until it is durable. tenant is whose row it will need, or
// nil.
func (q *Queue) do(ctx context.Context, tenant *string, f func(*storeTx) (refusal, err error)) error {
	select {
	case err := <-q.submit(&change{ctx: ctx, tenant: tenant, do: f}):
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// submit asks for a change. The channel gets the result.
func (q *Queue) submit(c *change) <-chan error {
	c.done = make(chan error, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changes = append(q.changes, c)
	switch {
	case q.hasUrgent():
		q.wake()
	case !q.lingering:
		q.lingering = true
		time.AfterFunc(linger, q.endLinger)
	}
	return c.done
}

// endLinger commits the lingering changes.
func (q *Queue) endLinger() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lingering = false
	for _, c := range q.changes {
		c.later = false
	}
	if len(q.changes) > 0 {
		q.wake()
	}
}

// hasUrgent reports whether there are changes that must not linger. The caller holds mu.
func (q *Queue) hasUrgent() bool {
	return !q.drained && len(q.changes) > 0 || slices.ContainsFunc(q.changes, func(c *change) bool { return !c.later })
}

// wake starts transactions, which continue until there is nothing to do. The caller holds mu.
func (q *Queue) wake() {
	if q.dispatcher != nil {
		q.dispatcher.wanted = true
	}
	if q.committing {
		return
	}
	q.committing = true
	go func() {
		for q.more() {
			b := new(batch)
			leases, err := q.commit(b)
			q.deliver(b, leases, err)
		}
	}()
}

// more reports whether there is something to do, and ends the committing when there is
// not.
func (q *Queue) more() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.dispatcher
	q.committing = q.hasUrgent() || d != nil && d.claims() && d.wanted && d.free > 0
	return q.committing
}

// batch is the work of one transaction: first the changes, then handing out jobs.
type batch struct {
	gathered bool // the rest was filled in
	changes  []*change

	d        *dispatcher // nil if no jobs are handed out
	owner    string
	workers  int               // as many jobs at most
	reserved int               // of them for tenants without a running job
	due      bool              // there may be jobs that have slept long enough
	stale    bool              // limits may have changed
	recount  bool              // the counts may be wrong
	doubt    map[string]uint64 // the jobs that the dispatcher has, when others may be in the store as its own

	whole   bool  // the transaction could hand out jobs
	waiting int64 // see Queue
	drained bool  // the transaction has seen no waiting job
	signal  bool  // other processes have something to do
}

// gather moves the waiting changes into the batch. It runs once the transaction has
// begun: changes that arrive while another transaction waits for the disk share this
// one.
func (q *Queue) gather(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b.gathered = true
	d := q.dispatcher
	n := min(len(q.changes), maxChanges)
	b.changes, q.changes = q.changes[:n:n], q.changes[n:]
	if d != nil && d.claims() && d.wanted && d.free > 0 {
		b.d, b.owner, d.wanted = d, d.owner, false
		b.workers = min(d.free, maxClaims)
		b.reserved = max(0, b.workers-max(0, d.free-q.cfg.Workers/8))
		d.free -= b.workers
		d.active.Add(1) // until they are delivered
		b.due, d.due = d.due, false
		b.stale, d.stale = d.stale, false
		b.recount, d.recount = d.recount, false
		if d.doubt {
			b.doubt = make(map[string]uint64, len(d.tasks))
			for id, t := range d.tasks {
				b.doubt[id] = t.lease.Epoch
			}
		}
	}
}

// commit makes one transaction. When it fails, commit makes one for each change; when
// handing out fails, it commits without. So an error reaches only the caller it
// concerns.
func (q *Queue) commit(b *batch) ([]Lease, error) {
	leases, err := q.transact(b)
	switch {
	case slices.ContainsFunc(b.changes, func(c *change) bool { return c.err != nil }), errors.Is(err, ErrExists):
		for _, c := range b.changes {
			one := &batch{gathered: true, changes: []*change{c}}
			_, c.err = q.transact(one)
			b.signal = b.signal || one.signal
		}
		b.drained = false // it described the failed transaction
		q.release(b, true)
		return nil, nil
	case errors.Is(err, errReplaced):
		without := &batch{gathered: true, changes: b.changes}
		if _, failed := q.transact(without); failed != nil {
			for _, c := range b.changes {
				c.err = cmp.Or(c.err, failed)
			}
		}
		b.signal = without.signal
	case err == nil && !b.whole && b.d != nil:
		time.AfterFunc(rand.N(breath), b.d.lookAgain)
		q.release(b, false)
	}
	return leases, err
}

// release gives back the workers of a batch that got no jobs. They want some at once, or when the
// dispatcher looks again.
func (q *Queue) release(b *batch, wanted bool) {
	if b.d == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	d := b.d
	d.wanted, d.free = wanted, d.free+b.workers
	d.due, d.stale, d.recount = d.due || b.due, d.stale || b.stale, d.recount || b.recount
	d.active.Done()
	b.d = nil
}

// transact makes one transaction.
func (q *Queue) transact(b *batch) (leases []Lease, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitTime)
	defer cancel()
	q.count(ctx)
	transact := q.log.Transact
	if q.shared != nil {
		transact = q.shared.TransactCommitted
	}
	err = transact(ctx, func(tx eventlog.Tx) (err error) {
		if !b.gathered {
			q.gather(b)
		}
		leases = nil
		s := beginStore(tx, &q.cfg, q.waiting)
		if b.d != nil || s.bulk == nil {
			if err := s.takeState(); err != nil {
				return err
			}
			s.again = b.d != nil && !s.whole
		}
		var names []string
		for _, c := range b.changes {
			if c.refusal, c.err = nil, nil; c.tenant != nil {
				names = append(names, *c.tenant)
			}
		}
		if err := s.expect(names...); err != nil {
			return err
		}
		for _, c := range b.changes {
			if c.ctx.Err() != nil { // its caller has gone
				c.refusal = context.Cause(c.ctx)
				continue
			}
			if c.refusal, c.err = c.do(s); c.err != nil {
				return c.err
			}
		}
		if b.d != nil && s.whole {
			if leases, err = q.claim(s, b); err != nil {
				return err
			}
		}
		err = s.flush()
		b.whole, b.waiting, b.drained, b.signal = s.whole, s.waiting, s.waiting == 0, s.signal
		return err
	})
	if !b.gathered {
		q.gather(b) // the transaction failed earlier, and all callers get its error
	}
	b.signal = b.signal && err == nil
	if q.waiting = b.waiting; err != nil {
		q.counted = time.Time{}
	}
	return leases, err
}

// count reads how many jobs wait, once in Config.Poll. If it cannot, the transaction that follows fails as
// well.
func (q *Queue) count(ctx context.Context) {
	now := q.cfg.Clock.Now()
	if !q.counted.IsZero() && now.Sub(q.counted) < q.cfg.Poll {
		return
	}
	const sql = "SELECT coalesce(sum(ready + sleeping + ending), 0) FROM " + allCounts
	err := q.log.View(ctx, func(v eventlog.Querier) error {
		return v.Query(sql, nil, func(r eventlog.Row) error { return r.Scan(&q.waiting) })
	})
	if err == nil {
		q.counted = now
	}
}

// claim hands out jobs for the workers of the batch. A process claims jobs only while its
// lease is valid, and renews the lease by doing so. So no job is ever claimed by a process
// whose death would go unnoticed.
func (q *Queue) claim(s *storeTx, b *batch) ([]Lease, error) {
	err := s.renew(b.owner, q.cfg.Clock.Now().Add(q.cfg.Lease))
	if err == nil && b.doubt != nil {
		err = s.releaseUnclaimed(b.owner, b.doubt)
	}
	if err == nil && b.due {
		const slept = "SELECT run_id, tenant, cancelled FROM queue_job WHERE state = 1 AND due <= $1 ORDER BY due LIMIT $2"
		_, err = s.reset(slept, sleeping, s.now, int64(maxWake))
	}
	if err == nil && b.recount {
		err = s.recount()
	}
	if err == nil && b.stale {
		err = s.refresh()
	}
	if err != nil {
		return nil, err
	}
	return s.claim(b.owner, b.workers, b.reserved)
}

// deliver returns the transaction's outcome to the callers, and starts the claimed jobs.
func (q *Queue) deliver(b *batch, leases []Lease, err error) {
	if b.signal && q.shared != nil {
		q.shared.Signal()
	}
	q.mu.Lock()
	q.drained = b.drained && err == nil
	q.mu.Unlock()
	for _, c := range b.changes {
		switch {
		case c.err != nil:
			c.done <- c.err
		case err != nil && !errors.Is(err, errReplaced): // which concerns the claim alone
			c.done <- fmt.Errorf("queue: %w", err)
		default:
			c.done <- c.refusal
		}
	}
	if b.d != nil {
		b.d.start(b, leases, err)
		b.d.active.Done()
	}
}
