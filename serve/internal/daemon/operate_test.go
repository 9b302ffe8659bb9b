package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// brokenLog is a log whose module store can fail.
type brokenLog struct {
	daemon.Log
	with *atomic.Pointer[error]
}

func (b brokenLog) Module(ctx context.Context, digest canon.Hash) ([]byte, error) {
	if err := b.with.Load(); err != nil {
		return nil, *err
	}
	return b.Log.Module(ctx, digest)
}

// brokenEngine is an engine that can fail to load modules.
type brokenEngine struct {
	guest.Observable
	with *atomic.Pointer[error]
}

func (b brokenEngine) Load(ctx context.Context, wasm []byte, limits sandbox.Limits) (guest.Sandbox, error) {
	if err := b.with.Load(); err != nil {
		return nil, *err
	}
	return b.Observable.Load(ctx, wasm, limits)
}

// records are what a logger was told.
type records struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// job returns where the only job of alice stands.
func (w *world) job() (s queue.Status, ok bool) {
	w.t.Helper()
	jobs, err := w.queue.List(w.t.Context(), queue.Filter{Tenant: "alice"})
	if err != nil || len(jobs) > 1 {
		w.t.Fatal(jobs, err)
	}
	if len(jobs) == 0 {
		return s, false
	}
	return jobs[0], true
}

// until waits for something that will be so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(awaitTime); !is(); time.Sleep(time.Millisecond) { // which lets others run; nothing depends on how long
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// TestFailuresOfTheHostCostNoAttempt has a host fail at a run, which has one attempt, for
// reasons of its own. The run sleeps, each retry is logged, and once the reason is gone the
// run completes.
func TestFailuresOfTheHostCostNoAttempt(t *testing.T) {
	for _, c := range []struct {
		class string
		log   error // of the module store
		load  error // of the engine
	}{
		{"database", fmt.Errorf("read: %w", eventlog.ErrUnavailable), nil},
		{"modules", eventlog.ErrModuleNotFound, nil},
		{"workers", nil, fmt.Errorf("fork: %w", guest.ErrNoProcess)},
		{"host", errors.New("disk I/O error"), nil},
	} {
		t.Run(c.class, func(t *testing.T) {
			t.Parallel()
			var paused atomic.Bool
			var inLog, inEngine atomic.Pointer[error]
			logged := &records{}
			w := newWorld(t, func(dc *daemon.Config, q *queue.Config) {
				dc.Log, dc.Inline, dc.MaxAttempts = brokenLog{dc.Log, &inLog}, brokenEngine{dc.Inline, &inEngine}, 1
				q.Limits = func(string) queue.Limits { return queue.Limits{Paused: paused.Load()} }
				q.Logger = slog.New(slog.NewTextHandler(logged, nil))
			})
			w.do("alice", "POST", "/api/v1/modules?name=greet", "application/wasm", testModules["greet"]())
			paused.Store(true)
			id := w.accept(`{"tool":"greet"}`)
			w.stop() // so that the module is loaded again
			paused.Store(false)
			if c.log != nil {
				inLog.Store(&c.log)
			} else {
				inEngine.Store(&c.load)
			}
			w.start()
			until(t, "the host fails twice", func() bool {
				s, ok := w.job()
				if !ok {
					t.Fatalf("the run is not in the queue any more: %s", w.do("alice", "GET", "/api/v1/runs/"+id, "", nil).Body)
				}
				if s.State == queue.Sleeping && s.HostFailures == 1 {
					_ = w.queue.Retry(t.Context(), s.RunID) // or it has woken by itself
				}
				return s.State == queue.Sleeping && s.HostFailures >= 2
			})
			if s, _ := w.job(); s.Attempt != 0 || s.LastError.Class != c.class {
				t.Errorf("%+v", s)
			}
			if body := w.do("alice", "GET", "/api/v1/runs/"+id, "", nil).Body.String(); !strings.Contains(body, `"last_error":{"class":"`+c.class+`"}`) || !strings.Contains(body, `"state":"sleeping"`) {
				t.Errorf("the run says %s", body)
			}
			want := fmt.Sprintf(`msg="run will be retried" run_id=alice/%s class=%s attempt=1 max_attempts=1 after=2s error=`, id, c.class)
			until(t, "the log says so", func() bool { return strings.Contains(logged.String(), want) })
			if strings.Contains(logged.String(), "greet") {
				t.Errorf("the host's log has a name that the tenant chose: %s", logged)
			}
			inLog.Store(nil)
			inEngine.Store(nil)
			until(t, "the run completes", func() bool {
				s, waits := w.job()
				if waits && s.State == queue.Sleeping {
					_ = w.queue.Retry(t.Context(), s.RunID)
				}
				return !waits
			})
			if body := w.do("alice", "GET", "/api/v1/runs/"+id, "", nil).Body.String(); !strings.Contains(body, `"status":"completed"`) || strings.Contains(body, `"job"`) {
				t.Errorf("the run says %s", body)
			}
		})
	}
}

