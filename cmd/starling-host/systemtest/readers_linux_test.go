package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/fairtest"
	"github.com/starling-host/starling/internal/wasmtest"
)

// reading is what one tenant has the host do in its own process, on so many connections.
type reading struct {
	name     string
	at       int
	requests []request
	answers  []int // beside zero, and 429 and 503 for what is too much
}

// readings are requests about the runs with these ids, whose events have a mebibyte each.
func readings(runs []string) []reading {
	get := func(path string) request { return request{Method: "GET", Path: path} }
	post := func(path string, body string) request {
		return request{Method: "POST", Path: path, Type: "application/json", Body: []byte(body)}
	}
	tool := func(name string, arguments map[string]any) request {
		call := map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": arguments}}
		body, _ := json.Marshal(call)
		return post("/mcp", string(body))
	}
	var api, view, unread []request
	for _, id := range runs {
		run := "/api/v1/runs/" + id
		api = append(api, get(run), get(run+"/events"), get(run+"/export"), get(run+"/stream"), request{Method: "POST", Path: run + "/replay"})
		view = append(view, get("/inspect/?per_page=200"), get("/inspect/runs/"+id), get("/inspect/runs/"+id+"/events"), get("/inspect/diff?a="+id+"&b="+runs[0]))
		left := get(run + "/events")
		left.Unread = true
		unread = append(unread, left)
	}
	loops, costly := wasmtest.Forever(), &wasmtest.Module{Customs: []wasmtest.Custom{{Name: "x", Body: stamp}}}
	*loops = append((*loops)[:0], strings.Repeat("\x03\x40\x0b", 20)...) // loop end
	for range 38_000 {
		costly.Funcs = append(costly.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Code: loops})
	}
	array := "[" + strings.Repeat("0,", 499_000) + "0]"
	ok := []int{http.StatusOK}
	return []reading{
		{"modules that cost much to check", 8, []request{{Method: "POST", Path: "/api/v1/modules?name=costly", Type: "application/wasm", Body: costly.Bytes()}}, []int{http.StatusUnprocessableEntity}},
		{"search", 60, []request{tool("search_runs", map[string]any{"query": "no such text", "run_limit": 1000, "max_examined_events": 50000})}, ok},
		{"runs", 60, api, ok},
		{"tools over the log", 60, []request{
			tool("diff_runs", map[string]any{"a": runs[0], "b": runs[1]}), tool("validate_run", map[string]any{"run_id": runs[0]}),
			tool("summarize_run", map[string]any{"run_id": runs[1]}), tool("get_run", map[string]any{"run_id": runs[0]}),
		}, ok},
		{"web view", 60, view, ok},
		{"answers that are not read", 300, unread, nil},
		{"bodies that are too large", 150, []request{post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"`+strings.Repeat("x", 4<<20)+`"}}`)},
			[]int{http.StatusRequestEntityTooLarge}},
		{"calls with arrays", 120, []request{post("/api/v1/tools/echo/call", `{"input":{"a":`+array+`}}`)}, ok},
		{"runs with arrays", 60, []request{post("/api/v1/runs", `{"tool":"echo","input":{"a":`+array+`}}`)}, []int{http.StatusAccepted}},
	}
}

// mostMemory is what a host has beside one tenant that asks for all that it may.
const mostMemory = 2 << 30

// TestServeNoisyReaders: a tenant calls a tool alone and beside one that reads, searches
// and sends what it can, whose host stays within its memory. In CI the figures decide.
func TestServeNoisyReaders(t *testing.T) {
	c := newCluster(t, policyFor(t, newTar(t)), "evil", "good")
	c.askFreely("good") // it is the one that measures
	c.start("", nil)
	c.upload("evil", "good")
	calls, stored := 5, 8
	if fairtest.Gate() {
		calls, stored = 200, 60
	}
	var runs []string
	for len(runs) < stored {
		status, text, err := c.call("evil", "echo", map[string]string{"s": strings.Repeat("x", 1_000_000)})
		var run struct {
			ID string `json:"run_id"`
		}
		if err == nil {
			err = json.Unmarshal(text, &run)
		}
		switch {
		case err == nil && status == http.StatusOK:
			runs = append(runs, run.ID)
		case err != nil || status != http.StatusTooManyRequests:
			t.Fatalf("%d %.200s %v", status, text, err)
		}
	}
	for _, r := range readings(runs) {
		t.Run(r.name, func(t *testing.T) {
			fairtest.Promise{Times: 3, Good: 25 * time.Millisecond}.Hold(t, func() fairtest.Round {
				alone := c.timesOf(t, calls)
				stop := c.let(t, crew{Keys: []string{c.keys["evil"]}, Each: r.at, Requests: r.requests})
				time.Sleep(time.Second) // until all are at it
				beside := c.timesOf(t, calls)
				answers := stop()
				t.Logf("its answers: %v; the host has had %d MiB", answers, c.peak(t)>>20)
				for status := range answers {
					if !slices.Contains(append(r.answers, 0, http.StatusTooManyRequests, http.StatusServiceUnavailable), status) {
						t.Errorf("it is answered with %d", status)
					}
				}
				c.settle("evil")
				return fairtest.Round{Alone: alone, Beside: beside}
			})
			if peak := c.peak(t); peak > mostMemory {
				t.Errorf("the host has had %d MiB", peak>>20)
			}
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(refused) { // less than a search takes
				status, text, err := c.ask("evil", "GET", "/api/v1/usage", "", nil)
				if err == nil && status == http.StatusOK && bytes.Contains(text, []byte(`"waiting":0,"bytes":0}`)) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("what it holds although its clients have gone: %d %s %v", status, text, err)
				}
			}
		})
	}
}

// peak returns the most memory that the host had until now, in bytes.
func (c *cluster) peak(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	c.must(err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	c.must(err)
	return kib << 10
}
