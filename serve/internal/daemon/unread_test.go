package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
)

// deaf is a client that never reads: its first write of an answer blocks until the client hangs up.
type deaf struct {
	header   http.Header
	gone     context.Context
	deadline atomic.Bool  // the writer has one
	pending  atomic.Int64 // bytes of the write that blocks
	blocked  atomic.Bool
}

func (d *deaf) Header() http.Header { return d.header }

func (d *deaf) WriteHeader(int) {}

func (d *deaf) Flush() {}

func (d *deaf) SetReadDeadline(time.Time) error { return nil }

func (d *deaf) SetWriteDeadline(at time.Time) error {
	d.deadline.Store(time.Until(at) > 0)
	return nil
}

func (d *deaf) Write(p []byte) (int, error) {
	d.pending.Store(int64(len(p)))
	d.blocked.Store(true)
	<-d.gone.Done()
	d.pending.Store(0)
	return 0, errors.New("the client has gone")
}

// unread is a request of alice's, or of the operator.
type unread struct {
	name, who, method, path, body string
	makes                         bool // a run, which takes its time
}

// TestUnreadAnswersAreHeldInTheAccount walks every route of the host, of the web view and of the MCP
// server, with large runs, and has dozens of clients ask for each that never read. What they leave in
// memory is in the account of their tenant, each piece has a deadline, another tenant is served, and
// everything is given back when they go.
func TestUnreadAnswersAreHeldInTheAccount(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		signing(c, q)
		c.Limits.Running = 4
		c.Logger = slog.New(slog.DiscardHandler) // each refused request is logged
	})
	w.mount(t)
	for i := range 6 { // so that lists of tools are large, too
		name := fmt.Sprintf("big%d", i)
		schema := `{"type":"object","description":"` + strings.Repeat("<", 10<<10) + `"}`
		if got := w.do("alice", "POST", "/api/v1/modules?name="+name, "application/wasm", large(name, schema, `{"output":{"text":"`+strings.Repeat("<", 900<<10)+`"}}`)); got.Code != http.StatusCreated {
			t.Fatal(got.Body)
		}
	}
	run := w.accept(`{"tool":"big0"}`)
	if got := w.awaitEnd(run); got != "completed" {
		t.Fatal(got)
	}
	clients := treetest.Count(2, 2, 8)
	asked, big := 0, 0
	for _, ask := range everyRequest(t, w, run) {
		t.Run(strings.ReplaceAll(ask.name, "/", "."), func(t *testing.T) {
			if asked++; w.unread(t, ask, clients) > 0 {
				big++
			}
		})
	}
	if asked > 60 && big < 4 { // or the runs are not large
		t.Errorf("only %d answers are large", big)
	}
}

