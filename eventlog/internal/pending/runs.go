package pending

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// MaxIdleRuns is how many open runs without queued events keep their cursor; others
// are looked up again when they continue. Beyond it, failed runs are forgotten as well: once
// their writer knows, or failedTime after their failure, when nobody is left to ask.
const MaxIdleRuns = 4096

const failedTime = time.Hour

// now is the run's current epoch.
const now = math.MaxUint64

// Position is the position of a run in the database. It is zero for a run that does not exist.
type Position struct {
	eventlog.Cursor
	Epoch uint64 // the run's latest epoch
	Row   int64  // number of the run's row, for a backend that wants it back in Item
}

// Backend is the part that a log implements itself. All fields must be set.
type Backend[W any] struct {
	Name string // of the package, for errors
	Sink string // what the writer waits for, such as "disk"

	// Find looks up the position of a run.
	Find func(ctx context.Context, runID string) (Position, error)
	// Uses returns the modules and roots of files that a run uses because of an event.
	Uses func(ctx context.Context, ev event.Event) ([]canon.Hash, error)
	// Refuse returns the reason why a log that is neither closed nor stopped takes no
	// events, or nil. It is called with the lock of Runs held.
	Refuse func() error
	// Restart makes ready for a new writer after the failure that has stopped the log, and
	// returns what starts it. An error means that the cause is still there. Nothing else is
	// begun or closed meanwhile. It returns within seconds.
	Restart func() (start func(), err error)
}

// Runs are the runs that a process writes to one log. W is the backend writer's
// state of a run. Use [New].
type Runs[W any] struct {
	backend Backend[W]

	// Mutex guards everything below, and the fields of a Run that are marked so.
	// It is never held across a call of the database.
	sync.Mutex
	runs    map[string][]*Run[W] // the writers of each run, by rising epoch
	sweep   int                  // how many runs there are when the idle ones are forgotten next, see MaxIdleRuns
	queue   queue[W]
	closing bool
	failed  error // the failure that stopped the log

	stopped    atomic.Bool // failed is set
	restarting sync.Mutex  // held while the backend restarts, and while Close begins; before Mutex
	restart    time.Time   // when it may be tried again; guarded by restarting
}

// When a stopped log is asked to write, it checks whether the cause is gone, and not again
// for restartRest times as long as that took, or restartEvery.
const (
	restartRest  = 4
	restartEvery = time.Second
)

// revive starts a new writer if the log has stopped and the cause is gone. It is called
// before an append, so an unused log is left alone.
func (s *Runs[W]) revive() {
	if !s.stopped.Load() {
		return
	}
	s.restarting.Lock()
	defer s.restarting.Unlock()
	if errors.Is(s.Failure(), eventlog.ErrLogLost) || s.Closed() || time.Now().Before(s.restart) {
		return
	}
	began := time.Now()
	start, err := s.backend.Restart()
	s.restart = time.Now().Add(min(restartRest*time.Since(began), restartEvery))
	s.Lock()
	switch {
	case err == nil:
		s.failed = nil
		s.stopped.Store(false)
		defer start()
	case errors.Is(err, eventlog.ErrLogLost):
		s.failed = fmt.Errorf("%w: %w", eventlog.ErrLogStopped, err)
	}
	s.Unlock()
}

// New returns the runs of a log that nothing has been appended to.
func New[W any](b Backend[W]) *Runs[W] {
	s := &Runs[W]{backend: b, runs: make(map[string][]*Run[W])}
	s.queue.room, s.queue.work = make(chan struct{}), make(chan struct{}, 1)
	s.queue.delay = time.AfterFunc(time.Hour, s.overdue)
	s.queue.delay.Stop()
	return s
}

