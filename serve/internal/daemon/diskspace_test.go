package daemon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// TestADiskThatGetsFull: with less and less room a host refuses modules, then runs, then
// all that would be written. It says so where it is asked whether it is ready, finishes
// the runs that it has accepted, and lets everybody read, whatever little is left.
func TestADiskThatGetsFull(t *testing.T) {
	var free, reusable atomic.Int64
	var broken atomic.Bool
	held := make(chan struct{})
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		c.Disk = func() (guest.DiskRoom, error) {
			if broken.Load() {
				return guest.DiskRoom{}, errors.New("no such disk")
			}
			return guest.DiskRoom{Free: free.Load(), Reusable: reusable.Load(), Total: 1 << 40}, nil
		}
		c.Space.KeepFree = 1 << 20
		q.Limits = func(string) queue.Limits {
			select {
			case <-held:
				return queue.Limits{}
			default:
				return queue.Limits{Paused: true}
			}
		}
	})
	n := 0
	upload := func() int {
		n++
		wasm := answering(fmt.Sprint("tool", n), `{"type":"object"}`, `{"output":1}`)
		return w.do("alice", "POST", fmt.Sprintf("/api/v1/modules?name=m%d", n), "application/wasm", wasm).Code
	}
	run := func() int {
		return w.do("alice", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Which number?"}`)).Code
	}
	policy := func() int {
		return w.do("alice", "DELETE", "/api/v1/policy", "", nil).Code
	}
	read := func() int {
		if status := w.do("alice", "POST", "/api/v1/runs/none/replay", "", nil).Code; status != http.StatusNotFound {
			return status
		}
		return w.do("alice", "GET", "/api/v1/runs", "", nil).Code
	}
	ready := func() (int, string) {
		var doc struct{ Checks map[string]string }
		answer := w.do("", "GET", "/api/v1/readyz", "", nil)
		if err := json.Unmarshal(answer.Body.Bytes(), &doc); err != nil {
			t.Error(err)
		}
		return answer.Code, doc.Checks["disk"]
	}
	const no = http.StatusInsufficientStorage
	for _, step := range []struct {
		free                int64
		upload, run, policy int
		ready               int
		disk                string
		what                string
	}{
		{2 << 20, 201, 202, 428, 200, "ok", "room"},
		{1<<20 + 100, no, 202, 428, 200, "ok", "room for less than a module"},
		{1<<20 - 1, no, 202, 428, 200, "low", "little room"},
		{1<<19 - 1, no, no, 428, 503, "failed", "hardly any room"},
		{1<<16 - 1, no, no, no, 503, "failed", "next to no room"},
		{0, no, no, no, 503, "failed", "no room"},
		{2 << 20, 201, 202, 428, 200, "ok", "room again"},
		{1 << 19, 201, 202, 428, 200, "ok", "room in the file"},
		{1<<18 - 1, no, 202, 428, 200, "low", "room in the file, and little for the WAL"},
		{1<<16 - 1, no, no, no, 503, "failed", "room in the file, and none for the WAL"},
	} {
		if strings.HasPrefix(step.what, "room in the file") {
			reusable.Store(2 << 20)
		}
		free.Store(step.free)
		status, state := ready()
		if u, r, p := upload(), run(), policy(); u != step.upload || r != step.run || p != step.policy || status != step.ready || state != step.disk || read() != 200 {
			t.Errorf("%s: a module %d, a run %d, a policy %d, ready %d %s, to read %d", step.what, u, r, p, status, state, read())
		}
	}
	free.Store(2 << 20)
	accepted := w.accept(`{"goal":"Which number?"}`)
	free.Store(1<<16 - 1)
	answer := w.do("alice", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Which number?"}`))
	refusedForNow(t, answer, no, "no-space")
	if strings.Contains(answer.Body.String(), "1099511627776") {
		t.Errorf("a tenant is told what there is on the disk: %s", answer.Body)
	}
	close(held)
	w.awaitEnd(accepted)
	broken.Store(true)
	if u, r := upload(), run(); u != 201 || r != 202 {
		t.Errorf("on a disk that says nothing: %d, %d", u, r)
	}
}

// TestAllModulesTogether: the operator bounds what the modules of all tenants take.
func TestAllModulesTogether(t *testing.T) {
	wasm := func(n int) []byte {
		return answering(fmt.Sprint("tool", n), `{"type":"object"}`, `{"output":1}`)
	}
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.Space.Modules = 2 * int64(len(wasm(1))) })
	for i, step := range []struct {
		who  string
		want int
	}{{"alice", 201}, {"bob", 201}, {"alice", 507}, {"bob", 507}} {
		if answer := w.do(step.who, "POST", fmt.Sprintf("/api/v1/modules?name=m%d", i), "application/wasm", wasm(i)); answer.Code != step.want {
			t.Errorf("module %d: %d %s", i, answer.Code, answer.Body)
		}
	}
}