// unread has clients make a request and never read the answer, and returns how many bytes of large
// answers they leave.
func (w *world) unread(t *testing.T, ask unread, clients int) int64 {
	const pool = share.Memory
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	ctx, hangUp := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	var ended atomic.Int64
	n := clients
	if ask.makes {
		n = 4
	}
	all := make([]*deaf, n)
	for i := range all {
		d := &deaf{header: http.Header{}, gone: ctx}
		all[i] = d
		asking.Go(func() {
			defer ended.Add(1)
			defer func() {
				if failed := recover(); failed != nil && failed != http.ErrAbortHandler {
					t.Errorf("%v", failed)
				}
			}()
			w.daemon.ServeHTTP(d, ask.request(ctx, w))
		})
	}
	settled := func() (n int64) {
		for _, d := range all {
			if d.blocked.Load() {
				n++
			}
		}
		return n + ended.Load()
	}
	var pending int64
	for last, same, waited := int64(-1), 0, 0; same < 12 && settled() < int64(n); time.Sleep(10 * time.Millisecond) {
		waited++
		if now := settled(); now != last {
			last, same = now, 0
		} else if same++; now == 0 && waited < 200 {
			same = 0 // later ones wait for memory, but not the first
		}
	}
	for _, d := range all {
		if n := d.pending.Load(); n > 64<<10 { // less needs no reservation
			pending += n
		}
		if d.blocked.Load() && !d.deadline.Load() {
			t.Errorf("a client that does not read has no deadline")
		}
	}
	held := w.daemon.HeldMemory("alice") + w.daemon.HeldMemory("alice aside")
	if pending > held || held > pool/2 {
		t.Errorf("clients leave %d bytes unread, and the account holds %d", pending, held)
	}
	var grown, bound int64
	// What is computed at this moment is not left by anybody: in the end each client is blocked in its
	// write, or has waited for memory in vain. Memory that is left without an account stays.
	for deadline := time.Now().Add(awaitTime); ; time.Sleep(50 * time.Millisecond) {
		bound = w.daemon.HeldMemory("alice") + w.daemon.HeldMemory("alice aside") + int64(n)*(128<<10) + 8<<20
		runtime.GC()
		runtime.ReadMemStats(&during)
		if grown = int64(during.HeapAlloc) - int64(before.HeapAlloc); grown <= bound || time.Now().After(deadline) {
			break
		}
	}
	if grown > bound {
		t.Errorf("%d clients that never read take %d bytes of memory, and the account holds %d", n, grown, held)
	}
	if got := w.do("bob", "GET", "/api/v1/runs", "", nil); got.Code != http.StatusOK {
		t.Errorf("another tenant gets %d %s", got.Code, got.Body)
	}
	t.Logf("%d of %d settled, pending %d, held %d", settled(), n, pending, held)
	hangUp()
	asking.Wait()
	for deadline := time.Now().Add(awaitTime); w.daemon.HeldMemory("alice")+w.daemon.HeldMemory("alice aside") != 0; time.Sleep(5 * time.Millisecond) { // a task may still end
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held for clients that have gone", w.daemon.HeldMemory("alice"))
		}
	}
	return pending
}

// everyRequest returns a request for each route there is, and for each tool of the MCP server.
func everyRequest(t *testing.T, w *world, run string) (all []unread) {
	t.Helper()
	digest := w.modules()["big0"]
	paths := strings.NewReplacer("{id}", run, "{run}", run, "{seq}", "3", "{digest}", digest, "{tool}", "big0", "{name}", "big0", "{tenant}", "alice", "{host}", "test", "{what}", "retry", "{$}", "")
	queries := map[string]string{
		"GET /api/v1/receipts": "?sha256=" + strings.Repeat("00", 32), "POST /api/v1/modules": "?name=x",
		"GET /diff": "?a=" + run + "&b=" + run, "GET /tools/{tool}/change": "?to=" + digest, "POST /tools/{tool}/change": "?to=" + digest,
	}
	bodies := map[string]string{"POST /api/v1/runs": `{"tool":"big0","wait":5}`, "POST /api/v1/tools/{name}/call": `{}`}
	add := func(pattern, prefix, who, body string) {
		method, path, _ := strings.Cut(pattern, " ")
		all = append(all, unread{strings.Replace(pattern, " ", " "+prefix, 1), who, method, prefix + paths.Replace(path) + queries[pattern], body, body != ""})
	}
	for _, r := range daemon.Routes() {
		switch who := "alice"; {
		case r.Method == "": // mounted, see below
		case r.Method == "DELETE": // which would take away what is asked for
		case r.Access == daemon.ForOperator, r.Access == daemon.ForScraper:
			who = "operator"
			fallthrough
		default:
			add(r.Pattern(), "", who, bodies[r.Pattern()])
		}
	}
	for _, r := range inspect.Routes() {
		if strings.HasSuffix(r.Pattern, "/assets/{name}") {
			for _, name := range []string{"style.css", "script.js", "icon.svg"} {
				add("GET /assets/"+name, "/inspect", "alice", "")
			}
			continue
		}
		add(r.Pattern, "/inspect", "alice", "")
	}
	for _, kind := range []string{"events", "raw"} { // the event that has the result
		all = append(all, unread{"the largest " + kind, "alice", "GET", "/inspect/runs/" + run + "/" + kind + "/4", "", false})
	}
	for _, method := range []string{"tools/list", "initialize"} {
		all = append(all, unread{"mcp " + method, "alice", "POST", "/mcp", message(method, `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`), false})
	}
	var listed struct {
		Result struct {
			Tools []struct {
				Name        string `json:"name"`
				InputSchema struct {
					Properties map[string]any `json:"properties"`
				} `json:"inputSchema"`
			} `json:"tools"`
		} `json:"result"`
	}
	list := httptest.NewRecorder()
	w.daemon.ServeHTTP(list, unread{who: "alice", method: "POST", path: "/mcp", body: message("tools/list", `{}`)}.request(t.Context(), w))
	if err := json.Unmarshal(list.Body.Bytes(), &listed); err != nil || len(listed.Result.Tools) < 8 {
		t.Fatal(list.Code, list.Body, err)
	}
	known := map[string]any{"run_id": run, "a": run, "b": run, "kind": "ToolCallCompleted", "seq": 4, "matches": true, "name": "x"}
	for _, tool := range listed.Result.Tools {
		arguments := map[string]any{}
		for name := range tool.InputSchema.Properties {
			if known[name] != nil {
				arguments[name] = known[name]
			}
		}
		params, err := json.Marshal(map[string]any{"name": tool.Name, "arguments": arguments})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, unread{"mcp " + tool.Name, "alice", "POST", "/mcp", message("tools/call", string(params)), strings.HasPrefix(tool.Name, "big")})
	}
	return all
}

