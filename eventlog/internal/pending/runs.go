package pending

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/starling-host/starling/eventlog"
)

// MaxIdleRuns is how many open runs keep their cursor while nothing of them is on its
// way; more are looked up again when they go on.
const MaxIdleRuns = 4096

// now stands for the epoch in which a run is written at this time.
const now = math.MaxUint64

// Place is where a run stands in the database. It is zero for a run that is not there.
type Place struct {
	eventlog.Cursor
	Epoch uint64 // the last one that was made of the run
	Row   int64  // number of the run's row, for a backend that wants it back in Item
}

// Backend is what a log does itself. All fields must be set.
type Backend[W any] struct {
	Name string // of the package, for errors
	Sink string // what the writer waits for, such as "disk"

	// Find looks up where a run stands.
	Find func(ctx context.Context, runID string) (Place, error)
	// Refuse says why the log takes nothing although it is neither closed nor stopped,
	// if so. It is called with the lock of Runs held.
	Refuse func() error
	// Queue returns the queue for the next events of a run of which nothing is on its way
	// in the epoch. It is called with the lock of Runs held.
	Queue func(runID string) *Queue[W]
}

// Runs are the runs that a process writes to one log. W is what the backend's writer
// keeps of a run. Use [New].
type Runs[W any] struct {
	backend Backend[W]

	// Mutex guards everything below, the queues, and what a Run says it does of the
	// Run. It is never held across a call of the database.
	sync.Mutex
	runs    map[string][]*Run[W] // the writers of each run, by rising epoch
	queues  []*Queue[W]
	closing bool
	failed  error // the failure that stopped the log
}

// New returns the runs of a log that nobody has appended to. Its queues are made by
// [Runs.NewQueue].
func New[W any](b Backend[W]) *Runs[W] {
	return &Runs[W]{backend: b, runs: make(map[string][]*Run[W])}
}

// Writable says why the log takes nothing, if so.
func (s *Runs[W]) Writable() error {
	s.Lock()
	defer s.Unlock()
	return s.writable()
}

// writable is Writable for a caller who holds the lock.
func (s *Runs[W]) writable() error {
	switch {
	case s.closing:
		return eventlog.ErrLogClosed
	case s.failed != nil:
		return s.failed
	}
	return s.backend.Refuse()
}

// Closed reports whether the log takes nothing because it is closed.
func (s *Runs[W]) Closed() bool {
	s.Lock()
	defer s.Unlock()
	return s.closing
}

// Failure is what has stopped the log, or nil.
func (s *Runs[W]) Failure() error {
	s.Lock()
	defer s.Unlock()
	return s.failed
}

// AtWork returns the runs that this process has appended to, or was given, and has not
// forgotten.
func (s *Runs[W]) AtWork() []string {
	s.Lock()
	defer s.Unlock()
	return slices.AppendSeq([]string{}, maps.Keys(s.runs))
}

// Close lets nothing more in and wakes the writers, which write what is queued. It
// reports false when that was done before.
func (s *Runs[W]) Close() bool {
	s.Lock()
	defer s.Unlock()
	if s.closing {
		return false
	}
	s.closing = true
	for _, q := range s.queues {
		q.signal()
	}
	return true
}

// Stop ends the log with a failure after which nobody can tell what the database holds.
// Nothing is tried again: every barrier and every later call gets [Runs.Failure], which
// wraps [eventlog.ErrLogStopped] and the cause. It returns what was queued.
func (s *Runs[W]) Stop(cause error) []Item[W] {
	s.Lock()
	defer s.Unlock()
	if s.failed == nil {
		s.failed = fmt.Errorf("%w: %w", eventlog.ErrLogStopped, cause)
	}
	for _, all := range s.runs {
		for _, r := range all {
			r.answer(r.queued, s.failed)
		}
	}
	var left []Item[W]
	for _, q := range s.queues {
		left = append(left, q.drop()...)
	}
	return left
}

