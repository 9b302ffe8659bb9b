package daemon_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// TestUsageIsWhatTheEventsSay has runs complete, fail, be cancelled and go on after a restart.
// Their usage by day adds up to what their events say when they are read at the end, each run
// once.
func TestUsageIsWhatTheEventsSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.MaxAttempts = 5 })
	const answer = `{"output":1}`
	m := module("clock", `{"type":"object"}`, new(wasm.Asm).
		Index(wasm.OpCall, 0).Op(wasm.OpDrop).Index(wasm.OpCall, 0).Op(wasm.OpDrop).I64(answerAt<<32|int64(len(answer))))
	m.Imports = []wasmtest.Import{{Module: "starling:v1", Name: "now", Type: wasmtest.Type(":I")}}
	m.Data = append(m.Data, wasmtest.Data{Offset: answerAt, Bytes: answer})
	w.do("alice", "POST", "/api/v1/modules?name=clock", "application/wasm", m.Bytes())
	for _, name := range []string{"fail", "spin"} {
		w.do("alice", "POST", "/api/v1/modules?name="+name, "application/wasm", testModules[name]())
	}
	for _, tool := range []string{"clock", "fail", "clock"} {
		if got := w.do("alice", "POST", "/api/v1/tools/"+tool+"/call", "application/json", []byte(`{"input":{}}`)); got.Code != http.StatusOK {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
	}
	if status := w.awaitEnd(w.accept(`{"agent":"gambler","goal":"guess"}`)); status != "completed" {
		t.Fatal(status)
	}
	spinning := w.accept(`{"tool":"spin"}`)
	w.awaitMetrics(`starling_runs_in_flight 1`)
	w.stop() // which hands the run back
	w.start()
	w.awaitMetrics(`starling_runs_in_flight 1`)
	w.do("alice", "POST", "/api/v1/runs/"+spinning+"/cancel", "", nil)
	w.awaitEnd(spinning)
	w.stop() // so that the end of every job is counted
	w.start()

	var doc tenant.Usage
	if err := json.Unmarshal(w.do("alice", "GET", "/api/v1/usage", "", nil).Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var got, want tenant.DayUsage
	for _, d := range doc.Days { // two, if midnight has passed meanwhile
		got.Runs, got.Fuel, got.Effects = got.Runs+d.Runs, got.Fuel+d.Fuel, got.Effects+d.Effects
		got.EgressBytes, got.RecordedBytes = got.EgressBytes+d.EgressBytes, got.RecordedBytes+d.RecordedBytes
	}
	key, err := w.tenants.DataKey(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	log, err := store.Encrypted(w.log, key, "alice")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := w.log.ListRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		evs, err := log.Read(t.Context(), run.RunID)
		if err != nil {
			t.Fatal(err)
		}
		meter, err := agent.ResumeBudget(agent.Budget{}, evs)
		if err != nil {
			t.Fatal(err)
		}
		spent := meter.Spent()
		want.Runs++
		want.Fuel += int64(spent.Fuel)
		want.Effects += int64(spent.Effects)
		want.EgressBytes += int64(spent.EgressBytes)
	}
	want.RecordedBytes = doc.Recorded.Bytes
	if got != want || want.Runs != 5 || want.Effects < 4 || want.Fuel == 0 {
		t.Errorf("%+v, and the events say %+v", got, want)
	}
}
