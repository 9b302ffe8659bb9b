package daemon_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// world is a daemon on a database, which can be stopped and started again.
type world struct {
	t      *testing.T
	path   string // of the database; or the address of a PostgreSQL server
	master tenant.MasterKey
	engine *sandbox.Engine
	adjust func(*daemon.Config, *queue.Config)

	log     daemon.Log
	tenants *tenant.Store
	queue   *queue.Queue
	daemon  *daemon.Daemon
	url     string
	halt    func()
	end     context.CancelFunc // has the daemon end
	served  chan error         // how it has ended
	socket  net.Listener
	keys    map[string]string // of tenants, by their ids
}

// awaitTime is how long a test waits for what has to come, on whatever machine.
const awaitTime = 2 * time.Minute

// newWorld starts a daemon with the tenants alice and bob, on a file.
func newWorld(t *testing.T, adjust func(*daemon.Config, *queue.Config)) *world {
	t.Helper()
	return newWorldOn(t, filepath.Join(t.TempDir(), "host.db"), adjust)
}

func newWorldOn(t *testing.T, path string, adjust func(*daemon.Config, *queue.Config)) *world {
	t.Helper()
	engine, err := sandbox.New(t.Context(), sandbox.Config{CacheDir: starling.CodeCacheFolder()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, path: path, master: tenant.NewMasterKey(), engine: engine, adjust: adjust,
		keys: map[string]string{},
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	w.start()
	t.Cleanup(w.stop)
	for _, id := range []string{"alice", "bob"} {
		w.addTenant(id, tenant.Limits{RequestsPerSecond: -1})
	}
	return w
}

func (w *world) addTenant(id string, limits tenant.Limits) {
	w.t.Helper()
	if _, err := w.tenants.Create(w.t.Context(), tenant.Tenant{ID: id, Limits: limits}); err != nil {
		w.t.Fatal(err)
	}
	_, key, err := w.tenants.CreateKey(w.t.Context(), id, "")
	if err != nil {
		w.t.Fatal(err)
	}
	w.keys[id] = key.Reveal()
}

// start starts the daemon on the database as it is.
func (w *world) start() {
	w.t.Helper()
	ctx := context.Background()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	var err error
	w.log, err = openLog(ctx, w.path)
	must(err)
	w.tenants, err = tenant.Open(ctx, w.log, tenant.Options{Masters: []tenant.MasterKey{w.master}})
	must(err)
	registry := observe.NewRegistry()
	c := daemon.Config{
		Log: w.log, Tenants: w.tenants, Inline: guest.Inline(w.engine), Agents: []daemon.Agent{gambler()},
		Metrics: observe.MetricsHandler(registry), Observe: observe.NewHTTPMetrics(registry), Runs: observe.NewMetrics(registry),
		OperatorKey: "operator", Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	}
	c.Requests.Wait, c.Drain = 20*time.Second, time.Millisecond
	q := queue.Config{Host: "test", Grace: time.Second, Limits: func(string) queue.Limits { return queue.Limits{MaxRunning: 4} }}
	q.Ready = func(ctx context.Context) error { return w.daemon.Ready(ctx) }
	if w.adjust != nil {
		w.adjust(&c, &q)
	}
	w.queue, err = queue.Open(ctx, c.Log, q)
	must(err)
	c.Queue = w.queue
	w.daemon, err = daemon.New(ctx, c)
	must(err)
	w.serve()
}

func onServer(path string) bool { return strings.HasPrefix(path, "postgres") }

func openLog(ctx context.Context, path string) (daemon.Log, error) {
	if onServer(path) {
		return store.OpenServer(ctx, path, store.ServerOptions{AutoMigrate: true})
	}
	return store.OpenFile(ctx, path, store.FileOptions{})
}

// serve has the daemon listen until halt.
func (w *world) serve() {
	var err error
	if w.socket, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		w.t.Fatal(err)
	}
	w.url = "http://" + w.socket.Addr().String()
	var ctx context.Context
	ctx, w.end = context.WithCancel(context.Background())
	w.served = make(chan error, 1)
	go func() { w.served <- w.daemon.Serve(ctx, w.socket) }()
	w.halt = func() {
		w.end()
		if err := <-w.served; err != nil {
			w.t.Errorf("the daemon stopped: %v", err)
		}
	}
}

func (w *world) stop() {
	w.halt()
	w.daemon.Close()
	if err := w.log.Close(); err != nil {
		w.t.Error(err)
	}
}

// gambler is an agent whose model is a script that needs no tools.
func gambler() daemon.Agent {
	s, err := agentfile.ParseScript("gambler.yaml", []byte("- text: Seven.\n"))
	if err != nil {
		panic(err)
	}
	model, err := agentfile.NewScript(s)
	if err != nil {
		panic(err)
	}
	return daemon.Agent{Name: "gambler", Description: "It guesses.", Agent: agent.Agent{
		Provider: model, Config: agent.Config{Model: "scripted"},
	}}
}

// testModules are modules that say the same whatever they are told, by name.
var testModules = map[string]func() []byte{
	"greet": func() []byte {
		return answering("greet", `{"type":"object","properties":{"name":{"type":"string"}},"additionalProperties":false}`, `{"output":{"hello":"world"}}`)
	},
	"other": func() []byte { return answering("other", `{"type":"object"}`, `{"output":1}`) },
	"again": func() []byte { return answering("greet", `{"type":"object"}`, `{"output":2}`) },
	"fail": func() []byte {
		return answering("fail", `{"type":"object"}`, `{"error":{"kind":"tool","message":"it does not work"}}`)
	},
	"spin": func() []byte { return spinning() },
	"large-table": func() []byte {
		m := module("large", `{"type":"object"}`, new(wasm.Asm).I64(0))
		m.Table = wasmtest.Pages(1 << 27)
		return m.Bytes()
	},
	"liar": func() []byte { return answering("Liar", `{"type":"object"}`, `{}`) },
	"text": func() []byte { return []byte("#!/bin/sh") },
}

// Where a test module keeps what it says.
const (
	describeAt = 1 << 10
	answerAt   = 8 << 10
	inputAt    = 64 << 10
)

// answering is a module with one tool that always gives the same answer.
func answering(name, schema, answer string) []byte {
	m := module(name, schema, new(wasm.Asm).I64(answerAt<<32|int64(len(answer))))
	m.Data = append(m.Data, wasmtest.Data{Offset: answerAt, Bytes: answer})
	return m.Bytes()
}

// spinning is a module whose tool never returns.
func spinning() []byte {
	return module("spin", `{"type":"object"}`, wasmtest.Forever()).Bytes()
}

func module(name, schema string, execute *wasm.Asm) *wasmtest.Module {
	doc, err := json.Marshal(map[string]any{"tools": []any{map[string]any{
		"name": name, "description": "It is for tests.", "input_schema": json.RawMessage(schema),
	}}})
	if err != nil {
		panic(err)
	}
	return &wasmtest.Module{
		Memory: wasmtest.Pages(32), Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Data: []wasmtest.Data{{Offset: describeAt, Bytes: string(doc)}},
		Funcs: []wasmtest.Func{
			{Export: "starling_alloc", Type: wasmtest.Type("i:i"), Code: new(wasm.Asm).I32(inputAt)},
			{Export: "starling_describe", Type: wasmtest.Type(":I"), Code: new(wasm.Asm).I64(describeAt<<32 | int64(len(doc)))},
			{Export: "starling_execute", Type: wasmtest.Type("ii:I"), Code: execute},
		},
	}
}
