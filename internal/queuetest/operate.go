package queuetest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/queue"
)

// errStale is a failure of a host's own.
var errStale = &queue.HostError{Class: "keys", Err: errors.New("a stale key")}

func hostFailures(t *testing.T, db Database) {
	clock := NewClock()
	h := db(t, queue.Config{Clock: clock, Lease: forever})
	enqueue(t, h, queue.Job{RunID: "t/1", MaxAttempts: 1})
	x := converse(t, h)
	for i, delay := range []time.Duration{1, 2, 4, 0} {
		clock.AdvanceUntil(t, time.Second, func() bool { return len(x.told) > 0 })
		l := receive(t, x.told)
		if l.Attempt != 1 || l.HostFailures != i || l.Exhausted || i > 0 && (l.Class != "keys" || l.Failure != "a stale key") {
			t.Errorf("lease %d is %+v", i, l)
		}
		if delay == 0 {
			break
		}
		now := clock.Now()
		x.verdict <- errStale
		if s := sleeps(t, h, "t/1"); !s.Until.Equal(now.Add(delay*time.Second)) || s.Attempt != 0 {
			t.Errorf("after %v: %+v", s.Until.Sub(now), s)
		}
	}
	x.verdict <- nil
	absent(t, h, "t/1")
}

// notReady has a host find out at a job that it is not ready. What is enqueued from then
// on, which a transaction would hand out at once, waits until it is.
func notReady(t *testing.T, db Database) {
	var wrong atomic.Bool
	cfg := quick()
	cfg.Ready = func(context.Context) error {
		if wrong.Load() {
			return errStale
		}
		return nil
	}
	h := db(t, cfg)
	told, verdict := make(chan queue.Lease, 3), make(chan error)
	work(t, h, verdicts(t, told, verdict))
	enqueue(t, h, queue.Job{RunID: "first"})
	receive(t, told)
	wrong.Store(true)
	verdict <- errStale
	if s := sleeps(t, h, "first"); s.LastError.Class != "keys" || s.Attempt != 0 {
		t.Errorf("%+v", s)
	}
	enqueue(t, h, queue.Job{RunID: "second"})
	if s := find(t, h, "second"); s.State != queue.Waiting {
		t.Errorf("a host that is not ready has claimed %+v", s)
	}
	wrong.Store(false)
	for range 2 {
		receive(t, told)
		verdict <- nil
	}
	absent(t, h, "first")
	absent(t, h, "second")
}

