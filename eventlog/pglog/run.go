package pglog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// run is a run that this process writes, in one epoch: whoever was given the run later
// has one of its own. It is forgotten once it has ended and is durable.
type run struct {
	id    string
	epoch uint64 // zero for who appends to the log itself

	// appending serialises Append, and guards cursor.
	appending sync.Mutex
	cursor    eventlog.Cursor

	// loaded says that cursor is where the run stands, as far as this process knows. A
	// transaction that has continued the run takes it back.
	loaded atomic.Bool

	// Guarded by Log.mu.
	users   int // calls of Append that hold the run
	ended   bool
	queued  uint64 // number of the last event that was taken
	durable uint64 // number of the last event that is durable
	failed  error  // another writer continued the run, or was given it
	waiters []waiter
}

// waiter is a barrier: done gets nil once event seq is durable.
type waiter struct {
	seq  uint64
	done chan error
}

// item is one entry of a queue: an event, and its run with it.
type item struct {
	run   *run
	event event.Event
	after eventlog.RunSummary
}

// errMoved means that a transaction has continued the run since it was loaded.
var errMoved = errors.New("pglog: the run has moved")

// Append implements [eventlog.EventLog]. It checks the event in memory and queues it;
// only the first event that this process appends to a run looks into the database, to
// find where the run stands. A run id with a zero byte is refused: PostgreSQL has no
// such texts.
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
	if err := l.lane(r.id).enqueue(ctx, item{run: r, event: ev, after: next.Run()}); err != nil {
		return err
	}
	r.cursor = next
	return nil
}

// load finds where the run stands, unless that is known, and whether the epoch is still
// the last one. The caller holds r.appending.
func (l *Log) load(ctx context.Context, r *run) error {
	if r.loaded.Swap(true) {
		return nil
	}
	at, err := l.look(ctx, r.id)
	if err == nil && at.epoch != r.epoch {
		err = fenced(r.id, r.epoch, at.epoch)
	}
	if err != nil {
		r.loaded.Store(false)
		return err
	}
	r.cursor = at.Cursor
	return nil
}

// isText reports whether the database can hold the text.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// storable refuses the id of a run that the database cannot hold.
func storable(runID string) error {
	if !isText(runID) {
		return fmt.Errorf("%w: run id %q has a zero byte, or is not UTF-8", eventlog.ErrInvalidAppend, runID)
	}
	return nil
}

// now stands for the epoch in which the run is written at this time.
const now = math.MaxUint64

// writerOf returns who writes the run in that epoch. Where nobody has appended to the
// log itself, that is whoever writes the run now. The caller holds mu.
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
	if err := storable(runID); err != nil {
		return nil, err
	}
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

// forget drops a run of which nothing is on its way. A run that failed stays, so that
// no later barrier takes its lost events for durable.
func (l *Log) forget(r *run) {
	if r.users > 0 || r.queued != r.durable || len(r.waiters) > 0 || r.failed != nil {
		return
	}
	rest := slices.DeleteFunc(l.runs[r.id], func(other *run) bool { return other == r })
	if l.runs[r.id] = rest; len(rest) == 0 {
		delete(l.runs, r.id)
	}
}

func (l *Log) forgetIdle() {
	for _, all := range l.runs {
		for _, r := range slices.Clone(all) {
			l.forget(r)
		}
	}
}

// giveUp fails the run for good: every barrier and every later call of its writer gets
// err. The caller holds Log.mu.
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
