package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/internal/book"
)

const (
	// maxOps and maxTurns bound one transaction.
	maxOps   = 256
	maxTurns = 256
	// commitPatience bounds one transaction in time. Whether it was committed after that
	// is not known.
	commitPatience = 30 * time.Second
	// linger is how long the end of a job waits for something to share a transaction
	// with. If the process dies meanwhile, whoever gets the job finds that its run is over.
	linger = 10 * time.Millisecond
)

// op is one change that a caller waits for.
type op struct {
	ctx    context.Context
	tenant *string // whose row it will need, if that is known
	later  bool    // it may wait, as long as no job does
	// do returns a refusal, having changed nothing, or an error, which undoes the
	// transaction. It may be called several times.
	do   func(*book.Tx) (refusal, err error)
	done chan error

	refusal, err error // of the last call
}

// do makes a change and waits until it is durable. tenant is whose row it will need,
// or nil.
func (d *Desk) do(ctx context.Context, tenant *string, f func(*book.Tx) (refusal, err error)) error {
	select {
	case err := <-d.submit(&op{ctx: ctx, tenant: tenant, do: f}):
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// submit asks for a change. The channel gets the result.
func (d *Desk) submit(o *op) <-chan error {
	o.done = make(chan error, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = append(d.ops, o)
	switch {
	case d.pressing():
		d.wake()
	case !d.lingers:
		d.lingers = true
		time.AfterFunc(linger, d.hurry)
	}
	return o.done
}

// hurry has what waits for company wait no longer.
func (d *Desk) hurry() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lingers = false
	for _, o := range d.ops {
		o.later = false
	}
	if len(d.ops) > 0 {
		d.wake()
	}
}

// pressing reports whether there are changes that are not to wait. The caller holds mu.
func (d *Desk) pressing() bool {
	return !d.quiet && len(d.ops) > 0 || slices.ContainsFunc(d.ops, func(o *op) bool { return !o.later })
}

// wake sees to it that what there is to do is done. The caller holds mu.
func (d *Desk) wake() {
	if d.shift != nil {
		d.shift.wanted = true
	}
	if !d.flushing {
		d.flushing = true
		go d.flush()
	}
}

// cycle is what one transaction does: the ops, and then handing out jobs.
type cycle struct {
	gathered bool // the rest was filled in
	ops      []*op
	turns    []*turn
	kept     int // of the turns, for tenants of which nothing runs
	shift    *shift
	owner    string
	due      bool              // there may be jobs that have slept long enough
	doubt    map[string]uint64 // the jobs that the shift has, when others may be written down as its own
	quiet    bool              // no job waits, as far as the transaction has seen
}

// flush makes transactions until there is nothing to do.
func (d *Desk) flush() {
	for d.more() {
		c := new(cycle)
		leases, err := d.commit(c)
		d.deliver(c, leases, err)
	}
}

// more reports whether there is something to do, and ends the flushing when there is
// not.
func (d *Desk) more() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushing = d.pressing() || d.handsOut() && d.hasTurns(d.shift)
	return d.flushing
}

// hasTurns reports whether there are turns that [Desk.takeTurns] would take. The caller
// holds mu.
func (d *Desk) hasTurns(s *shift) bool {
	if d.hooks.Start != nil {
		return len(d.turns) > 0
	}
	return s.wanted && s.free > 0
}

// handsOut reports whether the shift may hand out jobs. The caller holds mu.
func (d *Desk) handsOut() bool { return d.shift != nil && d.shift.owner != "" && !d.shift.stopping }

// gather takes into the cycle what waits. That is done when the transaction has its
// turn and not before: what comes while another transaction waits for the disk shares
// this one.
func (d *Desk) gather(c *cycle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.gathered = true
	n := min(len(d.ops), maxOps)
	c.ops = d.ops[:n:n]
	d.ops = d.ops[n:]
	if n > 0 { // which may be for a job that they are for
		d.unpark()
	}
	if !d.handsOut() {
		return
	}
	s := d.shift
	c.shift, c.owner = s, s.owner
	free := s.free
	if c.turns = d.takeTurns(s); len(c.turns) > 0 {
		c.kept = max(0, len(c.turns)-max(0, free-d.cfg.Workers/8))
		s.active.Add(1) // until they are delivered
		c.due, s.due = s.due, false
	}
	if s.doubt {
		c.doubt = s.epochs()
	}
}

// unpark has the turns that were parked look again. The caller holds mu.
func (d *Desk) unpark() { d.turns, d.parked = append(d.turns, d.parked...), nil }

// takeTurns returns the turns that can be given away now. The caller holds mu.
func (d *Desk) takeTurns(s *shift) []*turn {
	if d.hooks.Start != nil {
		n := min(len(d.turns), maxTurns)
		turns := d.turns[:n:n]
		d.turns = d.turns[n:]
		return turns
	}
	if !s.wanted {
		return nil
	}
	s.wanted = false // until somebody says so again
	turns := make([]*turn, min(s.free, maxTurns))
	s.free -= len(turns)
	return turns
}

// commit makes one transaction; or one for each op when an op fails, and one without
// handing out when that cannot be, so that nobody suffers from another's error.
func (d *Desk) commit(c *cycle) ([]queue.Lease, error) {
	leases, err := d.transact(c)
	switch {
	case c.blame(), errors.Is(err, queue.ErrExists):
		for _, o := range c.ops {
			_, o.err = d.transact(&cycle{gathered: true, ops: []*op{o}})
		}
		c.quiet = false // which was of the transaction that failed
		d.lookAgain(c)
		return nil, nil
	case errors.Is(err, errReplaced):
		if _, opErr := d.transact(&cycle{gathered: true, ops: c.ops}); opErr != nil {
			for _, o := range c.ops {
				o.err = cmp.Or(o.err, opErr)
			}
		}
	}
	return leases, err
}

// lookAgain gives back the turns of a cycle for which nothing was looked for.
func (d *Desk) lookAgain(c *cycle) {
	if len(c.turns) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := c.shift
	s.wanted, s.due = true, s.due || c.due
	for _, t := range c.turns {
		switch {
		case t == nil:
			s.free++
		case s.stopping:
			t.got <- taken{err: errIdle}
		default:
			d.turns = append(d.turns, t)
		}
	}
	c.turns = nil
	s.active.Done()
}

// blame reports whether an op was the reason why the transaction failed.
func (c *cycle) blame() bool {
	for _, o := range c.ops {
		if o.err != nil {
			return true
		}
	}
	return false
}

// transact makes one transaction.
func (d *Desk) transact(c *cycle) (leases []queue.Lease, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commitPatience)
	defer cancel()
	err = d.log.Transact(ctx, func(tx eventlog.Tx) (err error) {
		if !c.gathered {
			d.gather(c)
		}
		leases = nil
		for _, o := range c.ops {
			o.refusal, o.err = nil, nil
		}
		b := book.Begin(tx, book.Rules{MaxWaiting: d.cfg.MaxWaiting, Limits: d.cfg.Limits, Now: d.cfg.Clock.Now()})
		if err := b.Expect(c.tenants()); err != nil {
			return err
		}
		for _, o := range c.ops {
			if err := o.apply(b); err != nil {
				return err
			}
		}
		if leases, err = d.claim(b, c); err != nil {
			return err
		}
		c.quiet = b.Quiet()
		opened, err := b.Flush(c.fresh(len(leases)))
		if err == nil && opened > 0 && d.hooks.Opened != nil {
			err = d.hooks.Opened(tx, opened)
		}
		return err
	})
	if !c.gathered {
		d.gather(c) // the transaction did not get as far, which is what they are told
	}
	return leases, err
}

