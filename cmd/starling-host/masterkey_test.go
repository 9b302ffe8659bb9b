package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/serve/tenant"
)

// TestTheMasterKeyIsChangedUnderLoad changes the master key while two hosts serve calls from one
// database, as docs/serving.md says, and no call fails. Then it changes the key without telling
// the hosts: the runs that they have accepted wait until the hosts get the key, and complete.
func TestTheMasterKeyIsChangedUnderLoad(t *testing.T) {
	skipShort(t)
	t.Parallel()
	module, err := guest.Find(t.Context(), filepath.Join("testdata", "tools", "draw"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); changeMasterKey(t, "host.db", module.Wasm) })
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		database := pgtest.Database(t)
		if out, err := exec.Command("starling-host", "migrate", database).CombinedOutput(); err != nil {
			t.Fatalf("migrate: %v\n%s", err, out)
		}
		changeMasterKey(t, database, module.Wasm)
	})
}

func changeMasterKey(t *testing.T, database string, module []byte) {
	dir := t.TempDir()
	write := func(name string, keys ...tenant.MasterKey) {
		var text strings.Builder
		for _, k := range keys {
			fmt.Fprintln(&text, k.Text().Reveal())
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := func(args ...string) string {
		c := exec.Command("starling-host", args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for begin := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("it never happens that %s", what)
			}
		}
	}
	file := keyFileOf(database)
	old, next, last := tenant.NewMasterKey(), tenant.NewMasterKey(), tenant.NewMasterKey()
	write(file, old)
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: \"1.0\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts := []*serving{startServing(t, dir, database, "one", nil), startServing(t, dir, database, "two", nil)}
	hosts[0].key = hosts[1].key // the one that was made last holds
	hosts[0].upload(t, module)
	// held has every host read its key file again, which must then be one with these keys.
	held := func(keys ...tenant.MasterKey) {
		var ids []any
		for _, k := range keys {
			ids = append(ids, k.ID())
		}
		for _, h := range hosts {
			if err := h.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			until(fmt.Sprint("a host has the keys ", ids), func() bool {
				status, doc, err := h.ask("GET", "/readyz", "", nil)
				return err == nil && status == http.StatusOK && fmt.Sprint(doc["master_keys"]) == fmt.Sprint(ids)
			})
		}
	}

	var calls atomic.Int64
	var load sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				status, doc, err := hosts[i%2].ask("POST", "/tools/draw/call", "application/json", []byte(`{"input":{}}`))
				if status == http.StatusTooManyRequests {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				if err != nil || status != http.StatusOK || doc["status"] != "completed" {
					t.Errorf("a call while the key is changed: %d %v %v", status, doc, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	more := func() {
		t.Helper()
		from := calls.Load()
		until("8 more calls are answered", func() bool { return calls.Load() >= from+8 || t.Failed() })
	}
	more()
	write(file, old, next)
	held(old, next)
	more()
	write("next.key", next)
	if out := command("tenant", "rewrap", "--db", database, "--key-file", file, "--new-key-file", "next.key"); !strings.Contains(out, next.ID()) || !strings.Contains(out, "hint: add this key to the key_file of every host") {
		t.Errorf("rewrap says:\n%s", out)
	}
	more()
	write(file, next)
	held(next)
	more()
	close(stop)
	load.Wait()
	if out := command("doctor", database, "--key-file", file); !strings.Contains(out, "data key under "+next.ID()) {
		t.Errorf("the doctor says:\n%s", out)
	}

	// Now nobody tells the hosts. They take runs until they find out.
	var mu sync.Mutex
	var accepted []string
	for i := range 4 {
		load.Go(func() {
			for range 1000 {
				status, doc, err := hosts[i%2].ask("POST", "/runs", "application/json", []byte(`{"tool":"draw","input":{}}`))
				switch id, _ := doc["run_id"].(string); {
				case err == nil && status == http.StatusAccepted && id != "":
					mu.Lock()
					accepted = append(accepted, id)
					mu.Unlock()
				case err == nil && status == http.StatusTooManyRequests:
					time.Sleep(5 * time.Millisecond)
				case err == nil && status == http.StatusServiceUnavailable:
					return
				default:
					t.Errorf("a run at a host with a stale key: %d %v %v", status, doc, err)
					return
				}
			}
		})
	}
	write("last.key", last)
	command("tenant", "rewrap", "--db", database, "--key-file", file, "--new-key-file", "last.key")
	load.Wait()
	for _, h := range hosts {
		until("a host says that its key is stale", func() bool {
			status, doc, err := h.ask("GET", "/readyz", "", nil)
			return err == nil && status == http.StatusServiceUnavailable && fmt.Sprint(doc["checks"].(map[string]any)["keys"]) == "failed"
		})
	}
	write(file, last)
	held(last)
	t.Logf("%d calls while the key changed, %d runs accepted before hosts with a stale key got the new one", calls.Load(), len(accepted))
	hosts[0].finish(t)
	for _, id := range accepted {
		until("the end of "+id+" is read", func() bool {
			status, doc, err := hosts[0].ask("GET", "/runs/"+id, "", nil)
			if err == nil && status == http.StatusOK && doc["status"] != "completed" {
				t.Errorf("a run ended because a host had a stale key: %v", doc)
			}
			return err == nil && status == http.StatusOK
		})
	}
}