// Writable returns the reason why the log takes no events, or nil.
func (s *Runs[W]) Writable() error {
	s.revive()
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

// Failure returns the error that stopped the log, or nil.
func (s *Runs[W]) Failure() error {
	s.Lock()
	defer s.Unlock()
	return s.failed
}

// AtWork returns the runs that this process has appended to, or received, and has not
// forgotten.
func (s *Runs[W]) AtWork() []string {
	s.Lock()
	defer s.Unlock()
	return slices.AppendSeq([]string{}, maps.Keys(s.runs))
}

// Close refuses new events and wakes the writer, which writes the queued ones. It
// returns false if the log was closed before.
func (s *Runs[W]) Close() bool {
	s.restarting.Lock()
	defer s.restarting.Unlock()
	s.Lock()
	defer s.Unlock()
	if s.closing {
		return false
	}
	s.closing = true
	s.signal()
	return true
}

// Stop ends the writer with a failure after which the state of the database is unknown.
// Nothing is tried again: every barrier gets [Runs.Failure], which wraps
// [eventlog.ErrLogStopped] and the cause. So do the tasks in the queue, and in the batch that
// could not be written, and every later call until the backend has restarted. A run with
// queued events is lost to its writer for good; the position of the others is read again.
func (s *Runs[W]) Stop(cause error, batch []Item[W]) {
	s.Lock()
	defer s.Unlock()
	s.failed = cmp.Or(s.failed, fmt.Errorf("%w: %w", eventlog.ErrLogStopped, cause))
	s.stopped.Store(true)
	for _, all := range s.runs {
		for _, r := range slices.Clone(all) {
			if r.loaded.Store(false); !s.forget(r) && r.queued != r.durable {
				r.giveUp(s.failed)
			}
		}
	}
	q := &s.queue
	for _, it := range slices.Concat(batch, q.items) {
		if it.Task != nil {
			it.Task.Done(s.failed)
		}
	}
	q.items, q.bytes = nil, 0
	s.widen()
	s.signal()
}

// Acknowledge answers the barriers and the tasks of a batch that is durable, and hands its
// events to the streams of their runs. The runs in lost are given up.
func (s *Runs[W]) Acknowledge(batch []Item[W], lost map[*Run[W]]error, hub *tail.Hub) {
	s.Lock()
	defer s.Unlock()
	for _, it := range batch {
		switch r := it.Run; {
		case it.Task != nil:
			it.Task.Done(nil)
		case lost[r] != nil:
			r.giveUp(lost[r])
		default:
			s.durable(r, it.Event.Seq)
			hub.Hand(it.Event)
		}
	}
}

// durable records that the events of the run are durable up to seq. The caller holds
// the lock.
func (s *Runs[W]) durable(r *Run[W], seq uint64) {
	if r.failed != nil {
		return
	}
	r.durable = seq
	r.answer(seq, nil)
	if r.ended {
		s.forget(r)
	}
}

// fenced records that a committed transaction has given the run to a new writer. The
// earlier writers have lost it. A writer with nothing queued is forgotten; it reads the
// epoch from the database when it appends again. The caller holds the lock.
func (s *Runs[W]) fenced(runID string, epoch uint64) {
	for _, r := range slices.Clone(s.runs[runID]) {
		if r.Epoch < epoch && !s.forget(r) {
			r.giveUp(StaleEpoch(runID, r.Epoch, epoch))
		}
	}
}

// give sets the position of a run that a committed transaction has given to a new writer.
// The new writer is usually in this process, and then need not look it up. The caller
// holds the lock, and has called fenced.
func (s *Runs[W]) give(runID string, at Position) {
	if r := s.writerOf(runID, at.Epoch); r != nil && r.Epoch == at.Epoch || at.Run().TerminalKind != 0 {
		return
	}
	r := s.remember(&Run[W]{ID: runID, Epoch: at.Epoch, cursor: at.Cursor, row: at.Row})
	r.loaded.Store(true)
}

// moved records that a committed transaction has continued the run, and whether it has
// ended it. The caller holds the lock.
func (s *Runs[W]) moved(runID string, ended bool) {
	for _, r := range slices.Clone(s.runs[runID]) {
		r.loaded.Store(false)
		r.ended = r.ended || ended
		s.forget(r)
	}
}

// writerOf returns the writer of the run in that epoch. For the log itself, which has no epoch, and
// for now, it falls back to the run's present writer. The caller holds the lock.
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
	s.revive()
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
		r.told = true
		return nil, r.failed
	}
	r.users++
	return r, nil
}

