package desk

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/sqlitelog"
	"github.com/starling-host/starling/host/queue"
)

// woken returns two desks of one database whose workers the test wakes. The first one is
// at work until the test ends, and polls never.
func woken(t *testing.T, h queue.Handler) (d, other *Desk) {
	t.Helper()
	log, err := sqlitelog.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), sqlitelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	cfg, err := queue.Config{Poll: time.Hour, Lease: time.Hour, Grace: -1}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	var desks [2]*Desk
	for i := range desks {
		hooks := Hooks{Start: func(context.Context) (func(), error) { return func() {}, nil }}
		if desks[i], err = New(t.Context(), log, cfg, hooks); err != nil {
			t.Fatal(err)
		}
	}
	d, other = desks[0], desks[1]
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- d.Work(ctx, h) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	until(d, d.handsOut)
	return d, other
}

// until waits until something is so, asking under the desk's lock.
func until(d *Desk, is func() bool) {
	for {
		d.mu.Lock()
		done := is()
		d.mu.Unlock()
		if done {
			return
		}
		runtime.Gosched()
	}
}

// TestATurnLooksAgainWhenAnotherFails has a turn share its transaction with a caller whose
// change fails. There is a job for the turn, and nobody comes for it again.
func TestATurnLooksAgainWhenAnotherFails(t *testing.T) {
	worked := make(chan string, 1)
	d, _ := woken(t, func(_ context.Context, l queue.Lease) error {
		worked <- l.RunID
		return nil
	})
	hold, held, mistake := make(chan bool), make(chan bool), errors.New("a mistake")
	go d.EnqueueWith(t.Context(), queue.Job{RunID: "t/1"}, func(eventlog.Tx) error {
		held <- true
		<-hold
		return nil
	})
	<-held
	failed, turned := make(chan error, 1), make(chan error, 1)
	go func() {
		failed <- d.EnqueueWith(t.Context(), queue.Job{RunID: "t/2"}, func(eventlog.Tx) error { return mistake })
	}()
	go func() { turned <- d.Turn(t.Context(), 1) }()
	until(d, func() bool { return len(d.ops) == 1 && len(d.turns) == 1 })
	hold <- true
	if err := <-failed; err != mistake {
		t.Errorf("the mistake is %v", err)
	}
	if err := <-turned; err != nil || len(worked) != 1 {
		t.Errorf("the turn has worked %d jobs: %v", len(worked), err)
	}
}

// TestACancellationEndsTheRunThatItIsFor has two jobs at work when somebody says that one
// has been cancelled in another process, and not which.
func TestACancellationEndsTheRunThatItIsFor(t *testing.T) {
	contexts := make(chan context.Context, 2)
	runs := make(chan string, 2)
	d, other := woken(t, func(ctx context.Context, l queue.Lease) error {
		contexts <- ctx
		runs <- l.RunID
		<-ctx.Done()
		return nil
	})
	at := make(map[string]context.Context)
	for _, run := range []string{"t/1", "t/2"} {
		if err := d.Enqueue(t.Context(), queue.Job{RunID: run}); err != nil {
			t.Fatal(err)
		}
		go d.Turn(t.Context(), 1)
		at[<-runs] = <-contexts
	}
	if err := other.Cancel(t.Context(), "t/2"); err != nil {
		t.Fatal(err)
	}
	d.Heed(t.Context())
	if cause := context.Cause(at["t/2"]); cause != queue.ErrCancelled || at["t/1"].Err() != nil {
		t.Errorf("the one that was cancelled ended with %v, the other one with %v", cause, context.Cause(at["t/1"]))
	}
}

// TestTheEndOfAJobSharesATransaction with the next job that is enqueued, or waits for
// nothing after a while.
func TestTheEndOfAJobSharesATransaction(t *testing.T) {
	stop := make(chan context.CancelFunc, 1)
	d, _ := woken(t, func(context.Context, queue.Lease) error {
		(<-stop)()
		return nil
	})
	until(d, func() bool { d.lingers = true; return true }) // so that no timer is started
	work := func() {
		ctx, cancel := context.WithCancel(t.Context())
		stop <- cancel
		if err := d.Turn(ctx, 1); err != nil {
			t.Fatal(err)
		}
		until(d, func() bool { return len(d.ops) == 1 && d.ops[0].later && !d.flushing })
	}
	count := func(want queue.Stats) {
		t.Helper()
		s, err := d.Stats(t.Context())
		if s.Oldest = want.Oldest; err != nil || s != want {
			t.Errorf("%+v, want %+v: %v", s, want, err)
		}
	}
	for _, run := range []string{"t/1", "t/2"} {
		if err := d.Enqueue(t.Context(), queue.Job{RunID: run}); err != nil {
			t.Fatal(err)
		}
		count(queue.Stats{Ready: 1})
		work()
		count(queue.Stats{Running: 1})
	}
	d.hurry()
	until(d, func() bool { return len(d.shift.tasks) == 0 })
	count(queue.Stats{})
}

// TestTheEndOfAJobIsNotPutOffWhenJobsWait: it may be what they wait for.
func TestTheEndOfAJobIsNotPutOffWhenJobsWait(t *testing.T) {
	stop := make(chan context.CancelFunc, 1)
	d, _ := woken(t, func(context.Context, queue.Lease) error {
		(<-stop)()
		return nil
	})
	until(d, func() bool { d.lingers = true; return true })
	for _, run := range []string{"t/1", "t/2"} {
		if err := d.Enqueue(t.Context(), queue.Job{RunID: run}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop <- cancel
	if err := d.Turn(ctx, 1); err != nil {
		t.Fatal(err)
	}
	until(d, func() bool { return len(d.shift.tasks) == 0 })
}