// tenants returns the tenants that the ops are about.
func (c *cycle) tenants() map[string]bool {
	names := make(map[string]bool)
	for _, o := range c.ops {
		if o.tenant != nil {
			names[*o.tenant] = true
		}
	}
	return names
}

// fresh returns how many of the first n turns have not had a job yet.
func (c *cycle) fresh(n int) (fresh int) {
	for _, t := range c.turns[:n] {
		if t != nil && !t.used {
			fresh++
		}
	}
	return fresh
}

// apply makes the op's change, unless nobody waits for it any more.
func (o *op) apply(b *book.Tx) error {
	if o.ctx.Err() != nil {
		o.refusal = context.Cause(o.ctx)
		return nil
	}
	o.refusal, o.err = o.do(b)
	return o.err
}

// errReplaced means that this process was taken for dead: for its lease, or because one that
// calls itself the same has begun since.
var errReplaced = errors.New("queue: this process has not renewed its lease in time, or another one has begun under its name (queue.host); its jobs were given to others")

// claim hands out jobs for the turns of the cycle. A process does so only while it
// is among the living, and renews its lease by doing it; so there is never a job
// in the hands of somebody whose death nobody would notice.
func (d *Desk) claim(b *book.Tx, c *cycle) ([]queue.Lease, error) {
	if len(c.turns) == 0 {
		return nil, nil
	}
	alive, err := b.Renew(c.owner, d.cfg.Clock.Now().Add(d.cfg.Lease))
	if err == nil && !alive {
		err = errReplaced
	}
	if err == nil && c.doubt != nil {
		err = b.Disown(c.owner, c.doubt)
	}
	if err == nil && c.due {
		err = b.Wake()
	}
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(c.turns))
	for i, t := range c.turns {
		if t != nil {
			ids[i] = t.id
		}
	}
	return b.Claim(c.owner, ids, c.kept)
}

// deliver tells everybody what became of the transaction.
func (d *Desk) deliver(c *cycle, leases []queue.Lease, err error) {
	d.mu.Lock()
	d.quiet = c.quiet && err == nil
	d.mu.Unlock()
	for _, o := range c.ops {
		switch {
		case o.err != nil:
			o.done <- o.err
		case err != nil && !errors.Is(err, errReplaced): // which concerns turns alone
			o.done <- fmt.Errorf("queue: %w", err)
		default:
			o.done <- o.refusal
		}
	}
	if len(c.turns) > 0 {
		d.handOut(c, leases, err)
		c.shift.active.Done()
	}
}