func pausedWhileRunning(t *testing.T, db Database) {
	var pause atomic.Bool
	cfg, logged := quick(), &text{}
	cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
	cfg.Limits = func(tenant string) queue.Limits { return queue.Limits{Paused: pause.Load() && tenant == "p"} }
	h := db(t, cfg)
	began, causes := make(chan string, 2), make(chan error, 2)
	work(t, h, func(ctx context.Context, l queue.Lease) error {
		began <- l.RunID
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	enqueue(t, h, queue.Job{RunID: "p/1", Tenant: "p"}, queue.Job{RunID: "q/1", Tenant: "q"})
	receive(t, began)
	receive(t, began)
	pause.Store(true)
	if cause := receive(t, causes); cause != queue.ErrStopping {
		t.Errorf("the context ended with %v", cause)
	}
	eventually(t, func() bool { return find(t, h, "p/1").State == queue.Waiting })
	if s := find(t, h, "p/1"); s.Attempt != 0 {
		t.Errorf("%+v", s)
	}
	if s := find(t, h, "q/1"); s.State != queue.Running {
		t.Errorf("the other tenant's: %+v", s)
	}
	eventually(t, func() bool {
		return strings.Contains(logged.String(), `msg="run returned to the queue" run_id=p/1`)
	})
	cancel(t, h, "p/1") // ends it all the same
	if run := receive(t, began); run != "p/1" {
		t.Errorf("%s was handed out", run)
	}
}

func listing(t *testing.T, db Database) {
	cfg := quick()
	cfg.Label, cfg.Version = "one", "v1"
	h := db(t, cfg)
	reader := db(t, queue.Config{})
	x := converse(t, h)
	before := time.Now().Add(-time.Hour) // of a clock that may not be this machine's
	enqueue(t, h, queue.Job{RunID: "a/sleeps", Tenant: "a", Payload: []byte("large")})
	receive(t, x.told)
	x.verdict <- tool.ToolSnooze(time.Hour, errors.New("busy"))
	sleeps(t, h, "a/sleeps")
	enqueue(t, h, queue.Job{RunID: "b/runs", Tenant: "b"})
	receive(t, x.told)
	if err := h.Drain(t.Context(), "one", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, h.Draining)
	enqueue(t, h, queue.Job{RunID: "a/waits", Tenant: "a"}, queue.Job{RunID: "b/waits", Tenant: "b"})
	list := func(f queue.Filter) (runs []string, all []queue.Status) {
		t.Helper()
		all, err := reader.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			runs = append(runs, s.RunID)
		}
		return runs, all
	}
	runs, all := list(queue.Filter{})
	if !slices.Equal(runs, []string{"a/sleeps", "b/runs", "a/waits", "b/waits"}) {
		t.Fatal(runs)
	}
	if s := all[0]; s.State != queue.Sleeping || s.LastError.Class != "snooze" || s.LastError.Message != "busy" || s.Until.Before(before.Add(time.Hour)) {
		t.Errorf("%+v", s)
	}
	if s := all[1]; s.State != queue.Running || s.Host != "one" || s.Since.Before(before) || s.Attempt != 1 || s.MaxAttempts != queue.DefaultMaxAttempts {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct {
		f    queue.Filter
		want []string
	}{
		{queue.Filter{Tenant: "a"}, []string{"a/sleeps", "a/waits"}},
		{queue.Filter{State: queue.Waiting}, []string{"a/waits", "b/waits"}},
		{queue.Filter{State: queue.Running, Tenant: "b"}, []string{"b/runs"}},
		{queue.Filter{Limit: 2}, []string{"a/sleeps", "b/runs"}},
		{queue.Filter{After: all[1].Number, Limit: 2}, []string{"a/waits", "b/waits"}},
	} {
		if runs, _ := list(c.f); !slices.Equal(runs, c.want) {
			t.Errorf("%+v: %v", c.f, runs)
		}
	}
	loads, err := reader.Loads(t.Context())
	if a, b := loads["a"], loads["b"]; err != nil || len(loads) != 2 || a.Waiting != 1 || a.Sleeping != 1 || b.Waiting != 1 || b.Running != 1 || !a.Oldest.Equal(all[0].Enqueued) {
		t.Errorf("%+v, %v", loads, err)
	}
	x.verdict <- nil
}

func retryNow(t *testing.T, db Database) {
	h := db(t, quick())
	operator := db(t, queue.Config{})
	x := converse(t, h)
	enqueue(t, h, queue.Job{RunID: "t/1"})
	receive(t, x.told)
	if err := operator.Retry(t.Context(), "t/1"); err != queue.ErrNotSleeping {
		t.Errorf("of a job that runs: %v", err)
	}
	if err := operator.Retry(t.Context(), "t/2"); err != queue.ErrNotFound {
		t.Errorf("of no job: %v", err)
	}
	x.verdict <- tool.ToolSnooze(24*time.Hour, errors.New("busy"))
	sleeps(t, h, "t/1")
	if err := operator.Retry(t.Context(), "t/1"); err != nil {
		t.Fatal(err)
	}
	if l := receive(t, x.told); l.Snoozes != 1 || l.Class != "snooze" {
		t.Errorf("%+v", l)
	}
	x.verdict <- nil
}

// draining has a host claim nothing for a while. What is enqueued through it meanwhile, a
// transaction would hand out at once.
func draining(t *testing.T, db Database) {
	cfg := quick()
	cfg.Label, cfg.Version = "one", "v1"
	h := db(t, cfg)
	operator := db(t, queue.Config{})
	x := converse(t, h)
	enqueue(t, h, queue.Job{RunID: "t/1"})
	receive(t, x.told)
	drain := func(name string, on bool) error { return operator.Drain(t.Context(), name, on) }
	if err := drain("two", true); err != queue.ErrNoHost {
		t.Errorf("a host that there is not: %v", err)
	}
	if err := drain("one", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, h.Draining)
	host := func() queue.Host {
		t.Helper()
		hosts, err := operator.Hosts(t.Context())
		if err != nil || len(hosts) != 1 {
			t.Fatal(hosts, err)
		}
		return hosts[0]
	}
	if o := host(); o.Name != "one" || o.Version != "v1" || o.State != queue.HostDraining || o.Running != 1 || o.Began.IsZero() || o.Seen.Before(o.Began) || !o.Gone.IsZero() {
		t.Errorf("%+v", o)
	}
	enqueue(t, h, queue.Job{RunID: "t/2"})
	x.verdict <- nil
	absent(t, h, "t/1")
	if s := find(t, h, "t/2"); s.State != queue.Waiting {
		t.Errorf("a host that drains has claimed %+v", s)
	}
	if o := host(); o.Running != 0 {
		t.Errorf("%+v", o)
	}
	if err := drain(host().ID, false); err != nil {
		t.Fatal(err)
	}
	receive(t, x.told)
	x.verdict <- nil
}

func goneHosts(t *testing.T, db Database) {
	still, clock := NewClock(), NewClock()
	a := db(t, queue.Config{Label: "one", Version: "v1", Clock: still, Workers: 1}) // so that it does not come back for more
	logged := &text{}
	logger := slog.New(slog.NewTextHandler(logged, nil))
	b := db(t, queue.Config{Label: "two", Clock: clock, Lease: forever, Logger: logger})
	told := make(chan queue.Lease, 2)
	work(t, a, func(_ context.Context, l queue.Lease) error {
		told <- l
		<-t.Context().Done()
		return nil
	})
	enqueue(t, a, queue.Job{RunID: "t/1"})
	receive(t, told)
	hosts := func() (living, gone []queue.Host) {
		t.Helper()
		all, err := b.Hosts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			if h.Gone.IsZero() {
				living = append(living, h)
			} else {
				gone = append(gone, h)
			}
		}
		return living, gone
	}
	clock.Advance(time.Hour)
	if living, _ := hosts(); len(living) != 1 || living[0].State != queue.HostSilent {
		t.Errorf("a host whose lease has ended: %+v", living)
	}
	work(t, b, ender(b, told))
	// A process looks for dead ones while it enters itself, so either can come first.
	clock.AdvanceUntil(t, time.Second, func() bool { living, gone := hosts(); return len(living) > 0 && len(gone) > 0 })
	const line = `msg="a host is gone: its jobs are handed out again" host=`
	eventually(t, func() bool { return strings.Contains(logged.String(), line+"one") })
	living, gone := hosts()
	if len(living) != 1 || living[0].Name != "two" || len(gone) != 1 || gone[0].Name != "one" || gone[0].Version != "v1" || !gone[0].Seen.Equal(still.Now()) {
		t.Errorf("living: %+v, gone: %+v", living, gone)
	}
	again := db(t, queue.Config{Host: "one", Clock: clock, Lease: forever})
	work(t, again, ender(again, told))
	eventually(t, func() bool { living, gone := hosts(); return len(living) == 2 && len(gone) == 0 })
	replacing := db(t, queue.Config{Host: "one", Label: "replaced", Clock: clock, Lease: forever, Logger: logger})
	work(t, replacing, ender(replacing, told))
	eventually(t, func() bool { return strings.Count(logged.String(), line+"one") == 2 })
}

// text is what a logger has written.
type text struct {
	mu  sync.Mutex
	all strings.Builder
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}
