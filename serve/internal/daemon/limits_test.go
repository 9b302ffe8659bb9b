package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// syncBuffer is a buffer that several goroutines write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// refusedForNow checks that an answer is a problem of a kind that is over after a time.
func refusedForNow(t *testing.T, answer interface {
	Result() *http.Response
}, status int, kind string) {
	t.Helper()
	r := answer.Result()
	var p struct {
		Type string `json:"type"`
	}
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || r.StatusCode != status || !strings.HasSuffix(p.Type, "#"+kind) {
		t.Errorf("got %d %s (%v), want %d %s", r.StatusCode, p.Type, err, status, kind)
	}
	if after, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || after < 1 {
		t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
	}
}

// TestRequestsPerSecond asks more often than once in a second, which on a slow machine may
// need more than two requests.
func TestRequestsPerSecond(t *testing.T) {
	w := newWorld(t, nil)
	w.addTenant("carol", tenant.Limits{RequestsPerSecond: 1})
	got := w.do("carol", "GET", "/api/v1/runs", "", nil)
	if got.Code != http.StatusOK {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	for tries := 0; got.Code == http.StatusOK && tries < 20; tries++ {
		got = w.do("carol", "GET", "/api/v1/runs", "", nil)
	}
	refusedForNow(t, got, http.StatusTooManyRequests, "rate-limited")
	if got := w.do("alice", "GET", "/api/v1/runs", "", nil); got.Code != http.StatusOK {
		t.Errorf("alice is refused as well: %s", got.Body)
	}
}

func TestFullQueues(t *testing.T) {
	w := newWorld(t, func(_ *daemon.Config, q *queue.Config) {
		q.MaxWaiting = 2
		q.Limits = func(string) queue.Limits { return queue.Limits{Paused: true, MaxWaiting: 1} }
	})
	ask := func(who string) *http.Response {
		return w.do(who, "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Guess."}`)).Result()
	}
	if got := ask("alice"); got.StatusCode != http.StatusAccepted {
		t.Fatal(got.Status)
	}
	refusedForNow(t, result{ask("alice")}, http.StatusTooManyRequests, "too-many-waiting")
	if got := ask("bob"); got.StatusCode != http.StatusAccepted {
		t.Fatal(got.Status)
	}
	w.addTenant("carol", tenant.Limits{})
	refusedForNow(t, result{ask("carol")}, http.StatusServiceUnavailable, "queue-full")
}

type result struct{ r *http.Response }

func (r result) Result() *http.Response { return r.r }

// TestAcceptedRunsSurviveAStop stops the daemon while a run that never ends by
// itself is at work and others wait. The next daemon has all of them, and none has
// been cancelled by the stop.
func TestAcceptedRunsSurviveAStop(t *testing.T) {
	w := newWorld(t, func(_ *daemon.Config, q *queue.Config) {
		q.Grace = -1
		q.Limits = func(string) queue.Limits { return queue.Limits{MaxRunning: 1} }
	})
	if got := w.do("alice", "POST", "/api/v1/modules?name=spin", "application/wasm", testModules["spin"]()); got.Code != http.StatusCreated {
		t.Fatal(got.Body)
	}
	ids := []string{w.accept(`{"tool":"spin"}`), w.accept(`{"goal":"Guess."}`)}
	w.awaitEvents(ids[0], 2) // it spins
	w.stop()
	w.start()
	if got := w.do("alice", "POST", "/api/v1/runs/"+ids[0]+"/cancel", "", nil); got.Code != http.StatusAccepted {
		t.Errorf("the run that was at work: %d %s", got.Code, got.Body)
	}
	for i, want := range []string{"cancelled", "completed"} {
		if got := w.awaitEnd(ids[i]); got != want {
			t.Errorf("run %d is %s, want %s", i, got, want)
		}
	}
	for _, id := range ids {
		got := w.do("alice", "POST", "/api/v1/runs/"+id+"/replay", "", nil)
		if !strings.Contains(got.Body.String(), `"verdict":"identical"`) {
			t.Errorf("replay: %s", got.Body)
		}
	}
}

// accept has a run made for alice and returns its id.
func (w *world) accept(body string) string {
	w.t.Helper()
	answer := w.do("alice", "POST", "/api/v1/runs", "application/json", []byte(body))
	var run struct {
		ID string `json:"run_id"`
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &run); err != nil || answer.Code != http.StatusAccepted {
		w.t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	return run.ID
}

// viewOfAlice returns what alice sees in the web view.
func (w *world) viewOfAlice() eventview.View {
	w.t.Helper()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+w.keys["alice"])
	alice, err := w.daemon.Authenticate(r)
	if err != nil {
		w.t.Fatal(err)
	}
	view, err := w.daemon.View(alice)
	if err != nil {
		w.t.Fatal(err)
	}
	return view
}

// calls counts the functions that a call enters.
type calls struct{ entered, fuel uint64 }

func (c *calls) Enter(uint32, uint64)                  { c.entered++ }
func (c *calls) EnterImport(string, uint64)            {}
func (c *calls) Line(int, string, string, int, uint64) {}
func (c *calls) Leave(uint64)                          {}
func (c *calls) End(fuel uint64)                       { c.fuel = fuel }

// TestRunsAreExecutedForTheWebView profiles a run of a tenant, and cancels an execution that does not
// end.
func TestRunsAreExecutedForTheWebView(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"greet", "spin"} {
		if got := w.do("alice", "POST", "/api/v1/modules?name="+name, "application/wasm", testModules[name]()); got.Code != http.StatusCreated {
			t.Fatal(got.Body)
		}
	}
	ended, open := w.accept(`{"tool":"greet"}`), w.accept(`{"tool":"spin"}`)
	if got := w.awaitEnd(ended); got != "completed" {
		t.Fatal(got)
	}
	w.awaitEvents(open, 2)
	view := w.viewOfAlice()
	var c calls
	x, err := view.Execute(t.Context(), eventview.Execution{Observers: sandbox.Observers{Profile: func(string) sandbox.Profiler { return &c }}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	verdict, err := x.Replay(t.Context(), ended)
	if err != nil || verdict.Divergence != nil || c.entered == 0 || c.fuel == 0 {
		t.Errorf("%+v, %v, %+v", verdict, err, c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if verdict, err := x.Replay(ctx, open); !errors.Is(err, context.Canceled) && !verdict.Open {
		t.Errorf("cancelled: %+v, %v", verdict, err)
	}
	if _, err := view.Execute(t.Context(), eventview.Execution{Module: "../x"}); !errors.Is(err, eventlog.ErrModuleNotFound) {
		t.Errorf("a module without a digest: %v", err)
	}
}

// awaitEvents returns when a run of alice's has that many events.
func (w *world) awaitEvents(id string, n uint64) {
	w.t.Helper()
	view := w.viewOfAlice()
	events, err := view.Stream(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	for ev := range events {
		if ev.Seq >= n {
			return
		}
	}
	w.t.Fatalf("run %s has ended", id)
}

// awaitEnd returns the state in which a run of alice's ends.
func (w *world) awaitEnd(id string) string {
	w.t.Helper()
	answer := w.do("alice", "GET", "/api/v1/runs/"+id+"/stream", "", nil)
	if !strings.Contains(answer.Body.String(), "event: done") {
		w.t.Fatalf("the stream ended: %s", answer.Body)
	}
	var run struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(w.do("alice", "GET", "/api/v1/runs/"+id, "", nil).Body.Bytes(), &run); err != nil {
		w.t.Fatal(err)
	}
	return run.Status
}

// TestAGoalNeedsAnAgent: who leaves the agent out is told what the host has instead.
func TestAGoalNeedsAnAgent(t *testing.T) {
	for n, want := range map[int]string{0: "the host has no agents", 2: "the host has 2 agents: name one"} {
		w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
			c.Agents = nil
			for i := range n {
				a := gambler()
				a.Name += strconv.Itoa(i)
				c.Agents = append(c.Agents, a)
			}
		})
		answer := w.do("alice", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Guess."}`))
		if body := answer.Body.String(); answer.Code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%d agents: %d %s", n, answer.Code, body)
		}
	}
}

