package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/serve/tenant"
)

// faulty has the system calls of the host fail or wait, as strace(1) writes it. The
// host stays the process that is started.
func faulty(t *testing.T, calls, fault string) func([]string) []string {
	t.Helper()
	treetest.Needs(t, "strace")
	return func(args []string) []string {
		return append([]string{"strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=" + calls, "-e", "inject=" + calls + ":" + fault}, args...)
	}
}

// The system calls that bring a log to the disk.
const (
	syncs  = "fsync,fdatasync"
	writes = "pwrite64"
)

// inProcess has the host start no workers, which strace would have to follow.
const inProcess = "isolation: inline\n"

// TestADiskThatFailsLosesNothing has the system calls of a host under load fail.
// Whoever cannot be served is told so, and not promised anything; a new host has every
// run that was promised, and the log is valid and replays.
func TestADiskThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "version: \"1.0\"\n", "alice")
	c.withStore(func(s *tenant.Store) {
		c.must(s.Change(t.Context(), "alice", askFreely))
	})
	c.start(inProcess, nil)
	c.upload("alice")
	c.stop()
	total := 0
	for _, fault := range []struct{ name, calls, fault string }{
		{"one sync", syncs, "error=EIO:when=40"},
		{"all syncs from then on", syncs, "error=EIO:when=40+"},
		{"one write", writes, "error=EIO:when=600"},
		{"no room from then on", writes, "error=ENOSPC:when=600+"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			c.t = t
			c.start(inProcess, faulty(t, fault.calls, fault.fault))
			promised := c.untilRefused(3, 1000)
			c.cmd.Process.Kill()
			c.cmd.Wait()
			c.start(inProcess, nil)
			for _, run := range promised {
				if status, text, err := c.ask("alice", "GET", "/api/v1/runs/"+run+"/stream", "", nil); err != nil || !bytes.Contains(text, []byte(`"status":"completed"`)) {
					t.Errorf("run %s was promised: %d %s %v", run, status, tail(string(text), 300), err)
				}
			}
			c.stop()
			if len(promised) == 0 {
				t.Error("nothing was promised, so nothing is proved")
			}
			t.Logf("%d runs were promised", len(promised))
			total += len(promised)
		})
	}
	proved(t, c.dir, "host.db", total)
}

// untilRefused asks for runs until so many requests were refused or the host has
// ended, and returns the runs that were promised.
func (c *crowd) untilRefused(refusals, most int) (promised []string) {
	c.t.Helper()
	for range most {
		status, text, err := c.ask("alice", "POST", "/api/v1/runs", "application/json", []byte(`{"tool":"echo","input":{"x":1}}`))
		var doc struct {
			Run  string `json:"run_id"`
			Type string `json:"type"`
		}
		switch {
		case err != nil:
			if words := c.lastWords(); !strings.Contains(words, "sqlitelog") {
				c.t.Errorf("the host has gone and does not say why: %v\n%s", err, tail(words, 1000))
			}
			return promised
		case json.Unmarshal(text, &doc) != nil:
			c.t.Fatalf("%d %s", status, text)
		case status == http.StatusAccepted:
			promised = append(promised, doc.Run)
		case status >= http.StatusInternalServerError && doc.Type != "":
			if refusals--; refusals == 0 {
				return promised
			}
		case status == http.StatusTooManyRequests:
			time.Sleep(20 * time.Millisecond) // until it has made some
		default:
			c.t.Errorf("%d %s", status, text)
		}
	}
	c.t.Fatalf("nothing has failed after %d runs", len(promised))
	return nil
}

// lastWords returns what the host has said when it has ended, which it has to by itself
// within awaitTime: its connections end before all of it has been heard.
func (c *crowd) lastWords() string {
	stuck := time.AfterFunc(awaitTime, func() { c.cmd.Process.Kill() })
	defer stuck.Stop()
	c.cmd.Wait()
	return c.stderr.String()
}

// TestRunAcceptedAfterSync has every sync of a host take a time. No run is
// promised sooner than that.
func TestRunAcceptedAfterSync(t *testing.T) {
	t.Parallel()
	const sync = 200 * time.Millisecond
	wrap := faulty(t, syncs, "delay_exit=200000")
	c := newCrowd(t, "version: \"1.0\"\n", "alice")
	c.start(inProcess, nil)
	c.upload("alice")
	c.stop()
	c.start(inProcess, wrap)
	for range 5 {
		began := time.Now()
		status, text, err := c.ask("alice", "POST", "/api/v1/runs", "application/json", []byte(`{"tool":"echo","input":{"x":1}}`))
		if took := time.Since(began); err != nil || status != http.StatusAccepted || took < sync {
			t.Errorf("promised after %s, and a sync takes %s: %d %s %v", took, sync, status, text, err)
		}
	}
}
