package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/treetest"
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
	writes = "pwrite64" // which strace counts in each thread
)

// inProcess has the host start no workers, which strace would have to follow.
const inProcess = "isolation: inline\n"

// TestADiskThatFailsLosesNothing makes the system calls of a host under load fail, and gives its files a
// largest size. A client that cannot be served gets an error, and no promise; a new host has every
// run that was promised, and the log is valid and replays.
func TestADiskThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	treetest.Needs(t, "bash") // which sets a largest size of files
	c := newCluster(t, closedPolicy, "alice")
	c.askFreely("alice")
	c.start(inProcess, nil)
	c.upload("alice")
	c.stop()
	limited := func(args []string) []string {
		info, err := os.Stat(c.where())
		c.must(err)
		return []string{"bash", "-c", fmt.Sprintf("ulimit -f %d && exec %s", (info.Size()+4<<20)>>10, strings.Join(args, " "))}
	}
	total := 0
	for _, fault := range []struct {
		name     string
		wrap     func([]string) []string
		bytes    int  // of each input
		survives bool // the host does, and says so
	}{
		{"one sync", faulty(t, syncs, "error=EIO:when=40"), 1, false},
		{"all syncs from then on", faulty(t, syncs, "error=EIO:when=40+"), 1, false},
		{"one write", faulty(t, writes, "error=EIO:when=250"), 1, false},
		{"no room from then on", faulty(t, writes, "error=ENOSPC:when=250+"), 1, false},
		{"files have their largest size", limited, 200 << 10, true},
	} {
		t.Run(fault.name, func(t *testing.T) {
			c.t = t
			c.start(inProcess, fault.wrap)
			promised := c.untilRefused(3, 1000, fault.bytes, fault.survives)
			c.kill()
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
	c.t = t
	c.proved(total)
}

// untilRefused asks for runs until so many requests were refused or the host has
// ended, unless it survives, and returns the runs that were promised.
func (c *cluster) untilRefused(refusals, most, bytes int, survives bool) (promised []string) {
	c.t.Helper()
	body := fmt.Appendf(nil, `{"tool":"echo","input":{"x":%q}}`, strings.Repeat("x", bytes))
	for range most {
		status, text, err := c.ask("alice", "POST", "/api/v1/runs", "application/json", body)
		var doc struct {
			Run  string `json:"run_id"`
			Type string `json:"type"`
		}
		switch {
		case err != nil:
			if words := c.lastWords(); survives || !strings.Contains(words, "sqlitelog") {
				c.t.Errorf("the host has gone, or does not say why: %v\n%s", err, tail(words, 1000))
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
func (c *cluster) lastWords() string {
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
	c := newCluster(t, closedPolicy, "alice")
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