// TestRunsOfAnErasedTenantEnd erases a tenant of which one run was begun by a host that
// has stopped, and another one waits, while it is suspended.
func TestRunsOfAnErasedTenantEnd(t *testing.T) {
	var directory *daemon.Directory
	w := newWorld(t, func(_ *daemon.Config, q *queue.Config) {
		q.Grace, q.Lease = -1, 300*time.Millisecond // after a third of which limits are looked at
		q.Limits = func(tenant string) queue.Limits {
			if directory == nil {
				return queue.Limits{MaxRunning: 1}
			}
			return directory.Limits(tenant)
		}
	})
	if got := w.do("alice", "POST", "/api/v1/modules?name=spin", "application/wasm", testModules["spin"]()); got.Code != http.StatusCreated {
		t.Fatal(got.Body)
	}
	ids := []string{w.accept(`{"tool":"spin"}`), w.accept(`{"goal":"Guess."}`)}
	w.awaitEvents(ids[0], 2) // it spins
	w.stop()
	log, err := openLog(t.Context(), w.path)
	if err != nil {
		t.Fatal(err)
	}
	tenants, err := tenant.Open(t.Context(), log, tenant.Options{})
	if err == nil {
		err = tenants.Suspend(t.Context(), "alice")
	}
	if err == nil {
		_, err = tenants.Erase(t.Context(), "alice", nil)
	}
	if err == nil {
		directory, err = daemon.NewDirectory(t.Context(), tenants, tenant.Limits{}, slog.New(slog.DiscardHandler))
	}
	if err = errors.Join(err, log.Close()); err != nil {
		t.Fatal(err)
	}
	w.start()
	for i, events := range []uint64{4, 2} {
		r := w.awaitSealedEnd("alice/" + ids[i])
		if r.Terminal != event.KindRunCancelled || r.Events != events {
			t.Errorf("run %d: %+v", i, r)
		}
	}
}

