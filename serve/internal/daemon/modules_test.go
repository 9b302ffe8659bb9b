package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
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
	"github.com/starling-host/starling/serve/internal/mcpsrv"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// TestModuleUploadsToTwoHostsAtOnce uploads modules with the same tool to two hosts at the same
// time: one of them has it.
func TestModuleUploadsToTwoHostsAtOnce(t *testing.T) {
	var config *daemon.Config
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { config = c })
	second, err := daemon.New(t.Context(), *config)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	other := *w
	other.daemon = second
	for i := range 10 {
		wasm := answering(fmt.Sprint("tool", i), `{"type":"object"}`, `{"output":1}`)
		var codes [2]int
		var both sync.WaitGroup
		for n, host := range []*world{w, &other} {
			both.Go(func() {
				codes[n] = host.do("alice", "POST", fmt.Sprintf("/api/v1/modules?name=m%d-%d", i, n), "application/wasm", wasm).Code
			})
		}
		both.Wait()
		if codes != [2]int{http.StatusCreated, http.StatusConflict} && codes != [2]int{http.StatusConflict, http.StatusCreated} {
			t.Errorf("round %d: %v", i, codes)
		}
	}
}

// TestModulesTakeNoMoreThanTheyMay: of a tenant's modules the bytes are bounded that are
// stored, and not those that it lists. A module that nobody has called makes room at once
// when it is deleted, one that runs name when these runs are removed.
func TestModulesTakeNoMoreThanTheyMay(t *testing.T) {
	w := newWorld(t, nil)
	wasm := func(n int) []byte {
		return answering(fmt.Sprint("tool", n), `{"type":"object"}`, `{"output":1}`)
	}
	size := int64(len(wasm(1)))
	w.addTenant("carol", tenant.Limits{RequestsPerSecond: -1, Modules: 3 * size})
	ask := func(want int, method, path string, body []byte) []byte {
		t.Helper()
		kind := "application/wasm"
		if method == "POST" && strings.HasSuffix(path, "/call") {
			kind = "application/json"
		}
		answer := w.do("carol", method, "/api/v1/"+path, kind, body)
		if answer.Code != want {
			t.Fatalf("%s %s: %d %s, want %d", method, path, answer.Code, answer.Body, want)
		}
		return answer.Body.Bytes()
	}
	upload := func(want, n int) []byte {
		t.Helper()
		return ask(want, "POST", fmt.Sprintf("modules?name=m%d", n), wasm(n))
	}
	for n := range 30 { // as often as it likes
		upload(http.StatusCreated, n)
		ask(http.StatusNoContent, "DELETE", fmt.Sprintf("modules/m%d", n), nil)
	}
	upload(http.StatusCreated, 1)
	ask(http.StatusOK, "POST", "tools/tool1/call", []byte(`{"wait":20}`))
	ask(http.StatusNoContent, "DELETE", "modules/m1", nil)
	upload(http.StatusCreated, 2)
	upload(http.StatusOK, 2)
	upload(http.StatusCreated, 3)
	var doc struct{ Type, Detail string }
	if err := json.Unmarshal(upload(http.StatusUnprocessableEntity, 4), &doc); err != nil || !strings.HasSuffix(doc.Type, "#module-limit") ||
		!strings.Contains(doc.Detail, fmt.Sprintf("take %d bytes, %d of them for removed modules", 3*size, size)) {
		t.Errorf("%+v, %v", doc, err)
	}
	if c, err := eventlog.CountModules(t.Context(), w.log, ""); c.Modules != 3 || c.Bytes != 3*size || err != nil {
		t.Errorf("%+v are stored, %v", c, err)
	}
	run := w.do("carol", "GET", "/api/v1/runs", "", nil).Body.Bytes()
	if _, err := w.log.PruneRuns(t.Context(), eventlog.PruneOptions{Namespace: "carol"}); err != nil {
		t.Fatal(err)
	}
	if c, err := tenant.Collect(t.Context(), w.log, time.Now()); err != nil || c.Modules != 1 {
		t.Errorf("%+v, %v, after %s", c, err, run)
	}
	upload(http.StatusCreated, 4)
}

