package desk

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/internal/book"
)

// shift is one call of Work. Its fields are guarded by Desk.mu.
type shift struct {
	ctx     context.Context // of the handlers, which outlives that of Work
	fail    context.CancelCauseFunc
	handler queue.Handler

	owner    string // what its jobs are written down under; empty until that is registered
	until    time.Time
	free     int  // handlers that may be started
	wanted   bool // there may be something to hand out
	due      bool // there may be jobs that have slept long enough
	doubt    bool // a transaction failed of which it is not known whether it was committed
	stopping bool // nothing is handed out any more
	tasks    map[string]*task
	replaced chan struct{}  // capacity 1: somebody else took this process for dead
	over     chan struct{}  // closed when nobody waits for the handlers any more
	active   sync.WaitGroup // tasks, and cycles that may make some
}

func (s *shift) epochs() map[string]uint64 {
	epochs := make(map[string]uint64, len(s.tasks))
	for id, t := range s.tasks {
		epochs[id] = t.lease.Epoch
	}
	return epochs
}

// Work implements [queue.Queue].
func (d *Desk) Work(ctx context.Context, h queue.Handler) error {
	run, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s := &shift{
		ctx: context.WithoutCancel(ctx), fail: fail, handler: h, free: d.cfg.Workers,
		tasks: make(map[string]*task), replaced: make(chan struct{}, 1), over: make(chan struct{}),
	}
	d.mu.Lock()
	if d.shift != nil {
		d.mu.Unlock()
		return queue.ErrWorking
	}
	d.shift = s
	d.mu.Unlock()
	keep, release := context.WithCancel(s.ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer release()
	loops.Go(func() { d.keepLease(keep, s) })
	loops.Go(func() { d.look(run, s) })
	stop, err := d.rouse(keep)
	if err != nil {
		fail(err)
	}
	<-run.Done()
	loops.Go(stop)
	d.stop(s)
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(run)
}

// rouse sees to it that turns are taken, if that is not the desk's business, and
// returns what ends it.
func (d *Desk) rouse(ctx context.Context) (stop func(), err error) {
	if d.hooks.Start != nil {
		stop, err = d.hooks.Start(ctx)
	}
	if stop == nil {
		stop = func() {}
	}
	return stop, err
}

// stop waits for the handlers and leaves the shift. Jobs whose handlers do not
// return are given back: what they do later they cannot record.
func (d *Desk) stop(s *shift) {
	d.mu.Lock()
	s.stopping = true
	turns := append(d.turns, d.parked...)
	d.turns, d.parked = nil, nil
	d.mu.Unlock()
	for _, t := range turns {
		t.got <- taken{err: errIdle}
	}
	idle := make(chan struct{})
	go func() {
		s.active.Wait()
		close(idle)
	}()
	if !d.await(idle) {
		d.endAll(s, queue.ErrStopping)
		if !d.await(idle) {
			d.cfg.Logger.Warn("handlers do not return; their jobs are given back", slog.Int("jobs", d.endAll(s, queue.ErrLost)))
		}
	}
	d.mu.Lock()
	owner := s.owner
	s.owner, d.shift = "", nil
	close(s.over)
	d.mu.Unlock()
	if owner == "" {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, commitPatience)
	defer cancel()
	if err := d.do(ctx, nil, func(b *book.Tx) (refusal, err error) { return nil, b.Leave(owner) }); err != nil {
		d.cfg.Logger.Warn("the queue was not left in order; the lease will end", slog.Any("error", err))
	}
}

// await waits for the grace period, and reports whether the channel was closed.
func (d *Desk) await(idle <-chan struct{}) bool {
	if d.cfg.Grace < 0 {
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
	case <-d.cfg.Clock.After(d.cfg.Grace):
		return false
	}
}

// keepLease registers the shift and renews its lease until ctx ends. When the
// lease is lost, it begins again under another name.
func (d *Desk) keepLease(ctx context.Context, s *shift) {
	host := d.cfg.Host
	for ctx.Err() == nil {
		if !d.register(ctx, s, host) {
			select {
			case <-d.cfg.Clock.After(d.cfg.Poll):
			case <-ctx.Done():
			}
			continue
		}
		host = "" // whoever has that name now is not dead
		for d.renew(ctx, s) {
		}
		if ctx.Err() == nil {
			d.lose(s)
		}
	}
}

// register writes the shift down under a new name.
func (d *Desk) register(ctx context.Context, s *shift, host string) bool {
	owner, until := event.NewID(), d.cfg.Clock.Now().Add(d.cfg.Lease)
	err := d.do(ctx, nil, func(b *book.Tx) (refusal, err error) {
		if err = b.Register(owner, host, until); err == nil {
			err = b.Refresh()
		}
		if n := min(b.Open(), d.cfg.Workers); err == nil && n > 0 && d.hooks.Opened != nil {
			err = d.hooks.Opened(b.SQL(), n) // whoever was woken for them may be gone
		}
		return nil, err
	})
	if err != nil {
		d.trouble(s, "the queue cannot be entered", err)
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.owner, s.until = owner, until
	d.wake()
	return true
}

// renew waits for a third of the lease and renews it. It returns false when the
// lease is lost or ctx has ended.
func (d *Desk) renew(ctx context.Context, s *shift) bool {
	d.mu.Lock()
	owner, until := s.owner, s.until
	d.mu.Unlock()
	select {
	case <-d.cfg.Clock.After(d.cfg.Lease / 3):
	case <-s.replaced:
		return false
	case <-ctx.Done():
		return false
	}
	next := d.cfg.Clock.Now().Add(d.cfg.Lease)
	renewed := d.submit(&op{ctx: ctx, do: func(b *book.Tx) (refusal, err error) {
		alive, err := b.Renew(owner, next)
		if err == nil && !alive {
			return errReplaced, nil
		}
		if err == nil {
			err = b.Refresh()
		}
		return nil, err
	}})
	select {
	case err := <-renewed:
		if err == nil {
			d.mu.Lock()
			s.until = next
			d.mu.Unlock()
			return true
		}
		d.trouble(s, "the lease was not renewed", err)
		return !errors.Is(err, errReplaced) && d.cfg.Clock.Now().Before(until)
	case <-d.cfg.Clock.After(until.Sub(d.cfg.Clock.Now())):
	case <-ctx.Done():
	}
	return false
}

// lose gives up the jobs of the shift, which others may have by now.
func (d *Desk) lose(s *shift) {
	d.mu.Lock()
	s.owner = ""
	d.mu.Unlock()
	if n := d.endAll(s, queue.ErrLost); n > 0 {
		d.cfg.Logger.Warn("the lease was lost", slog.Int("jobs", n))
	}
}

// look watches out for what other processes have done, and for jobs that wake.
func (d *Desk) look(ctx context.Context, s *shift) {
	wait, idle := d.cfg.Poll, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.cfg.Clock.After(wait):
		}
		wait = d.cfg.Poll
		o, err := d.outlook(ctx, s)
		if err != nil {
			d.trouble(s, "the queue cannot be read", err)
			continue
		}
		now := d.cfg.Clock.Now()
		sleeping := o.Due.After(now)
		if sleeping {
			wait = min(wait, o.Due.Sub(now))
		}
		last := idle
		idle = min(o.Open, d.spare(s))
		if o.Dead || o.Open > 0 || !o.Due.IsZero() && !sleeping {
			d.stir(ctx, s, o.Dead, min(idle, last))
		}
	}
}