// awaitSealedEnd waits until a run has ended, and looks at it as somebody without a key.
func (w *world) awaitSealedEnd(runID string) eventlog.Report {
	w.t.Helper()
	for deadline := time.Now().Add(awaitTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		r, err := eventlog.CheckRun(w.t.Context(), w.log, runID, eventlog.CheckOptions{Strict: true, AllowOpen: true})
		if err != nil {
			w.t.Fatal(err)
		}
		if r.Terminal != 0 {
			return r
		}
	}
	w.t.Fatalf("run %s does not end", runID)
	return eventlog.Report{}
}

// TestQueuePlaceIsAmongTheTenantsRuns is among the tenant's own runs, and those of others do not show.
func TestQueuePlaceIsAmongTheTenantsRuns(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		q.Limits = func(string) queue.Limits { return queue.Limits{Paused: true} }
	})
	for range 3 {
		w.do("bob", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Guess."}`))
	}
	first, second := w.accept(`{"goal":"Guess."}`), w.accept(`{"goal":"Guess."}`)
	urgent := w.accept(`{"goal":"Guess.","priority":1}`)
	places := func(want map[string]int) {
		t.Helper()
		for id, place := range want {
			var run struct{ Position int }
			answer := w.do("alice", "GET", "/api/v1/runs/"+id, "", nil)
			if err := json.Unmarshal(answer.Body.Bytes(), &run); err != nil || run.Position != place {
				t.Errorf("%s is at %d, want %d: %v %s", id, run.Position, place, err, answer.Body)
			}
		}
	}
	places(map[string]int{urgent: 1, first: 2, second: 3})
	if answer := w.do("alice", "POST", "/api/v1/runs/"+first+"/cancel", "", nil); strings.Contains(answer.Body.String(), "position") {
		t.Errorf("a run that is to end waits at a place: %s", answer.Body)
	}
	places(map[string]int{urgent: 1, first: 0, second: 2})
}

