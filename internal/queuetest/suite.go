package queuetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/serve/queue"
)

// Host is one process's view of a database: a log, which is an eventlog.Store,
// and the queue in it.
type Host struct {
	*queue.Queue
	Log eventlog.EventLog
}

// Database opens one database for one more host. What it opens is closed when the
// test ends.
type Database func(t testing.TB, cfg queue.Config) Host

// at returns the database at an address.
func (open Opener) at(address string) Database {
	return func(t testing.TB, cfg queue.Config) Host {
		t.Helper()
		h, err := open(t.Context(), address, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Log.Close() })
		return h
	}
}

// Run tests a queue. Create makes an empty database and returns its address.
func Run(t *testing.T, open Opener, create func(testing.TB) string) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Database)
	}{
		{"a job is there once Enqueue has returned, with the run's first events", durable},
		{"what cannot be enqueued leaves nothing behind", refused},
		{"a mistake of one caller does not harm the others", neighbours},
		{"three hosts hand every job out once", once},
		{"a handler that outlives its lease records nothing", zombie},
		{"who comes back under a name takes its jobs over at once", successor},
		{"a run that its hosts die of is given up, and none that was beside it", deaths},
		{"a run does not begin on a host that has lost it", beginLate},
		{"a snooze spends no attempt", snoozes},
		{"a failure is tried again later and later, and in the end the run is to be ended", retries},
		{"a handler that panics has failed", panics},
		{"a failure of the host spends no attempt", hostFailures},
		{"a host that is not ready claims nothing", notReady},
		{"discard and cancel are final", final},
		{"a job that waits is handed out as cancelled", cancelWaiting},
		{"a job that runs is cancelled", cancelRunning},
		{"a job that runs on another host is cancelled", cancelElsewhere},
		{"there is nothing to cancel before and after", cancelNothing},
		{"greater priority goes first among a tenant's jobs", priorities},
		{"a tenant that floods the queue does not delay another", fairness},
		{"idle time is not saved up", latecomer},
		{"tenants share the workers by weight", weights},
		{"no more jobs of a tenant run than it may", caps},
		{"the last handlers are for tenants of which nothing runs", reserve},
		{"a tenant that is paused waits", paused},
		{"a tenant that is paused does not run", pausedWhileRunning},
		{"an operator sees where each job stands", listing},
		{"a job that sleeps is handed out when an operator says so", retryNow},
		{"a host that drains claims nothing and finishes what it has", draining},
		{"a host that died is listed until it is replaced", goneHosts},
		{"what runs have used is counted once, by tenant and day", usage},
		{"a full queue says so, and for how long", full},
		{"positions and counts", positions},
		{"a worker that stops finishes what it has begun", shutdown},
		{"a worker that is made to stop gives back what it has", shutdownStuck},
		{"a worker that is made to stop does not wait for ever", shutdownDeaf},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, open.at(create(t)))
		})
	}
}

// quick is a configuration whose hosts notice each other soon.
func quick() queue.Config { return queue.Config{Workers: 8, Poll: 5 * time.Millisecond} }

// First returns the first event of a run. [End] knows how to go on from it.
func First(runID string) event.Event {
	c := logtest.Chain{RunID: runID}
	return c.Start("goal")
}

// Append stores the first events of a run in the transaction that enqueues its job.
func Append(runID string, events ...event.Event) func(eventlog.Tx) error {
	return func(tx eventlog.Tx) error {
		for _, ev := range events {
			if err := tx.Append(runID, ev); err != nil {
				return err
			}
		}
		return nil
	}
}

// End appends the last event of a run that began with [First] and is followed by
// effects of one byte, under the epoch of the lease. A run that has ended is left
// alone.
func End(ctx context.Context, log eventlog.EventLog, l queue.Lease) error {
	evs, err := log.Read(ctx, l.RunID)
	if err != nil || evs[len(evs)-1].Kind.Terminal() {
		return err
	}
	c := logtest.Chain{RunID: l.RunID}
	c.Start("goal")
	for range evs[1:] {
		c.Effect(1)
	}
	mine := log.(eventlog.Store).Fenced(l.RunID, l.Epoch)
	if err := mine.Append(ctx, l.RunID, c.Complete()); err != nil {
		return err
	}
	return mine.Sync(ctx, l.RunID)
}

// ender returns a handler that ends the runs of a host and tells of each lease.
func ender(h Host, told chan<- queue.Lease) queue.Handler {
	return func(ctx context.Context, l queue.Lease) error {
		err := End(ctx, h.Log, l)
		told <- l
		return err
	}
}

// enqueue adds jobs, each with the first event of its run.
func enqueue(t testing.TB, h Host, jobs ...queue.Job) {
	t.Helper()
	for _, j := range jobs {
		if err := h.Enqueue(t.Context(), j, Append(j.RunID, First(j.RunID))); err != nil {
			t.Fatal(err)
		}
	}
}

// series returns n jobs of a tenant.
func series(tenant string, n int) []queue.Job {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i] = queue.Job{RunID: fmt.Sprintf("%s/%04d", tenant, i), Tenant: tenant}
	}
	return jobs
}

// work begins to work and returns what ends it, which also happens when the test
// ends.
func work(t testing.TB, h Host, handler queue.Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Work(ctx, handler) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// waitTime bounds the wait for something that ought to happen: a backlog may have to be
// worked off on a disk that takes its time.
const waitTime = 2 * time.Minute

// receive waits for the next value.
func receive[T any](t testing.TB, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(waitTime):
		t.Fatal("nothing came")
	}
	return v
}

// await waits for the channel to be closed, and no longer than the test runs.
func await(t testing.TB, wake <-chan bool) {
	select {
	case <-wake:
	case <-t.Context().Done():
	}
}

// absent wants a job to leave the queue.
func absent(t testing.TB, h Host, runID string) {
	t.Helper()
	eventually(t, func() bool {
		_, err := h.Find(t.Context(), runID)
		return errors.Is(err, queue.ErrNotFound)
	})
}

// find returns where a job stands.
func find(t testing.TB, h Host, runID string) queue.Status {
	t.Helper()
	s, err := h.Find(t.Context(), runID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sleeps wants a job to fall asleep, and returns where it stands then.
func sleeps(t testing.TB, h Host, runID string) (s queue.Status) {
	t.Helper()
	eventually(t, func() bool {
		s = find(t, h, runID)
		return s.State == queue.Sleeping
	})
	return s
}

// ended wants runs that have ended and are in order, in a queue without jobs.
func ended(t testing.TB, h Host, jobs ...queue.Job) {
	t.Helper()
	for _, j := range jobs {
		absent(t, h, j.RunID)
		if r, err := eventlog.CheckRun(t.Context(), h.Log, j.RunID, eventlog.CheckOptions{Strict: true}); err != nil || r.Terminal != event.KindRunCompleted {
			t.Errorf("run %s: %+v, %v", j.RunID, r, err)
		}
	}
}
