package pending

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// store is a database whose writer does nothing until the test tells it to.
type store struct {
	runs *Runs[int]
	at   map[string]Position
}

func newStore() *store {
	s := &store{at: make(map[string]Position)}
	s.runs = New(Backend[int]{
		Name: "store", Sink: "test",
		Find:    func(_ context.Context, runID string) (Position, error) { return s.at[runID], nil },
		Uses:    func(context.Context, event.Event) ([]canon.Hash, error) { return nil, nil },
		Refuse:  func() error { return nil },
		Restart: func() (func(), error) { return nil, errors.New("the cause is still there") },
	})
	return s
}

// commit writes one batch.
func (s *store) commit() (taken int) {
	batch := s.runs.Take(nil)
	s.runs.Lock()
	defer s.runs.Unlock()
	for _, it := range batch {
		if it.Task != nil {
			continue
		}
		s.at[it.Run.ID] = Position{Cursor: eventlog.NewCursor(it.After), Epoch: it.Run.Epoch}
		s.runs.durable(it.Run, it.Event.Seq)
	}
	return len(batch)
}

// fence gives a run away.
func (s *store) fence(runID string) (epoch uint64) {
	s.runs.Lock()
	defer s.runs.Unlock()
	at := s.at[runID]
	at.Epoch++
	s.at[runID] = at
	s.runs.fenced(runID, at.Epoch)
	return at.Epoch
}

func (s *store) append(t *testing.T, epoch uint64, evs ...event.Event) {
	t.Helper()
	for _, e := range evs {
		if err := s.runs.Append(t.Context(), e.RunID, epoch, e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestABarrierWaitsForWhatWasTakenBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newStore(), logtest.Chain{RunID: "r"}
		var done [2]error
		unanswered := errors.New("no answer")
		for i := range done {
			done[i] = unanswered
		}
		s.append(t, 0, c.Start("g"))
		go func() { done[0] = s.runs.Sync(t.Context(), "r", 0) }()
		synctest.Wait()
		first := s.runs.Take(nil)
		s.append(t, 0, c.Complete())
		go func() { done[1] = s.runs.Sync(t.Context(), "r", 0) }()
		synctest.Wait()
		s.runs.Lock()
		s.runs.durable(first[0].Run, 1)
		s.runs.Unlock()
		synctest.Wait()
		if done[0] != nil || done[1] != unanswered {
			t.Errorf("after the first event: %v", done)
		}
		s.commit()
		synctest.Wait()
		if done[1] != nil || len(s.runs.AtWork()) != 0 {
			t.Errorf("after the last event: %v, at work on %q", done[1], s.runs.AtWork())
		}
	})
}

// TestAppendWithoutBarrierLingers: a single event is committed once a caller
// waits for it, or with many others, or after a while.
func TestAppendWithoutBarrierLingers(t *testing.T) {
	for name, c := range map[string]struct {
		effects, size int
		more          func(context.Context, *store)
		after         time.Duration
	}{
		"nobody waits": {after: longestDelay},
		"a barrier":    {more: func(ctx context.Context, s *store) { go s.runs.Sync(ctx, "r", 0) }},
		"a reader":     {more: func(ctx context.Context, s *store) { go s.runs.Settle(ctx, "r") }},
		"a task":       {more: func(ctx context.Context, s *store) { s.runs.Put(ctx, Item[int]{Task: &Task{}}) }},
		"the end":      {more: func(_ context.Context, s *store) { s.runs.Close() }},
		"many events":  {effects: manyEvents - 1, size: 1},
		"long events":  {effects: 1, size: manyBytes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, run := newStore(), logtest.Chain{RunID: "r"}
				s.append(t, 0, run.Start("g"))
				for range c.effects {
					s.append(t, 0, run.Effect(c.size))
				}
				began := time.Now()
				if c.more != nil {
					c.more(t.Context(), s)
				}
				s.commit()
				if took := time.Since(began); took != c.after {
					t.Errorf("it is written after %s, want %s", took, c.after)
				}
			})
		})
	}
}

