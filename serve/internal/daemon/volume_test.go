package daemon

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/tenant"
)

// askedLog counts how often it is asked, which takes a while.
type askedLog struct {
	Log
	times atomic.Int32
}

func (l *askedLog) Recorded(ctx context.Context, namespace string, since time.Time, each int64) (int64, int64, error) {
	l.times.Add(1)
	time.Sleep(time.Millisecond)
	return l.Log.Recorded(ctx, namespace, since, each)
}

// TestVolumeQuotaReleased some seconds after runs were removed by somebody else, and
// whoever asks for more in between has the log asked no more often.
func TestVolumeQuotaReleased(t *testing.T) {
	log, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "host.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, ev := range logtest.Finished("carol/run", 3) {
		if err := log.Append(t.Context(), "carol/run", ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Sync(t.Context(), "carol/run"); err != nil {
		t.Fatal(err)
	}
	asked := &askedLog{Log: log}
	v := newVolumes(asked, nil)
	carol := tenant.Tenant{ID: "carol", Limits: tenant.Limits{Recorded: 1, RecordedPerDay: -1}}
	change := func(to func(*volume)) {
		v.mu.Lock()
		defer v.mu.Unlock()
		of, _ := v.of.find(carol.ID, nil)
		to(of)
	}
	ago := func(d time.Duration) { change(func(of *volume) { of.asked = time.Now().Add(-d) }) }
	expect := func(what string, refused bool, times int32) {
		t.Helper()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := v.check(t.Context(), carol); (err != nil) != refused {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		wg.Wait()
		if got := asked.times.Swap(0); got != times {
			t.Errorf("%s: the log was asked %d times, want %d", what, got, times)
		}
	}
	expect("at first", true, 1)
	if _, err := log.PruneRuns(t.Context(), eventlog.PruneOptions{Namespace: "carol"}); err != nil {
		t.Fatal(err)
	}
	expect("just now", true, 0)
	ago(2 * believed)
	change(func(of *volume) { of.took = believed }) // the log has more to do than that
	expect("of a log that takes long", true, 0)
	change(func(of *volume) { of.took = 0 })
	expect("after some seconds", false, 1)
	expect("with room", false, 0)
}

// TestVolumeMeasureOfAGoneClient: a client that hangs up takes the answer from
// nobody else.
func TestVolumeMeasureOfAGoneClient(t *testing.T) {
	log, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "host.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	v := newVolumes(log, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.measure(gone, "carol"); err == nil {
		t.Fatal("the log answers who is gone")
	}
	if _, err := v.measure(t.Context(), "carol"); err != nil {
		t.Error(err)
	}
}
