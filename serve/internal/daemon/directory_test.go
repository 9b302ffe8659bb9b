package daemon_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// TestLimitsHoldFromTheFirstRequest: the queue does not wait for the next look at all
// tenants to know what one may that was created, or whose limits were changed, just now.
func TestLimitsHoldFromTheFirstRequest(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		var err error
		if c.Directory, err = daemon.NewDirectory(t.Context(), c.Tenants, tenant.Limits{}, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		q.Limits = func(id string) queue.Limits {
			l := c.Directory.Limits(id)
			l.Paused = true // so that all of them wait
			return l
		}
	})
	w.addTenant("new", tenant.Limits{Waiting: 1})
	enqueue := func(want int) {
		t.Helper()
		if got := w.do("new", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Guess."}`)); got.Code != want {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	}
	enqueue(http.StatusAccepted)
	enqueue(http.StatusTooManyRequests)
	if err := w.tenants.Change(t.Context(), "new", func(l *tenant.Tenant) { l.Limits.Waiting = 2 }); err != nil {
		t.Fatal(err)
	}
	enqueue(http.StatusAccepted)
	enqueue(http.StatusTooManyRequests)
}
