package systemtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/serve/tenant"
)

// order asks for a run of the tool, which is promised when an id is returned.
func (h *host) order(key, url string, items int) (runID string, err error) {
	body := fmt.Appendf(nil, `{"tool":"order","input":{"url":%q,"items":%d}}`, url, items)
	status, doc, err := h.document(key, "POST", "/runs", body)
	if err != nil {
		return "", err
	}
	if status != http.StatusAccepted {
		return "", fmt.Errorf("status %d: %v", status, doc)
	}
	return doc["run_id"].(string), nil
}

// newShopCluster makes a cluster whose tenant alice may order in a shop.
func newShopCluster(t *testing.T, dir, database string, s *shop) *cluster {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	policy := fmt.Sprintf("version: \"1.0\"\npermissions:\n  network:\n    allow:\n      - {host: %q, ports: [%s], schemes: [http], private: true}\n", host, port)
	c := newClusterIn(t, dir, database, policy, "alice")
	c.tool = "order"
	return c
}

// promised is what clients know of the runs that they have asked for.
type promised struct {
	mu   sync.Mutex
	keys int               // of requests: request-0 and so on
	runs map[string]string // ids by the keys of requests that were answered
}

// newKey returns the key of a new request.
func (p *promised) newKey() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys++
	return fmt.Sprintf("request-%d", p.keys-1)
}

// keep takes note of an answer, which has to be the same as before.
func (p *promised) keep(t *testing.T, key, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other, again := p.runs[key]; again && other != id {
		t.Errorf("%s made run %s and run %s", key, other, id)
	}
	p.runs[key] = id
}

// of returns the ids as the tools see them.
func (p *promised) of(tenant string) []string {
	var full []string
	for _, id := range p.runs {
		full = append(full, tenant+"/"+id)
	}
	return full
}

// load has clients ask for runs until the function that it returns is called or the
// host dies.
func (p *promised) load(t *testing.T, h *host, url string, clients, items int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil && p.ask(ctx, t, h, p.newKey(), url, items) {
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// ask asks for one run until it is promised, and returns false if the host is gone.
func (p *promised) ask(ctx context.Context, t *testing.T, h *host, key, url string, items int) bool {
	for ctx.Err() == nil {
		id, err := h.order(key, url, items)
		if gone(err) {
			return false
		}
		if err == nil {
			p.keep(t, key, id)
			return true
		}
		time.Sleep(5 * time.Millisecond) // it has too much to do, or is going
	}
	return true
}

// repeat makes the requests without an answer again, because nobody knows whether
// they had arrived, and some of the others. Each must have made one run.
func (p *promised) repeat(t *testing.T, h *host, url string, items int) {
	t.Helper()
	for i := range p.keys {
		key := fmt.Sprintf("request-%d", i)
		if _, answered := p.runs[key]; answered && i%10 != 0 {
			continue
		}
		if !p.ask(t.Context(), t, h, key, url, items) {
			t.Fatalf("the host is gone\n%s", &h.stderr)
		}
	}
	if got := h.list("limit=1")["total"]; got != float64(p.keys) {
		t.Errorf("%d requests made %v runs, and not one each", p.keys, got)
	}
}

// gone reports whether an error means that the host is.
func gone(err error) bool {
	var network *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &network) && !network.Timeout()
}

// TestKilledHostLosesNoRun kills a host under load, twice (STARLING_NIGHTLY: 100). Every
// run that was promised comes to its end, a request that is sent again with its key
// makes no second run, no order whose answer was recorded is sent again, and every
// run validates and replays.
func TestKilledHostLosesNoRun(t *testing.T) {
	skipShort(t)
	t.Parallel()
	kills := treetest.Count(2, 2, 100)
	const items = 3
	s := openShop(t, "")
	c := newShopCluster(t, t.TempDir(), "host.db", s)
	runs := promised{runs: map[string]string{}}
	for i := range kills {
		c.start("", nil)
		if i == 0 {
			c.upload("alice")
		}
		stop := runs.load(t, c.host, s.URL, 4, items)
		s.await(t, 1+rand.IntN(30))
		c.kill()
		stop()
		s.remember(c.openRuns())
	}
	c.start("", nil)
	runs.repeat(t, c.host, s.URL, items)
	c.finish()
	c.stop()
	t.Logf("%d kills, %d runs, %d orders", kills, len(runs.runs), s.taken)
	s.check(t, runs.of("alice"), items)
	c.proved(len(runs.runs))
}

// openRuns returns the events of the runs that have no end.
func (c *cluster) openRuns() (events []event.Event) {
	c.t.Helper()
	ctx := c.t.Context()
	encrypted, err := store.Open(ctx, c.where(), store.Options{ReadOnly: true})
	c.must(err)
	defer encrypted.Close()
	log, err := tenant.Decrypt(ctx, encrypted, []tenant.MasterKey{c.master})
	c.must(err)
	page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Status: eventlog.StatusOpen, Limit: eventlog.MaxPageLimit})
	c.must(err)
	for _, r := range page.Runs {
		run, err := log.Read(ctx, r.RunID)
		c.must(err)
		events = append(events, run...)
	}
	return events
}