// TestWhoeverIsWrittenNextWaitsAgain: a caller that wanted one batch does not want the next.
func TestWhoeverIsWrittenNextWaitsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newStore(), logtest.Chain{RunID: "r"}
		s.append(t, 0, c.Start("g"))
		go s.runs.Sync(t.Context(), "r", 0)
		s.commit()
		s.append(t, 0, c.Effect(1))
		began := time.Now()
		s.commit()
		if took := time.Since(began); took != longestDelay {
			t.Errorf("the second event is written after %s, want %s", took, longestDelay)
		}
	})
}

// TestAppendAtGivenPosition appends at the position that the transaction gave.
func TestAppendAtGivenPosition(t *testing.T) {
	s, c := newStore(), logtest.Chain{RunID: "r"}
	s.append(t, 0, c.Start("g"))
	s.commit()
	epoch := s.fence("r")
	s.runs.Lock()
	s.runs.give("r", s.at["r"])
	s.runs.Unlock()
	delete(s.at, "r") // as if it had no events
	s.append(t, epoch, c.Complete())
	s.commit()
	if left := s.runs.AtWork(); len(left) != 0 {
		t.Errorf("at work on %q", left)
	}
}

// TestAWriterNoticesATransactionBetweenItsSteps continues the run in a transaction
// while Append holds it.
func TestAWriterNoticesATransactionBetweenItsSteps(t *testing.T) {
	s, c := newStore(), logtest.Chain{RunID: "r"}
	s.append(t, 0, c.Start("g"))
	s.commit()
	r, err := s.runs.hold("r", 0)
	if err != nil {
		t.Fatal(err)
	}
	at := s.at["r"]
	if err := at.Append("r", c.Effect(1)); err != nil {
		t.Fatal(err)
	}
	s.at["r"] = at
	s.runs.Lock()
	s.runs.moved("r", false)
	s.runs.Unlock()
	e := c.Effect(2)
	if err := s.runs.Put(t.Context(), Item[int]{Run: r, Event: e}); !errors.Is(err, errMoved) {
		t.Errorf("with the cursor of before: %v", err)
	}
	if err := s.runs.appendTo(t.Context(), r, e, (*eventlog.Cursor).Append); err != nil {
		t.Error(err)
	}
	s.runs.release(r)
	s.append(t, 0, c.Complete())
	if n := s.commit(); n != 2 || len(s.runs.AtWork()) != 0 {
		t.Errorf("%d events were taken, at work on %q", n, s.runs.AtWork())
	}
}

// TestEarlierWritersAreForgotten gives a run away many times. Writers that have lost
// nothing are forgotten; a writer with a queued event gets an error.
func TestEarlierWritersAreForgotten(t *testing.T) {
	s, c := newStore(), logtest.Chain{RunID: "r"}
	s.append(t, 0, c.Start("g"))
	s.commit()
	var epoch uint64
	for range 100 {
		epoch = s.fence("r")
		s.append(t, epoch, c.Effect(1))
		s.commit()
	}
	if n := len(s.runs.runs["r"]); n != 1 {
		t.Errorf("%d writers are kept", n)
	}
	old := c
	s.append(t, epoch, old.Effect(2))
	last := s.fence("r")
	s.append(t, last, c.Effect(3))
	if err := s.runs.Sync(t.Context(), "r", epoch); !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("the barrier of a writer that was fenced: %v", err)
	}
	if n := s.commit(); n != 1 || s.at["r"].Epoch != last {
		t.Errorf("%d events were taken; the run stands in epoch %d", n, s.at["r"].Epoch)
	}
}

// TestAWriterThatWasToldStays fences a writer in the middle of Append: its barriers
// must not report its lost events as durable.
func TestAWriterThatWasToldStays(t *testing.T) {
	s, c := newStore(), logtest.Chain{RunID: "r"}
	s.append(t, 0, c.Start("g"))
	s.commit()
	r, err := s.runs.hold("r", 0)
	if err != nil {
		t.Fatal(err)
	}
	s.fence("r")
	if err := s.runs.appendTo(t.Context(), r, c.Effect(1), (*eventlog.Cursor).Append); !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("Append: %v", err)
	}
	s.runs.release(r)
	s.runs.Lock()
	s.runs.moved("r", true)
	s.runs.Unlock()
	if err := s.runs.Sync(t.Context(), "r", 0); !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("Sync: %v", err)
	}
}