// Durable says that the events of the run are durable up to seq. The caller holds the
// lock.
func (s *Runs[W]) Durable(r *Run[W], seq uint64) {
	if r.failed != nil {
		return
	}
	r.durable = seq
	r.answer(seq, nil)
	if r.ended {
		s.forget(r)
	}
}

// Fenced says that a transaction which was committed has given the run to a new writer.
// The earlier ones have lost it. Of whom nothing is on its way is forgotten, and finds
// the epoch in the database when it appends again. The caller holds the lock.
func (s *Runs[W]) Fenced(runID string, epoch uint64) {
	for _, r := range slices.Clone(s.runs[runID]) {
		if r.Epoch < epoch && !s.forget(r) {
			r.GiveUp(StaleEpoch(runID, r.Epoch, epoch))
		}
	}
}

// Given says where a run stands that a committed transaction has given to a new writer.
// That is most often one of this process, who then need not look. The caller holds the
// lock, and has called Fenced.
func (s *Runs[W]) Given(runID string, at Place) {
	if r := s.writerOf(runID, at.Epoch); r != nil && r.Epoch == at.Epoch || at.Run().TerminalKind != 0 {
		return
	}
	r := s.remember(&Run[W]{ID: runID, Epoch: at.Epoch, cursor: at.Cursor, row: at.Row})
	r.loaded.Store(true)
}

// Moved says that a transaction which was committed has continued the run, and whether
// it has ended it. The caller holds the lock.
func (s *Runs[W]) Moved(runID string, ended bool) {
	for _, r := range slices.Clone(s.runs[runID]) {
		r.loaded.Store(false)
		r.ended = r.ended || ended
		s.forget(r)
	}
}

// writerOf returns who writes the run in that epoch. Where nobody has appended to the
// log itself, that is whoever writes the run now. The caller holds the lock.
func (s *Runs[W]) writerOf(runID string, epoch uint64) *Run[W] {
	all := s.runs[runID]
	for _, r := range all {
		if r.Epoch == epoch {
			return r
		}
	}
	if (epoch == 0 || epoch == now) && len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// hold returns the run, which stays until it is released.
func (s *Runs[W]) hold(runID string, epoch uint64) (*Run[W], error) {
	s.Lock()
	defer s.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	r := s.writerOf(runID, epoch)
	if r == nil || r.Epoch != epoch {
		r = s.remember(&Run[W]{ID: runID, Epoch: epoch})
	}
	if r.failed != nil {
		return nil, r.failed
	}
	r.users++
	return r, nil
}

// remember adds a writer. The caller holds the lock.
func (s *Runs[W]) remember(r *Run[W]) *Run[W] {
	if len(s.runs) >= MaxIdleRuns {
		s.forgetIdle()
	}
	all := s.runs[r.ID]
	at, _ := slices.BinarySearchFunc(all, r.Epoch, func(r *Run[W], epoch uint64) int { return cmp.Compare(r.Epoch, epoch) })
	s.runs[r.ID] = slices.Insert(all, at, r)
	return r
}

func (s *Runs[W]) release(r *Run[W]) {
	s.Lock()
	defer s.Unlock()
	r.users--
	if r.ended || r.queued == 0 {
		s.forget(r)
	}
}

// forget drops a run of which nothing is on its way, and reports whether it has. A run
// that failed stays, so that no later barrier takes its lost events for durable. The
// caller holds the lock.
func (s *Runs[W]) forget(r *Run[W]) bool {
	if r.users > 0 || r.queued != r.durable || len(r.waiters) > 0 || r.failed != nil {
		return false
	}
	rest := slices.DeleteFunc(s.runs[r.ID], func(other *Run[W]) bool { return other == r })
	if s.runs[r.ID] = rest; len(rest) == 0 {
		delete(s.runs, r.ID)
	}
	return true
}

func (s *Runs[W]) forgetIdle() {
	for _, all := range s.runs {
		for _, r := range slices.Clone(all) {
			s.forget(r)
		}
	}
}
