package sqlitelog

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// run is a run that this process writes, in one epoch: whoever was given the run
// later has one of its own. It is forgotten once it has ended and is durable.
type run struct {
	id    string
	epoch uint64 // zero for who appends to the log itself

	// The writer's.
	no    int64               // its row in the table run, zero before there is one
	first uint64              // number of its first event that is not in its row yet
	after eventlog.RunSummary // what the current transaction makes of it

	// appending serialises Append, and guards cursor and row.
	appending sync.Mutex
	cursor    eventlog.Cursor
	row       int64 // number of the row where cursor was read, or zero

	// loaded says that cursor is where the run stands, as far as this process
	// knows. The writer takes it back when a transaction has continued the run.
	loaded atomic.Bool

	// Guarded by Log.mu.
	users   int // calls of Append that hold the run
	ended   bool
	queued  uint64 // number of the last event that was taken
	durable uint64 // number of the last event that is on disk
	failed  error  // another writer continued the run, or was given it
	waiters []waiter
}

// waiter is a barrier: done gets nil once event seq is durable.
type waiter struct {
	seq  uint64
	done chan error
}

// errMoved means that a transaction has continued the run since it was loaded.
var errMoved = errors.New("sqlitelog: the run has moved")

// Append implements [eventlog.EventLog]. It checks the event in memory and
// queues it; only the first event that this process appends to a run looks
// into the file, to find where the run stands.
func (l *Log) Append(ctx context.Context, runID string, ev event.Event) error {
	return l.append(ctx, runID, 0, ev)
}

func (l *Log) append(ctx context.Context, runID string, epoch uint64, ev event.Event) error {
	r, err := l.hold(runID, epoch)
	if err != nil {
		return err
	}
	defer l.release(r)
	r.appending.Lock()
	defer r.appending.Unlock()
	for err = errMoved; err == errMoved; {
		err = l.appendTo(ctx, r, ev)
	}
	return err
}

// appendTo makes one attempt. The caller holds r.appending.
func (l *Log) appendTo(ctx context.Context, r *run, ev event.Event) error {
	if err := l.load(ctx, r); err != nil {
		return err
	}
	next := r.cursor
	if err := next.Append(r.id, ev); err != nil {
		return err
	}
	if err := l.enqueue(ctx, item{run: r, row: r.row, event: ev, after: next.Run()}); err != nil {
		return err
	}
	r.cursor = next
	return nil
}

// load finds where the run stands, unless that is known, and whether the epoch
// is still the last one. The caller holds r.appending.
func (l *Log) load(ctx context.Context, r *run) error {
	if r.loaded.Swap(true) {
		return nil
	}
	err := l.readers.with(ctx, func(rd *reader) error {
		epoch, err := rd.epoch(ctx, r.id)
		if err != nil {
			return err
		}
		if epoch != r.epoch {
			return fenced(r.id, r.epoch, epoch)
		}
		no, s, err := rd.run(ctx, r.id)
		switch {
		case errors.Is(err, eventlog.ErrRunNotFound):
			r.row, r.cursor = 0, eventlog.Cursor{}
			return nil
		case err == nil:
			r.row, r.cursor = no, eventlog.NewCursor(s)
		}
		return err
	})
	if err != nil {
		r.loaded.Store(false)
	}
	return err
}

// now stands for the epoch in which the run is written at this time.
const now = math.MaxUint64

// writerOf returns who writes the run in that epoch. Where nobody has appended to
// the log itself, that is whoever writes the run now. The caller holds mu.
func (l *Log) writerOf(runID string, epoch uint64) *run {
	all := l.runs[runID]
	for _, r := range all {
		if r.epoch == epoch {
			return r
		}
	}
	if (epoch == 0 || epoch == now) && len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// hold returns the run, which stays until it is released.
func (l *Log) hold(runID string, epoch uint64) (*run, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return nil, err
	}
	r := l.writerOf(runID, epoch)
	if r == nil || r.epoch != epoch {
		r = l.remember(&run{id: runID, epoch: epoch})
	}
	if r.failed != nil {
		return nil, r.failed
	}
	r.users++
	return r, nil
}

// remember adds a writer. The caller holds mu.
func (l *Log) remember(r *run) *run {
	if len(l.runs) >= maxIdleRuns {
		l.forgetIdle()
	}
	all := l.runs[r.id]
	at, _ := slices.BinarySearchFunc(all, r.epoch, func(r *run, epoch uint64) int { return cmp.Compare(r.epoch, epoch) })
	l.runs[r.id] = slices.Insert(all, at, r)
	return r
}

func (l *Log) release(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.users--
	if r.ended || r.queued == 0 {
		l.forget(r)
	}
}

// forget drops a run of which nothing is on its way, and reports whether it has. A
// run that failed stays, so that no later barrier takes its lost events for durable.
func (l *Log) forget(r *run) bool {
	if r.users > 0 || r.queued != r.durable || len(r.waiters) > 0 || r.failed != nil {
		return false
	}
	rest := slices.DeleteFunc(l.runs[r.id], func(other *run) bool { return other == r })
	if l.runs[r.id] = rest; len(rest) == 0 {
		delete(l.runs, r.id)
	}
	return true
}

func (l *Log) forgetIdle() {
	for _, all := range l.runs {
		for _, r := range slices.Clone(all) {
			l.forget(r)
		}
	}
}

// giveUp fails the run for good: every barrier and every later call of its writer
// gets err. The caller holds Log.mu.
func (r *run) giveUp(err error) {
	if r.failed == nil {
		r.failed = err
		r.answer(r.queued, err)
	}
}

// answer tells the barriers up to event seq. The caller holds Log.mu.
func (r *run) answer(seq uint64, err error) {
	n := 0
	for n < len(r.waiters) && r.waiters[n].seq <= seq {
		r.waiters[n].done <- err
		n++
	}
	r.waiters = append(r.waiters[:0], r.waiters[n:]...)
}
