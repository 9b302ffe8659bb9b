package systemtest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/serve/tenant"
)

// TestConnectionLimitChangesWhileServing changes, while a host serves, how many connections
// the tools of a tenant may have: the next calls of a module that is loaded already have
// no more, and no fewer.
func TestConnectionLimitChangesWhileServing(t *testing.T) {
	t.Parallel()
	const calls = 4
	up := &barrierServer{most: calls}
	server := httptest.NewServer(up)
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	c := newCluster(t, fmt.Sprintf("version: \"1.0\"\npermissions:\n  network:\n    allow:\n      - {host: 127.0.0.1, ports: [%s], schemes: [http], private: true}\n", port), "alice")
	c.start("limits: {running: 4}\n", nil)
	c.upload("alice")
	for _, limit := range []int{calls, 1, calls} {
		c.withStore(func(s *tenant.Store) {
			c.must(s.Change(t.Context(), "alice", func(it *tenant.Tenant) { it.Limits = tenant.Limits{RequestsPerSecond: -1, Connections: limit} }))
		})
		up.await(limit)
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				if status, text, err := c.call("alice", "send", map[string]any{"URL": server.URL}); err != nil || status != http.StatusOK {
					t.Errorf("%d %s %v", status, text, err)
				}
			})
		}
		wg.Wait()
		if up.top != limit {
			t.Errorf("%d connections at once, want %d", up.top, limit)
		}
	}
	c.stop()
}

// barrierServer is a server that answers when as many requests are there as it waits for, or
// after a while: then there are no more.
type barrierServer struct {
	mu        sync.Mutex
	most      int
	here, top int
	all       chan struct{} // closed when there were so many
}

// await has it wait for so many at once.
func (c *barrierServer) await(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most, c.top, c.all = n, 0, make(chan struct{})
}

func (c *barrierServer) ServeHTTP(http.ResponseWriter, *http.Request) {
	c.mu.Lock()
	c.here++
	c.top = max(c.top, c.here)
	if c.here == c.most {
		select {
		case <-c.all:
		default:
			close(c.all)
		}
	}
	all := c.all
	c.mu.Unlock()
	select {
	case <-all:
		time.Sleep(100 * time.Millisecond) // for one too many to show itself
	case <-time.After(awaitTime):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.here--
}