func message(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
}

func (u unread) request(ctx context.Context, w *world) *http.Request {
	r := httptest.NewRequestWithContext(ctx, u.method, u.path, strings.NewReader(u.body))
	key := w.keys[u.who]
	if u.who == "operator" {
		key = "operator"
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", "2025-06-18")
	if u.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// mount adds the web view and the MCP server to the daemon, as a host has them.
func (w *world) mount(t *testing.T) {
	t.Helper()
	pages, err := inspect.New(inspect.Config{Prefix: "/inspect", Scope: func(r *http.Request) (v eventview.View, err error) {
		a, err := w.daemon.Authenticate(r)
		if err != nil {
			return v, inspect.ErrSignIn
		}
		return w.daemon.View(a)
	}})
	if err != nil {
		t.Fatal(err)
	}
	server, err := mcpsrv.NewHandler(mcpsrv.Config{Scope: func(r *http.Request) (mcpsrv.View, error) {
		a, _ := daemon.AccountOf(r.Context())
		return w.daemon.Assistant(a)
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.daemon.Mount(pages, server)
}

// modules returns the digests of alice's modules by name.
func (w *world) modules() map[string]string {
	w.t.Helper()
	var list struct {
		Items []struct{ Name, Digest string }
	}
	if err := json.Unmarshal(w.do("alice", "GET", "/api/v1/modules", "", nil).Body.Bytes(), &list); err != nil {
		w.t.Fatal(err)
	}
	digests := map[string]string{}
	for _, m := range list.Items {
		digests[m.Name] = m.Digest
	}
	return digests
}

// large is a module with one tool whose schema and answer are long.
func large(name, schema, answer string) []byte {
	const at = 1 << 20
	m := module(name, schema, new(wasm.Asm).I64(at<<32|int64(len(answer))))
	doc := m.Data[0].Bytes
	m.Memory = wasmtest.Pages(64)
	m.Data = []wasmtest.Data{{Offset: 512 << 10, Bytes: doc}, {Offset: at, Bytes: answer}}
	m.Funcs[1].Code = new(wasm.Asm).I64(512<<10<<32 | int64(len(doc)))
	return m.Bytes()
}
