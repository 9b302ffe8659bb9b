package daemon_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// removals is a log from which runs are removed once that is due, and that tells with
// which options they were.
type removals struct {
	daemon.Log
	due  chan struct{}
	made chan eventlog.PruneOptions
}

func (r removals) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (eventlog.PruneReport, error) {
	select {
	case <-r.due:
	case <-ctx.Done():
		return eventlog.PruneReport{}, ctx.Err()
	}
	report, err := r.Log.PruneRuns(ctx, o)
	if !o.DryRun && report.Runs > 0 {
		r.made <- o
	}
	return report, err
}

// TestAHostRemovesOldRuns has a host keep runs for no time. One that has ended is gone
// soon, by a transaction that removes few at most; one without an end stays.
func TestAHostRemovesOldRuns(t *testing.T) {
	due, made := make(chan struct{}), make(chan eventlog.PruneOptions, 10)
	measured := prometheus.NewRegistry()
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		c.Log, c.Retention.OlderThan, c.Retention.Every = removals{c.Log, due, made}, time.Nanosecond, time.Millisecond
		c.Retained = observe.NewRetention(measured)
		q.Limits = func(tenant string) queue.Limits { return queue.Limits{Paused: tenant == "bob"} }
	})
	var waits struct {
		ID string `json:"run_id"`
	}
	if err := json.Unmarshal(w.do("bob", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Which number?"}`)).Body.Bytes(), &waits); err != nil {
		t.Fatal(err)
	}
	ends := w.accept(`{"goal":"Which number?"}`)
	w.awaitEnd(ends)
	close(due) // what ends between two looks at what there is goes with the last transaction
	if o := <-made; o.Limit <= 0 {
		t.Errorf("one transaction removes all there is: %+v", o)
	}
	for _, run := range []struct {
		who, id string
		want    int
	}{{"alice", ends, http.StatusNotFound}, {"bob", waits.ID, http.StatusOK}} {
		if answer := w.do(run.who, "GET", "/api/v1/runs/"+run.id, "", nil); answer.Code != run.want {
			t.Errorf("%s's run: %d %s", run.who, answer.Code, answer.Body)
		}
	}
	for range 10_000 {
		if all, err := measured.Gather(); err != nil {
			t.Fatal(err)
		} else if all[0].Metric[0].Gauge.GetValue() > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("when they were removed was not measured")
}