// remember adds a writer. The caller holds the lock.
func (s *Runs[W]) remember(r *Run[W]) *Run[W] {
	if len(s.runs) >= max(s.sweep, MaxIdleRuns) {
		for _, all := range s.runs {
			for _, idle := range slices.Clone(all) {
				s.forget(idle)
				if idle.failed != nil && idle.users == 0 && (idle.told || time.Since(idle.since) > failedTime) {
					s.drop(idle)
				}
			}
		}
		s.sweep = 2 * len(s.runs) // so that a new run costs little, however many failed ones are kept
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

// forget drops a run with nothing queued, and reports whether it has. A run
// that failed stays, so that no later barrier takes its lost events for durable. The
// caller holds the lock.
func (s *Runs[W]) forget(r *Run[W]) bool {
	if r.users > 0 || r.queued != r.durable || len(r.waiters) > 0 || r.failed != nil {
		return false
	}
	s.drop(r)
	return true
}

func (s *Runs[W]) drop(r *Run[W]) {
	rest := slices.DeleteFunc(s.runs[r.ID], func(other *Run[W]) bool { return other == r })
	if s.runs[r.ID] = rest; len(rest) == 0 {
		delete(s.runs, r.ID)
	}
}

// Run is a run that this process writes, in one epoch. A later writer of the run
// has a Run of its own.
type Run[W any] struct {
	ID    string
	Epoch uint64 // zero for the log itself

	// Writer is the backend writer's state of the run. No other code touches it.
	Writer W

	// appending serialises Append, and guards the next two fields.
	appending sync.Mutex
	cursor    eventlog.Cursor
	row       int64 // see [Position]

	// loaded reports whether cursor is the position of the run, as this process knows it.
	// A transaction that has continued the run clears it.
	loaded atomic.Bool

	// Guarded by the lock of Runs.
	users   int // calls of Append that hold the run
	ended   bool
	queued  uint64    // number of the last accepted event
	durable uint64    // number of the last event that is durable
	failed  error     // another writer continued the run, or received it
	told    bool      // a caller of the writer has got failed
	since   time.Time // of failed
	waiters []waiter
}

// waiter is a barrier: done gets nil once event seq is durable.
type waiter struct {
	seq  uint64
	done chan error // capacity 1
}

// giveUp fails the run for good: every barrier and every later call of its writer gets
// err. The caller holds the lock of Runs.
func (r *Run[W]) giveUp(err error) {
	if r.failed == nil {
		r.failed, r.since, r.told = err, time.Now(), len(r.waiters) > 0
		r.answer(r.queued, err)
	}
}

// answer releases the barriers up to event seq. The caller holds the lock of Runs.
func (r *Run[W]) answer(seq uint64, err error) {
	n := 0
	for n < len(r.waiters) && r.waiters[n].seq <= seq {
		r.waiters[n].done <- err
		n++
	}
	r.waiters = append(r.waiters[:0], r.waiters[n:]...)
}

// errMoved means that a transaction has continued the run since it was loaded.
var errMoved = errors.New("pending: the run has moved")

// Append checks in memory that the event continues the run, under the epoch, and queues
// it. Only the first event that this process appends to a run in an epoch looks into
// the database. Epoch zero is the log's own, outside every epoch.
func (s *Runs[W]) Append(ctx context.Context, runID string, epoch uint64, ev event.Event) error {
	return s.append(ctx, runID, epoch, ev, (*eventlog.Cursor).Append)
}

// Import is Append, outside of every epoch, of a run that was begun elsewhere.
func (s *Runs[W]) Import(ctx context.Context, ev event.Event) error {
	return s.append(ctx, ev.RunID, 0, ev, (*eventlog.Cursor).Import)
}

func (s *Runs[W]) append(ctx context.Context, runID string, epoch uint64, ev event.Event, past func(*eventlog.Cursor, string, event.Event) error) error {
	r, err := s.hold(runID, epoch)
	if err != nil {
		return err
	}
	defer s.release(r)
	r.appending.Lock()
	defer r.appending.Unlock()
	for err = errMoved; err == errMoved; {
		err = s.appendTo(ctx, r, ev, past)
	}
	return err
}

// appendTo makes one attempt. The caller holds r.appending.
func (s *Runs[W]) appendTo(ctx context.Context, r *Run[W], ev event.Event, past func(*eventlog.Cursor, string, event.Event) error) error {
	known := r.loaded.Load()
	if err := s.load(ctx, r); err != nil {
		return err
	}
	next := r.cursor
	if err := past(&next, r.ID, ev); err != nil {
		s.Lock()
		idle := r.queued == r.durable
		s.Unlock()
		if known && idle { // another program may have continued the run since it was loaded
			r.loaded.Store(false)
			return errMoved
		}
		return err
	}
	it := Item[W]{Run: r, Row: r.row, Event: ev, After: next.Run()}
	var err error
	if it.Uses, err = s.backend.Uses(ctx, ev); err != nil {
		return err
	}
	if err := s.Put(ctx, it); err != nil {
		return err
	}
	r.cursor = next
	return nil
}

// load finds the position of the run, unless it is known, and whether the epoch is still
// the last one. The caller holds r.appending.
func (s *Runs[W]) load(ctx context.Context, r *Run[W]) error {
	if r.loaded.Swap(true) {
		return nil
	}
	at, err := s.backend.Find(ctx, r.ID)
	if err == nil && at.Epoch != r.Epoch {
		err = StaleEpoch(r.ID, r.Epoch, at.Epoch)
	}
	if err != nil {
		r.loaded.Store(false)
		return err
	}
	r.cursor, r.row = at.Cursor, at.Row
	return nil
}

// Sync waits until all that was appended to the run in that epoch is durable. For a
// run without pending events it costs only a look into a map.
func (s *Runs[W]) Sync(ctx context.Context, runID string, epoch uint64) error {
	done, err := s.barrier(runID, epoch)
	if done == nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Settle waits until the events that this process has appended to the run can be read.
// A stopped log still shows durable events.
func (s *Runs[W]) Settle(ctx context.Context, runID string) error {
	switch err := s.Sync(ctx, runID, now); {
	case errors.Is(err, eventlog.ErrLogClosed):
		return err
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return nil
}

// Events yields the events of a run with numbers above after, as [tail.Events] does,
// once the events that this process has appended to it can be read.
func (s *Runs[W]) Events(ctx context.Context, runID string, after uint64, page tail.Page) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if err := s.Settle(ctx, runID); err != nil {
			yield(event.Event{}, err)
			return
		}
		tail.Events(ctx, runID, after, page)(yield)
	}
}

// barrier returns a channel that tells when all that is queued of the run in that epoch
// is durable; nil if it is so already.
func (s *Runs[W]) barrier(runID string, epoch uint64) (<-chan error, error) {
	s.Lock()
	defer s.Unlock()
	r := s.writerOf(runID, epoch)
	switch {
	case s.failed != nil:
		return nil, s.failed
	case r != nil && r.failed != nil:
		r.told = true
		return nil, r.failed
	case r != nil && r.durable != r.queued:
		s.want()
		done := make(chan error, 1)
		r.waiters = append(r.waiters, waiter{r.queued, done})
		return done, nil
	case s.closing:
		return nil, eventlog.ErrLogClosed
	}
	return nil, nil
}

// StaleEpoch is the error of a writer whose epoch is not the last one.
func StaleEpoch(runID string, epoch, last uint64) error {
	return fmt.Errorf("%w: run %q is in epoch %d, the writer's is %d", eventlog.ErrFenced, runID, last, epoch)
}

// Continued is the error of a run that another process has continued.
func Continued(runID string) error {
	return fmt.Errorf("%w: run %q: concurrent append: another process continued the run", eventlog.ErrInvalidAppend, runID)
}

// ModuleLost is the error of a run with an event that names a module, or files, after their removal.
func ModuleLost(runID string) error {
	return fmt.Errorf("%w: run %q: %w: what the event names was removed before it", eventlog.ErrInvalidAppend, runID, eventlog.ErrModuleNotFound)
}

// fenced is a log for the writer that received one run in one epoch.
type fenced struct {
	eventlog.EventLog
	runID string
	write func(ctx context.Context, ev event.Event) error
	sync  func(ctx context.Context) error
}

// Fenced returns the log for the writer that received the run in an epoch, see
// [eventlog.Store]. The functions append to the run in the epoch, and wait for its events.
func Fenced(log eventlog.EventLog, runID string, write func(ctx context.Context, ev event.Event) error, sync func(ctx context.Context) error) eventlog.EventLog {
	return &fenced{log, runID, write, sync}
}

// Append implements [eventlog.EventLog]. It takes events of the writer's run alone.
func (w *fenced) Append(ctx context.Context, runID string, ev event.Event) error {
	if runID != w.runID {
		return fmt.Errorf("%w: the writer was given run %q, not %q", eventlog.ErrInvalidAppend, w.runID, runID)
	}
	return w.write(ctx, ev)
}

// Sync implements [eventlog.EventLog].
func (w *fenced) Sync(ctx context.Context, runID string) error {
	if runID != w.runID {
		return w.EventLog.Sync(ctx, runID)
	}
	return w.sync(ctx)
}

// Unwrap returns the log of all runs.
func (w *fenced) Unwrap() eventlog.EventLog { return w.EventLog }

// Close implements [eventlog.EventLog]. The log stays open.
func (w *fenced) Close() error { return nil }

// Changes are the changes of a transaction to runs. The zero value is ready.
type Changes struct {
	Epochs map[string]uint64   // that it has made
	Moved  map[string]Position // the positions of the runs that it has continued
	given  map[string]Position // the positions of the runs in Epochs
}

// Fence records an epoch that the transaction has made of a run.
func (c *Changes) Fence(runID string, epoch uint64) {
	if c.Epochs == nil {
		c.Epochs, c.given = make(map[string]uint64), make(map[string]Position)
	}
	c.Epochs[runID] = epoch
}

// Give records the position of a run for which the transaction has made an epoch.
func (c *Changes) Give(runID string, at Position) {
	at.Epoch = c.Epochs[runID]
	c.given[runID] = at
}

// Move records that the transaction has continued a run.
func (c *Changes) Move(runID string, at Position) {
	if c.Moved == nil {
		c.Moved = make(map[string]Position)
	}
	if c.Moved[runID] = at; c.Epochs[runID] != 0 {
		c.Give(runID, at)
	}
}

// Committed reports a transaction's changes of runs to their writers in this process,
// and to their streams. The caller holds the lock.
func (s *Runs[W]) Committed(c *Changes, hub *tail.Hub) {
	for id, epoch := range c.Epochs {
		s.fenced(id, epoch)
	}
	for id, at := range c.Moved {
		s.moved(id, at.Run().TerminalKind != 0)
		hub.Wake(id)
	}
	for id, at := range c.given {
		s.give(id, at)
	}
}