// TestAgentModuleIsStoredAgain: a run of an agent begins with the agent's module, although it was
// removed while no run used it.
func TestAgentModuleIsStoredAgain(t *testing.T) {
	wasm := answering("tool1", `{"type":"object"}`, `{"output":1}`)
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		m, err := guest.Load(t.Context(), c.Inline, wasm, guest.Options{Name: "m", Limits: sandbox.DefaultLimits()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close(t.Context()) })
		a := &c.Agents[0]
		a.Modules = map[canon.Hash][]byte{canon.Sum(wasm): wasm}
		for _, tool := range m.Tools() {
			a.Agent.Tools = append(a.Agent.Tools, tool)
		}
	})
	if status := w.awaitEnd(w.accept(`{"agent":"gambler","goal":"guess"}`)); status != "completed" {
		t.Error(status)
	}
	if c, err := tenant.Collect(t.Context(), w.log, time.Now()); c.Modules != 0 || err != nil {
		t.Errorf("a module that a run uses was removed: %+v, %v", c, err)
	}
	if found, err := w.log.HasModule(t.Context(), canon.Sum(wasm)); !found || err != nil {
		t.Errorf("the module is stored: %t, %v", found, err)
	}
}

// TestUploadsAreCounted: a tenant uploads so many modules within an hour. The same ones
// again do not count, and nor do those of others.
func TestUploadsAreCounted(t *testing.T) {
	w := newWorld(t, nil)
	w.addTenant("carol", tenant.Limits{RequestsPerSecond: -1, UploadsPerHour: 2})
	upload := func(who string, n int) *httptest.ResponseRecorder {
		wasm := answering(fmt.Sprint("tool", n), `{"type":"object"}`, `{"output":1}`)
		return w.do(who, "POST", fmt.Sprintf("/api/v1/modules?name=m%d", n), "application/wasm", wasm)
	}
	for i, want := range []int{http.StatusCreated, http.StatusOK, http.StatusOK} {
		if answer := upload("carol", 1); answer.Code != want {
			t.Errorf("upload %d: %d %s", i, answer.Code, answer.Body)
		}
	}
	if answer := upload("carol", 2); answer.Code != http.StatusCreated {
		t.Errorf("the second one: %d %s", answer.Code, answer.Body)
	}
	refusedForNow(t, upload("carol", 3), http.StatusTooManyRequests, "rate-limited")
	if answer := upload("bob", 3); answer.Code != http.StatusCreated {
		t.Errorf("another tenant: %d %s", answer.Code, answer.Body)
	}
}

// linkedBytes is the size of what the component of a few bytes becomes.
const linkedBytes = 8 << 20

// hanging links nothing until the client hangs up.
type hanging struct {
	guest.Observable
	linking chan struct{}
}

func (h hanging) Link(ctx context.Context, _ []byte, room func(int) error) ([]byte, error) {
	if err := room(linkedBytes); err != nil {
		return nil, err
	}
	h.linking <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestComponentsAreLinkedWhereModulesAreIsolated: the engine for modules of tenants links a component
// and a plug-in. A client that hangs up ends that, and its place is free for the next one.
func TestComponentsAreLinkedWhereModulesAreIsolated(t *testing.T) {
	h := hanging{linking: make(chan struct{})}
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		h.Observable = c.Inline
		c.Isolated = h
	})
	plugin := []byte("\x00asm\x01\x00\x00\x00\x02\x15\x01\x0fextism:host/env\x01f\x00\x00")
	for i := range 2 * runtime.GOMAXPROCS(0) { // more than there are places
		ctx, hangUp := context.WithCancel(t.Context())
		upload := [][]byte{[]byte("\x00asm\x0d\x00\x01\x00"), plugin}[i%2]
		r, err := http.NewRequestWithContext(ctx, "POST", w.url+"/api/v1/modules?name=m", bytes.NewReader(upload))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+w.keys["alice"])
		r.Header.Set("Content-Type", "application/wasm")
		ended := make(chan struct{})
		go func() {
			if answer, err := http.DefaultClient.Do(r); err == nil {
				answer.Body.Close()
			}
			close(ended)
		}()
		select {
		case <-h.linking:
		case <-ended:
			t.Fatalf("upload %d: the engine for modules of tenants was not asked", i)
		}
		var usage struct {
			InFlight struct{ Bytes int } `json:"in_flight"`
		}
		if answer := w.do("alice", "GET", "/api/v1/usage", "", nil); json.Unmarshal(answer.Body.Bytes(), &usage) != nil || usage.InFlight.Bytes < share.Module*linkedBytes {
			t.Errorf("the tenant's account of a module that a component becomes: %s", answer.Body)
		}
		hangUp()
		<-ended
	}
}

// gated is an engine that loads a module when it may. Before that it says that it was asked.
type gated struct {
	guest.Observable
	asked, open chan struct{}
}

