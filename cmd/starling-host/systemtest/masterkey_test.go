package systemtest

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/serve/tenant"
)

// TestTheMasterKeyIsChangedUnderLoad changes the master key while two hosts serve calls from one
// database, as docs/serving.md says, and no call fails. Then it changes the key without telling
// the hosts: the runs that they have accepted wait until the hosts get the key, and complete.
func TestTheMasterKeyIsChangedUnderLoad(t *testing.T) {
	skipShort(t)
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); changeMasterKey(t, "host.db") })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); changeMasterKey(t, pgtest.Database(t)) })
}

func changeMasterKey(t *testing.T, database string) {
	c := newClusterIn(t, t.TempDir(), database, closedPolicy, "alice")
	c.askFreely("alice")
	c.tool = "draw"
	write := func(name string, keys ...tenant.MasterKey) {
		var text strings.Builder
		for _, k := range keys {
			fmt.Fprintln(&text, k.Text().Reveal())
		}
		c.must(os.WriteFile(c.path(name), []byte(text.String()), 0o600))
	}
	const file = "host.key"
	old, next, last := c.master, tenant.NewMasterKey(), tenant.NewMasterKey()
	hosts := []*host{c.start("", nil), c.start("", nil)}
	hosts[0].upload("alice")
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
			until(t, fmt.Sprint("a host does not take the keys ", ids), &h.stderr, func() bool {
				status, doc, err := h.document("", "GET", "/readyz", nil)
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
				status, doc, err := hosts[i%2].document("", "POST", "/tools/draw/call", []byte(`{"input":{}}`))
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
		until(t, "no 8 more calls are answered", &c.stderr, func() bool { return calls.Load() >= from+8 })
	}
	more()
	write(file, old, next)
	held(old, next)
	more()
	write("next.key", next)
	if out := c.command("tenant", "rewrap", "--db", c.database, "--key-file", file, "--new-key-file", "next.key"); !strings.Contains(out, next.ID()) || !strings.Contains(out, "hint: add this key to the key_file of every host") {
		t.Errorf("rewrap says:\n%s", out)
	}
	more()
	write(file, next)
	held(next)
	more()
	close(stop)
	load.Wait()
	if out := c.command("doctor", c.database, "--key-file", file); !strings.Contains(out, "data key under "+next.ID()) {
		t.Errorf("the doctor says:\n%s", out)
	}

	// Now nobody tells the hosts. They take runs until they find out.
	var mu sync.Mutex
	var accepted []string
	for i := range 4 {
		load.Go(func() {
			for range 1000 {
				status, doc, err := hosts[i%2].document("", "POST", "/runs", []byte(`{"tool":"draw","input":{}}`))
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
	c.command("tenant", "rewrap", "--db", c.database, "--key-file", file, "--new-key-file", "last.key")
	load.Wait()
	for _, h := range hosts {
		until(t, "no host says that its key is stale", &h.stderr, func() bool {
			status, doc, err := h.document("", "GET", "/readyz", nil)
			return err == nil && status == http.StatusServiceUnavailable && fmt.Sprint(doc["checks"].(map[string]any)["keys"]) == "failed"
		})
	}
	write(file, last)
	held(last)
	t.Logf("%d calls while the key changed, %d runs accepted before hosts with a stale key got the new one", calls.Load(), len(accepted))
	hosts[0].finish()
	for _, id := range accepted {
		until(t, "the end of "+id+" cannot be read", &hosts[0].stderr, func() bool {
			status, doc, err := hosts[0].document("", "GET", "/runs/"+id, nil)
			if err == nil && status == http.StatusOK && doc["status"] != "completed" {
				t.Errorf("a run ended because a host had a stale key: %v", doc)
			}
			return err == nil && status == http.StatusOK
		})
	}
}