func TestAnEarlierWriterFindsTheFence(t *testing.T) {
	s, c := newStore(), logtest.Chain{RunID: "r"}
	s.append(t, 0, c.Start("g"))
	s.commit()
	s.fence("r")
	if err := s.runs.Append(t.Context(), "r", 0, c.Effect(1)); !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("Append: %v", err)
	}
	if n := len(s.runs.AtWork()); n != 0 {
		t.Errorf("%d runs are kept", n)
	}
}

func TestALogThatStopsTellsEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newStore(), logtest.Chain{RunID: "r"}
		s.append(t, 0, c.Start("g"))
		for range MaxQueued - 1 {
			s.append(t, 0, c.Effect(1))
		}
		told := make(map[string]error)
		tell := func(what string, do func() error) {
			go func() { err := do(); s.runs.Lock(); told[what] = err; s.runs.Unlock() }()
		}
		tell("a barrier", func() error { return s.runs.Sync(t.Context(), "r", 0) })
		e := c.Effect(1)
		tell("who waits for room", func() error { return s.runs.Append(t.Context(), "r", 0, e) })
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("before the end: %v", told)
		}
		cause := errors.New("the disk is gone")
		if n := s.runs.Queued(); n != MaxQueued {
			t.Errorf("%d items were queued", n)
		}
		if s.runs.Stop(cause, nil); s.runs.Queued() != 0 {
			t.Errorf("%d items are still queued", s.runs.Queued())
		}
		tell("a later barrier", func() error { return s.runs.Sync(t.Context(), "r", 0) })
		tell("the writer", func() error {
			if batch := s.runs.Take(nil); len(batch) != 0 {
				t.Errorf("the writer gets %d items", len(batch))
			}
			return s.runs.Failure()
		})
		synctest.Wait()
		for what, err := range told {
			if !errors.Is(err, eventlog.ErrLogStopped) || !errors.Is(err, cause) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if len(told) != 4 {
			t.Errorf("told: %v", told)
		}
	})
}

// TestALogThatStoppedStartsAgain removes the cause of the stop. A run that lost an event stays
// failed, a run without queued events is looked up again, and after a permanent cause nothing
// is tried.
func TestALogThatStoppedStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lost, idle := newStore(), logtest.Chain{RunID: "lost"}, logtest.Chain{RunID: "idle"}
		tried, started := 0, 0
		cause := errors.New("the disk is full")
		s.runs.backend.Restart = func() (func(), error) {
			tried++
			time.Sleep(restartEvery)
			return func() { started++ }, cause
		}
		s.append(t, 0, lost.Start("g"), idle.Start("g"))
		go s.runs.Sync(t.Context(), "idle", 0)
		s.commit()
		s.append(t, 0, lost.Effect(1))
		s.runs.Stop(cause, nil)
		next := idle.Complete()
		for range 3 {
			if err := s.runs.Append(t.Context(), "idle", 0, next); !errors.Is(err, eventlog.ErrLogStopped) || !errors.Is(err, cause) {
				t.Errorf("as long as the cause is there: %v", err)
			}
		}
		if cause = nil; tried != 1 {
			t.Errorf("it was tried %d times within a second", tried)
		}
		time.Sleep(restartEvery)
		s.append(t, 0, next)
		if s.commit(); started != 1 || len(s.runs.AtWork()) != 1 {
			t.Errorf("started %d times, at work on %q", started, s.runs.AtWork())
		}
		for what, err := range map[string]error{
			"a barrier":      s.runs.Sync(t.Context(), "lost", 0),
			"the next event": s.runs.Append(t.Context(), "lost", 0, lost.Complete()),
		} {
			if !errors.Is(err, eventlog.ErrLogStopped) {
				t.Errorf("%s of a run that lost an event: %v", what, err)
			}
		}
		s.runs.Stop(eventlog.ErrLogLost, nil)
		time.Sleep(restartEvery)
		if err := s.runs.Writable(); !errors.Is(err, eventlog.ErrLogLost) || tried != 2 {
			t.Errorf("after a failed sync: %v, tried %d times", err, tried)
		}
	})
}