// TestARequestEndsWhoseRunIsGone while it waits for the run's end.
func TestARequestEndsWhoseRunIsGone(t *testing.T) {
	for what, test := range map[string]struct {
		end  func(*world) error
		beat time.Duration
		want string // status and problem
	}{
		"the run is removed": {func(w *world) error {
			_, err := w.log.PruneRuns(t.Context(), eventlog.PruneOptions{IncludeOpen: true})
			return err
		}, time.Millisecond, "410 problems.md#removed"},
		"the tenant is suspended": {func(w *world) error { return w.tenants.Suspend(t.Context(), "alice") }, time.Millisecond, "401 problems.md#unauthorized"},
		"the tenant is erased, and the run ended": {func(w *world) error {
			runs, err := w.log.ListRuns(t.Context())
			if err == nil {
				_, err = w.tenants.Erase(t.Context(), "alice", nil)
			}
			if err == nil {
				err = store.EndEncrypted(t.Context(), w.log, runs[0].RunID)
			}
			return err
		}, time.Hour, "401 problems.md#unauthorized"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
				c.Heartbeat = test.beat
				q.Limits = func(string) queue.Limits { return queue.Limits{Paused: true} }
			})
			answered := make(chan string, 1)
			go func() {
				answer := w.do("alice", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Guess.","wait":20}`))
				answered <- fmt.Sprint(answer.Code, " ", answer.Body)
			}()
			for range 10_000 {
				if answer := w.do("alice", "GET", "/api/v1/runs", "", nil); strings.Contains(answer.Body.String(), `"total":1`) {
					break
				}
				time.Sleep(time.Millisecond)
			}
			if err := test.end(w); err != nil {
				t.Fatal(err)
			}
			status, problem, _ := strings.Cut(test.want, " ")
			if got := <-answered; !strings.HasPrefix(got, status) || !strings.Contains(got, problem) {
				t.Errorf("answered with %s, want %s", got, test.want)
			}
		})
	}
}

// hung is an engine in which modules do not load, unless their upload is over.
type hung struct {
	guest.Observable
	loads chan bool // receives when a load begins that does not end
	yes   *atomic.Bool
}

func (h hung) Load(ctx context.Context, wasm []byte, l sandbox.Limits) (guest.Sandbox, error) {
	if !h.yes.Load() {
		return h.Observable.Load(ctx, wasm, l)
	}
	h.loads <- true
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestACancelledRunDoesNotWaitForItsModule, nor does a host that stops.
func TestACancelledRunDoesNotWaitForItsModule(t *testing.T) {
	h := hung{loads: make(chan bool, 10), yes: new(atomic.Bool)}
	paused := true
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		h.Observable = c.Inline
		c.Inline = h
		limits := queue.Limits{Paused: paused, MaxRunning: 1}
		q.Grace, q.Limits = -1, func(string) queue.Limits { return limits }
	})
	if got := w.do("alice", "POST", "/api/v1/modules?name=greet", "application/wasm", testModules["greet"]()); got.Code != http.StatusCreated {
		t.Fatal(got.Body)
	}
	id := w.accept(`{"tool":"greet"}`)
	w.stop()
	h.yes.Store(true)
	paused = false
	w.start()
	<-h.loads
	w.stop() // and does not wait
	w.start()
	<-h.loads
	if got := w.do("alice", "POST", "/api/v1/runs/"+id+"/cancel", "", nil); got.Code != http.StatusAccepted {
		t.Fatal(got.Body)
	}
	if got := w.awaitEnd(id); got != "cancelled" {
		t.Errorf("the run is %s", got)
	}
}