// spare returns how many more handlers could run.
func (d *Desk) spare(s *shift) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.free
}

// outlook looks what other processes have done, and ends the contexts of the tasks that
// they have cancelled.
func (d *Desk) outlook(ctx context.Context, s *shift) (o book.Outlook, err error) {
	d.mu.Lock()
	owner := s.owner
	d.mu.Unlock()
	err = d.log.View(ctx, func(q eventlog.Querier) error {
		o, err = book.Look(q, owner, d.cfg.Clock.Now())
		return err
	})
	for _, l := range o.Cancelled {
		d.end(l.RunID, l.Epoch, queue.ErrCancelled)
	}
	return o, err
}

// stir makes ready what is due and hands out what is ready. lost is how many turns
// there ought to have been for some time that nobody has come with.
func (d *Desk) stir(ctx context.Context, s *shift, dead bool, lost int) {
	if d.hooks.Start == nil && !dead {
		d.mu.Lock()
		s.due = true // for when jobs are handed out
		d.wake()
		d.mu.Unlock()
		return
	}
	err := d.do(ctx, nil, func(b *book.Tx) (refusal, err error) {
		if dead {
			err = b.Recover()
		}
		if err == nil {
			err = b.Wake()
		}
		if err == nil && lost > 0 && d.hooks.Opened != nil {
			err = d.hooks.Opened(b.SQL(), lost)
		}
		return nil, err
	})
	if err != nil {
		d.trouble(s, "jobs of other processes were not taken over", err)
	}
}

// trouble reports a failure. One that the log does not get over ends the shift.
func (d *Desk) trouble(s *shift, what string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	d.cfg.Logger.Warn(what, slog.Any("error", err))
	for _, final := range []error{eventlog.ErrLogStopped, eventlog.ErrLogClosed, eventlog.ErrReadOnly} {
		if errors.Is(err, final) {
			s.fail(err)
		}
	}
}
