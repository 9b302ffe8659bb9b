package desk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/internal/book"
	"github.com/starling-host/starling/runtime/tool"
)

// turn is a worker that was woken from outside and waits for a job.
type turn struct {
	id   int64
	used bool // it has had a job already
	got  chan taken
}

// taken is what became of a turn: without a task and an error there was nothing to
// do.
type taken struct {
	task *task
	err  error
}

// task is a job that was handed out in this process.
type task struct {
	d     *Desk
	shift *shift
	lease queue.Lease
	ctx   context.Context
	end   context.CancelCauseFunc
}

// errIdle means that Work does not run, or is about to end.
var errIdle = errors.New("queue: not at work")

// Turn works one job after the other, for the turn of that number, until there is none
// or ctx has ended. An error means that it could not look.
func (d *Desk) Turn(ctx context.Context, id int64) error {
	t := &turn{id: id, got: make(chan taken, 1)}
	for ctx.Err() == nil {
		k, err := d.take(t)
		if k == nil || err != nil {
			return err
		}
		err = k.work()
		go k.settle(err)
		t.used = true
	}
	return nil
}

// take waits for a job. It returns nil when there is none.
func (d *Desk) take(t *turn) (*task, error) {
	d.mu.Lock()
	if d.shift == nil || d.shift.stopping {
		d.mu.Unlock()
		return nil, errIdle
	}
	d.turns = append(d.turns, t)
	d.wake()
	d.mu.Unlock()
	got := <-t.got
	return got.task, got.err
}

// Heed ends the contexts of the tasks that other processes have cancelled.
func (d *Desk) Heed(ctx context.Context) {
	d.mu.Lock()
	s := d.shift
	d.mu.Unlock()
	if s == nil {
		return
	}
	if _, err := d.outlook(ctx, s); err != nil {
		d.trouble(s, "the queue cannot be read", err)
	}
}

// handOut starts what was claimed.
func (d *Desk) handOut(c *cycle, leases []queue.Lease, err error) {
	if err != nil {
		d.trouble(c.shift, "no jobs were handed out", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := c.shift
	s.doubt = err != nil
	if errors.Is(err, errReplaced) && s.owner == c.owner {
		s.owner = ""
		s.replaced <- struct{}{}
	}
	if err == nil && len(leases) == len(c.turns) {
		s.wanted = true // there may be more
	}
	for i, t := range c.turns {
		switch {
		case i < len(leases):
			d.start(s, t, leases[i])
		case t == nil:
			s.free++
		case err == nil && i >= len(c.turns)-c.kept && !s.stopping:
			d.parked = append(d.parked, t) // nobody comes again for the jobs that it was not for
		default:
			t.got <- taken{err: err}
		}
	}
}

// start begins a task. The caller holds mu.
func (d *Desk) start(s *shift, t *turn, l queue.Lease) {
	ctx, end := context.WithCancelCause(s.ctx)
	k := &task{d: d, shift: s, lease: l, ctx: ctx, end: end}
	k.lease.Begin = k.begin
	s.tasks[l.RunID] = k
	s.active.Add(1)
	if t == nil {
		go func() { k.settle(k.work()) }()
		return
	}
	s.free--
	t.got <- taken{task: k}
}

// end ends the context of a task of this process.
func (d *Desk) end(runID string, epoch uint64, cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shift == nil {
		return
	}
	if t := d.shift.tasks[runID]; t != nil && t.lease.Epoch == epoch {
		t.end(cause)
	}
}

// endAll ends the contexts of all tasks and returns how many there are. Those whose
// lease was lost are forgotten.
func (d *Desk) endAll(s *shift, cause error) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(s.tasks)
	for _, t := range s.tasks {
		t.end(cause)
	}
	if errors.Is(cause, queue.ErrLost) {
		clear(s.tasks)
	}
	return n
}

// work calls the handler and lets another one start.
func (t *task) work() error {
	err := t.call()
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	t.d.drain.note(t.d.cfg.Clock.Now())
	t.shift.free++
	return err
}

// begin makes durable that the run begins, if it has to be known.
func (t *task) begin(ctx context.Context) error {
	if !t.lease.Suspect() {
		return nil
	}
	return t.d.do(ctx, &t.lease.Tenant, func(b *book.Tx) (refusal, err error) { return b.Begin(t.lease) })
}

// call runs the handler.
func (t *task) call() (err error) {
	defer func() {
		if r := recover(); r != nil {
			t.d.cfg.Logger.Error("a handler panicked", slog.String("run", t.lease.RunID), slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("queue: the handler panicked: %v", r)
		}
	}()
	return t.shift.handler(t.ctx, t.lease)
}

const (
	// snooze is how long a snooze takes that names no time.
	snooze = 10 * time.Second
	// maxEnding bounds the time between two attempts to end a run.
	maxEnding = 10 * time.Minute
	// maxFailure bounds Lease.Failure, in bytes.
	maxFailure = 1024
)

// backoff is River's: the fourth power of the attempt in seconds, a tenth more or
// less.
var backoff = tool.RetryConfig{Jitter: 0.1}

// verdict says how the job is to come back, or nil when it is done.
func verdict(l queue.Lease, err error, stopped bool) *book.Again {
	if err == nil {
		return nil
	}
	switch kind, after := tool.KindOf(err); {
	case kind == abi.ErrorDiscard, kind == abi.ErrorCancel:
		return nil
	case kind == abi.ErrorSnooze && after > 0:
		return &book.Again{After: after, Snooze: true}
	case kind == abi.ErrorSnooze:
		return &book.Again{After: snooze, Snooze: true}
	case stopped:
		return &book.Again{Free: true}
	}
	after := backoff.Delay(l.Attempt, rand.Uint64())
	if l.Cancelled || l.Exhausted {
		after = min(after, maxEnding)
	}
	return &book.Again{After: after, Failure: failure(err)}
}

// failure is the text of err as every database takes it.
func failure(err error) string {
	text := strings.ReplaceAll(err.Error(), "\x00", "")
	return strings.ToValidUTF8(text[:min(len(text), maxFailure)], "")
}

// settle writes down what becomes of the job, of which the handler has returned err. As
// long as the database fails it tries again: the job is this process's until the lease
// is lost.
func (t *task) settle(err error) {
	defer t.shift.active.Done()
	defer t.end(nil)
	again := verdict(t.lease, err, errors.Is(context.Cause(t.ctx), queue.ErrStopping))
	for t.held() {
		ctx := context.WithoutCancel(t.ctx)
		err := <-t.d.submit(&op{ctx: ctx, tenant: &t.lease.Tenant, later: again == nil, do: func(b *book.Tx) (refusal, err error) {
			if again == nil {
				return nil, b.Finish(t.lease)
			}
			return nil, b.Return(t.lease, *again)
		}})
		if err == nil {
			break
		}
		t.d.trouble(t.shift, "a job was not settled", err)
		select {
		case <-t.d.cfg.Clock.After(t.d.cfg.Poll):
		case <-t.shift.over:
			return
		}
	}
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	if t.shift.tasks[t.lease.RunID] == t {
		delete(t.shift.tasks, t.lease.RunID)
	}
	if len(t.d.parked) > 0 { // a handler is free
		t.d.unpark()
		t.d.wake()
	}
}

// held reports whether the job is still this process's, as far as it knows.
func (t *task) held() bool {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	return t.shift.tasks[t.lease.RunID] == t
}