// TestAHostWithAStaleKeyClaimsNothing changes the master key while a host serves and runs
// wait. It fails at the first ones that it claims, which costs them nothing, and claims no
// more. One that has the new key completes all.
func TestAHostWithAStaleKeyClaimsNothing(t *testing.T) {
	t.Parallel()
	logged := &records{}
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		c.MaxAttempts, c.Logger = 1, slog.New(slog.NewTextHandler(logged, nil))
		q.Poll = 5 * time.Millisecond
	})
	for _, name := range []string{"spin", "greet"} {
		w.do("alice", "POST", "/api/v1/modules?name="+name, "application/wasm", testModules[name]())
	}
	var spinning, waiting []string
	for range 4 { // as many as alice may have at once
		spinning = append(spinning, w.accept(`{"tool":"spin"}`))
	}
	for range 12 {
		waiting = append(waiting, w.accept(`{"tool":"greet"}`))
	}
	next := tenant.NewMasterKey()
	if _, err := w.tenants.Rewrap(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	other, err := tenant.Open(t.Context(), w.log, tenant.Options{Masters: []tenant.MasterKey{next}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.SetPolicy(t.Context(), "alice", "version: \"1.0\"\n", false); err != nil { // so that the host reads what alice has
		t.Fatal(err)
	}
	for _, id := range spinning {
		if err := w.queue.Cancel(t.Context(), "alice/"+id); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the host finds that its key is stale", func() bool { return strings.Contains(logged.String(), `msg="not ready" check=keys`) })
	claimed := 0
	until(t, "no run is at work", func() bool {
		jobs, err := w.queue.List(t.Context(), queue.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		claimed = 0
		for _, s := range jobs {
			if s.Attempt > 1 || s.State != queue.Running && s.State != queue.Cancelling && s.Attempt > 0 {
				t.Fatalf("an attempt is spent: %+v", s)
			}
			if s.State == queue.Running || s.State == queue.Cancelling {
				return false
			}
			if s.HostFailures > 0 {
				claimed++
			}
		}
		return true
	})
	if claimed == 0 || claimed > 10 {
		t.Errorf("%d runs were claimed, of %d that wait", claimed, len(waiting))
	}
	w.stop()
	w.master = next
	w.start()
	for _, id := range waiting {
		if status := w.awaitEnd(id); status != "completed" {
			t.Errorf("run %s: %s", id, status)
		}
	}
}

// TestASuspendedTenantDoesNotRun suspends a tenant one of whose runs would go on for ever.
// It stops, and goes on when the tenant is resumed.
func TestASuspendedTenantDoesNotRun(t *testing.T) {
	t.Parallel()
	var directory *daemon.Directory
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		var err error
		directory, err = daemon.NewDirectory(t.Context(), c.Tenants, c.Limits, c.Logger)
		if err != nil {
			t.Fatal(err)
		}
		go directory.Keep(t.Context())
		c.Directory, q.Limits, q.Lease = directory, directory.Limits, 300*time.Millisecond // at a third of which limits are looked at
	})
	w.do("alice", "POST", "/api/v1/modules?name=spin", "application/wasm", testModules["spin"]())
	id := w.accept(`{"tool":"spin"}`)
	w.awaitMetrics(`starling_runs_in_flight 1`)
	if err := errors.Join(w.tenants.Suspend(t.Context(), "alice"), directory.Read(t.Context())); err != nil { // before the fuel of the run is used up
		t.Fatal(err)
	}
	w.awaitMetrics(`starling_runs_in_flight 0`)
	until(t, "the run waits again", func() bool { s, ok := w.job(); return ok && s.State == queue.Waiting })
	if s, _ := w.job(); s.Attempt != 0 {
		t.Errorf("%+v", s)
	}
	if err := w.tenants.Resume(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	w.awaitMetrics(`starling_runs_in_flight 1`)
	if got := w.do("alice", "POST", "/api/v1/runs/"+id+"/cancel", "", nil); got.Code != http.StatusAccepted {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	w.awaitEnd(id)
}