func (g gated) Load(ctx context.Context, wasm []byte, limits sandbox.Limits) (guest.Sandbox, error) {
	select {
	case g.asked <- struct{}{}:
	case <-g.open:
	}
	<-g.open
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return g.Observable.Load(ctx, wasm, limits)
}

// TestARequestDoesNotWaitForASlowModule: the module of a tool takes long to be loaded. Requests for the tool
// get 503 in time, and it is loaded once, for the one that comes after that.
func TestARequestDoesNotWaitForASlowModule(t *testing.T) {
	g := gated{asked: make(chan struct{}), open: make(chan struct{})}
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		g.Observable = c.Inline
		c.Isolated = &g
	})
	openGate := sync.OnceFunc(func() { close(g.open) })
	t.Cleanup(openGate) // or the daemon would wait for the module
	uploaded := make(chan int)
	go func() {
		uploaded <- w.do("alice", "POST", "/api/v1/modules?name=greet", "application/wasm", testModules["greet"]()).Code
	}()
	<-g.asked
	openGate()
	if code := <-uploaded; code != http.StatusCreated {
		t.Fatal(code)
	}
	g.open = make(chan struct{})
	openGate = sync.OnceFunc(func() { close(g.open) })
	t.Cleanup(openGate)

	w.daemon.SetAnswerTime(3 * time.Second)
	call := func(body string) *httptest.ResponseRecorder {
		return w.do("alice", "POST", "/api/v1/tools/greet/call", "application/json", []byte(body))
	}
	var slow sync.WaitGroup
	for _, body := range []string{`{"input":{}}`, `{"input":{},"wait":0}`, `{"input":{},"wait":20}`} {
		slow.Go(func() {
			got := call(body)
			if got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" || !strings.Contains(got.Body.String(), "still being loaded") {
				t.Errorf("%s: %d, to be repeated after %q: %s", body, got.Code, got.Header().Get("Retry-After"), got.Body)
			}
		})
	}
	<-g.asked
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+w.keys["alice"])
	account, err := w.daemon.Authenticate(r)
	if err != nil {
		t.Fatal(err)
	}
	assistant, err := w.daemon.Assistant(account)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { // an assistant's call waits for the run, and so for the module
		_, err := assistant.Tools.Call(t.Context(), mcpsrv.Call{Name: "greet", Arguments: []byte("{}")})
		waited <- err
	}()
	late := time.AfterFunc(awaitTime, openGate)
	slow.Wait()
	select {
	case <-g.asked:
		t.Error("it is loaded once more")
	default:
	}
	if !late.Stop() {
		t.Error("the requests waited for the module")
	}
	select {
	case err := <-waited:
		t.Errorf("a call that waits has ended: %v", err)
	default:
	}
	openGate()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if got := call(`{"input":{}}`); got.Code != http.StatusOK {
		t.Errorf("once it is loaded: %d %s", got.Code, got.Body)
	}
}

// TestARunExecutesTheModuleThatItWasAcceptedWith: a module that takes the place of another one, under the
// same names, is not executed by the runs that wait.
func TestARunExecutesTheModuleThatItWasAcceptedWith(t *testing.T) {
	var waiting atomic.Bool
	waiting.Store(true)
	w := newWorld(t, func(_ *daemon.Config, q *queue.Config) {
		q.Limits = func(string) queue.Limits { return queue.Limits{Paused: waiting.Load()} }
	})
	upload := func(output string) {
		t.Helper()
		if answer := w.do("alice", "POST", "/api/v1/modules?name=m", "application/wasm", answering("tool", `{"type":"object"}`, `{"output":`+output+`}`)); answer.Code != http.StatusCreated {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
	}
	call := func() (id string) {
		t.Helper()
		answer := w.do("alice", "POST", "/api/v1/tools/tool/call", "application/json", []byte(`{"wait":0}`))
		var run struct {
			ID string `json:"run_id"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &run); err != nil || answer.Code != http.StatusAccepted {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
		return run.ID
	}
	upload("1")
	old := call()
	if answer := w.do("alice", "DELETE", "/api/v1/modules/m", "", nil); answer.Code != http.StatusNoContent {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	upload("2")
	next := call()
	waiting.Store(false)
	w.stop()
	w.start()
	for id, want := range map[string]string{old: `the module \"m\" is not there any more`, next: `"completed"`} {
		w.awaitEnd(id)
		if got := w.do("alice", "GET", "/api/v1/runs/"+id, "", nil).Body.String(); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
