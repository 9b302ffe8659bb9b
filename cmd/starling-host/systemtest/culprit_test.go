package systemtest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/starling-host/starling/serve/queue"
)

// TestRunThatKillsHostsFails kills a host whenever a run has begun, by the
// request that it makes.
func TestRunThatKillsHostsFails(t *testing.T) {
	skipShort(t)
	t.Parallel()
	asked := make(chan string, 1)
	s := &shop{Server: httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // without which nobody notices that the host is dead
		asked <- r.URL.Path
		<-r.Context().Done()
	}))}
	t.Cleanup(s.Close)
	c := newShopCluster(t, t.TempDir(), "host.db", s)
	c.start("", nil)
	c.upload("alice")
	id, err := c.order("once", s.URL, 1)
	if err != nil {
		t.Fatal(err)
	}
	for deaths := 0; ; deaths++ {
		doc := c.untilEnded(id, asked)
		if doc == nil && deaths <= queue.MaxDeaths {
			c.kill()
			c.start("", nil)
			continue
		}
		want := fmt.Sprintf("%d hosts died while they made the run", queue.MaxDeaths)
		failure, _ := doc["error"].(map[string]any)
		if doc["status"] != "failed" || failure["message"] != want || deaths != queue.MaxDeaths+1 {
			t.Errorf("after %d deaths: %v", deaths, doc)
		}
		break
	}
	c.stop()
	c.proved(1)
}

// untilEnded waits for the end of a run, and returns nil if something else happens
// before.
func (h *host) untilEnded(id string, other <-chan string) map[string]any {
	t := h.cluster.t
	t.Helper()
	for deadline := time.Now().Add(awaitTime); time.Now().Before(deadline); {
		select {
		case <-other:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		status, doc, err := h.document("", "GET", "/runs/"+id, nil)
		if err != nil || status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Fatalf("%d, %v, %v\n%s", status, doc, err, &h.stderr)
		}
		if status == http.StatusOK && doc["status"] != "open" {
			return doc
		}
	}
	t.Fatalf("run %s neither ends nor gets on\n%s", id, &h.stderr)
	return nil
}