// TestAClosedLogHandsOutWhatIsQueued and then nothing.
func TestAClosedLogHandsOutWhatIsQueued(t *testing.T) {
	s := newStore()
	s.append(t, 0, logtest.Finished("r", MaxBatch)...)
	if !s.runs.Close() || s.runs.Close() {
		t.Error("the first Close is not told from the second")
	}
	if err := s.runs.Append(t.Context(), "other", 0, event.Event{}); !errors.Is(err, eventlog.ErrLogClosed) {
		t.Errorf("Append: %v", err)
	}
	if n := s.commit(); n != MaxBatch {
		t.Errorf("a batch of %d events", n)
	}
	for s.commit() > 0 {
	}
	if at := s.at["r"]; at.Run().TerminalKind != event.KindRunCompleted {
		t.Errorf("the run stands at event %d", at.Run().LastSeq)
	}
}

// TestThoseWhoComeBackGatherInABatch makes the runs come back while the writer waits
// for them. No time passes in the meantime.
func TestThoseWhoComeBackGatherInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		const runs = 50
		for i := range runs {
			go s.begin(t)
			if i%10 == 0 {
				runtime.Gosched()
			}
		}
		s.runs.Gather(runs, time.Minute)
		if n := s.commit(); n != runs {
			t.Errorf("a batch of %d events, want %d", n, runs)
		}
	})
}

// TestGatherEndsWithoutAbsentCaller lets one of two callers come back.
func TestGatherEndsWithoutAbsentCaller(t *testing.T) {
	s := newStore()
	for _, d := range []time.Duration{0, time.Hour} {
		s.begin(t)
		s.runs.Gather(2, d)
		if n := s.commit(); n != 1 {
			t.Errorf("a batch of %d events, want 1", n)
		}
	}
}

// begin appends the first event of a new run.
func (s *store) begin(t *testing.T) {
	c := logtest.Chain{RunID: event.NewID()}
	if err := s.runs.Append(t.Context(), c.RunID, 0, c.Start("g")); err != nil {
		t.Error(err)
	}
}

// TestFailedRunsAreForgotten once their writers know, or long after: a host that loses runs for years
// does not keep them. A writer that does not know yet still gets its error.
func TestFailedRunsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		lose := func(id string) {
			c := logtest.Chain{RunID: id}
			s.append(t, 0, c.Start("g"))
			s.fence(id)
			s.runs.Lock()
			s.runs.queue.items, s.runs.queue.bytes = nil, 0 // and the batch loses it
			s.runs.widen()
			s.runs.Unlock()
		}
		for i := range MaxIdleRuns + 10 {
			id := fmt.Sprint("told/", i)
			lose(id)
			if err := s.runs.Sync(t.Context(), id, 0); !errors.Is(err, eventlog.ErrFenced) {
				t.Fatal(err)
			}
		}
		lose("untold")
		for i := range 100 {
			lose(fmt.Sprint("gone/", i))
		}
		if err := s.runs.Sync(t.Context(), "untold", 0); !errors.Is(err, eventlog.ErrFenced) {
			t.Error("a writer that has lost events takes them for durable:", err)
		}
		time.Sleep(2 * failedTime)
		lose("last")
		if n := len(s.runs.AtWork()); n > MaxIdleRuns {
			t.Errorf("%d runs are kept", n)
		}
	})
}

// TestANewRunCostsLittleBesideKeptOnes: failed runs are kept while their writers do not know, and a new
// run does not look at all of them.
func TestANewRunCostsLittleBesideKeptOnes(t *testing.T) {
	s := newStore()
	add := func(id string) *Run[int] {
		s.runs.Lock()
		defer s.runs.Unlock()
		return s.runs.remember(&Run[int]{ID: id})
	}
	for i := range MaxIdleRuns + 10 {
		add(fmt.Sprint("lost/", i)).giveUp(eventlog.ErrFenced)
	}
	next := 0
	if n := testing.AllocsPerRun(500, func() { // each run that is looked at is an allocation
		next++
		add(fmt.Sprint("new/", next)).users++
	}); n > 100 {
		t.Errorf("a new run costs %v allocations", n)
	}
}
