package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/starling-host/starling/internal/treetest"
)

// stop ends the host as an operator does.
func (c *crowd) stop() {
	c.t.Helper()
	c.cmd.Process.Signal(syscall.SIGTERM)
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("the host ended with %v\n%s", err, tail(c.stderr.String(), 2000))
	}
}

// TestAFullDiskLosesNothing gives the host's files a largest size, has runs made
// until nothing can be written any more, and then a new host without that bound.
// Whoever cannot be served is told so, every run that was promised comes to its end,
// and the log is valid.
func TestAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	treetest.Needs(t, "bash") // which sets a largest size of files
	c := newCrowd(t, "version: \"1.0\"\n", "alice")
	c.start("", nil)
	c.upload("alice")
	c.stop()
	info, err := os.Stat(c.path("host.db"))
	c.must(err)
	c.start("", func(args []string) []string {
		return []string{"bash", "-c", fmt.Sprintf("ulimit -f %d && exec %s", (info.Size()+4<<20)>>10, strings.Join(args, " "))}
	})
	promised := c.untilFull(3, 200)
	c.cmd.Process.Kill()
	c.cmd.Wait()
	c.start("", nil)
	for _, run := range promised {
		if status, text, err := c.ask("alice", "GET", "/api/v1/runs/"+run+"/stream", "", nil); err != nil || !bytes.Contains(text, []byte(`"status":"completed"`)) {
			t.Errorf("run %s was promised: %d %s %v", run, status, tail(string(text), 300), err)
		}
	}
	c.stop()
	cmd := exec.Command("starling-host", "validate", "host.db", "--key-file", "host.key")
	cmd.Dir = c.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("validate: %v\n%s", err, out)
	}
	t.Logf("%d runs were promised", len(promised))
}

// untilFull asks for runs until so many requests were refused because the host
// cannot write, and returns the runs that were promised.
func (c *crowd) untilFull(refusals, most int) (promised []string) {
	c.t.Helper()
	body := fmt.Appendf(nil, `{"tool":"echo","input":{"x":%q}}`, strings.Repeat("x", 200<<10))
	for range most {
		status, text, err := c.ask("alice", "POST", "/api/v1/runs", "application/json", body)
		var doc struct {
			Run  string `json:"run_id"`
			Type string `json:"type"`
		}
		switch {
		case err != nil:
			c.t.Fatalf("the host has gone: %v\n%s", err, tail(c.stderr.String(), 2000))
		case json.Unmarshal(text, &doc) != nil:
			c.t.Fatalf("%d %s", status, text)
		case status == http.StatusAccepted:
			promised = append(promised, doc.Run)
		case status == http.StatusInternalServerError || status == http.StatusServiceUnavailable:
			if doc.Type == "" {
				c.t.Errorf("not a problem: %s", text)
			}
			if refusals--; refusals == 0 {
				return promised
			}
		case status != http.StatusTooManyRequests:
			c.t.Errorf("%d %s", status, text)
		}
	}
	c.t.Fatalf("nothing was full after %d runs", len(promised))
	return nil
}
