package pending

import (
	"sync"
	"sync/atomic"

	"github.com/starling-host/starling/eventlog"
)

// Run is a run that this process writes, in one epoch: whoever was given the run later
// has one of its own.
type Run[W any] struct {
	ID    string
	Epoch uint64 // zero for who appends to the log itself

	// Writer is what the backend's writer keeps of the run. Nobody else touches it.
	Writer W

	// appending serialises Append, and guards cursor and row.
	appending sync.Mutex
	cursor    eventlog.Cursor
	row       int64 // see Place

	// loaded says that cursor is where the run stands, as far as this process knows. A
	// transaction that has continued the run takes it back.
	loaded atomic.Bool

	// Guarded by the lock of Runs.
	queue   *Queue[W] // that its events are in; another one only when none is on its way
	users   int       // calls of Append that hold the run
	ended   bool
	queued  uint64 // number of the last event that was taken
	durable uint64 // number of the last event that is durable
	failed  error  // another writer continued the run, or was given it
	waiters []waiter
}

// waiter is a barrier: done gets nil once event seq is durable.
type waiter struct {
	seq  uint64
	done chan error // capacity 1
}

// GiveUp fails the run for good: every barrier and every later call of its writer gets
// err. The caller holds the lock of Runs.
func (r *Run[W]) GiveUp(err error) {
	if r.failed == nil {
		r.failed = err
		r.answer(r.queued, err)
	}
}

// take notes that the event is on its way. The caller holds the lock of Runs.
func (r *Run[W]) take(seq uint64, terminal bool) {
	r.queued, r.ended = seq, terminal
	if r.durable == 0 {
		r.durable = seq - 1
	}
}

// wait returns a channel that tells when all that was taken is durable. The caller
// holds the lock of Runs.
func (r *Run[W]) wait() <-chan error {
	done := make(chan error, 1)
	r.waiters = append(r.waiters, waiter{r.queued, done})
	return done
}

// answer tells the barriers up to event seq. The caller holds the lock of Runs.
func (r *Run[W]) answer(seq uint64, err error) {
	n := 0
	for n < len(r.waiters) && r.waiters[n].seq <= seq {
		r.waiters[n].done <- err
		n++
	}
	r.waiters = append(r.waiters[:0], r.waiters[n:]...)
}
