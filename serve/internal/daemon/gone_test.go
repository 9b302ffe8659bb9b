package daemon_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// TestRequestWithHalfClosedConnection closes its side while it waits for a run that was accepted. It
// may still read, and is not told that nothing was done.
func TestRequestWithHalfClosedConnection(t *testing.T) {
	w := newWorld(t, func(_ *daemon.Config, q *queue.Config) { q.Grace = -1 })
	w.do("alice", "POST", "/api/v1/modules?name=spin", "application/wasm", spinning())
	const body = `{"input":{}}`
	c := w.dial(t)
	c.says(fmt.Sprintf("POST /api/v1/tools/spin/call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", w.keys["alice"], len(body), body))
	w.awaitMetrics(`starling_runs_in_flight 1`)
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	status, text := c.hears()
	if status != http.StatusAccepted || !strings.Contains(text, `"status":"open"`) {
		t.Errorf("%d %s", status, text)
	}
	w.awaitMetrics(`starling_http_requests_total{code="202",route="POST /api/v1/tools/{name}/call"} 1`)
}
