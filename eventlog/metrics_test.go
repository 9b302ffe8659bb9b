package eventlog_test

import (
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/memlog"
	"github.com/starling-host/starling/eventlog/sqlitelog"
)

type appends struct {
	mu   sync.Mutex
	seen []string
}

func (a *appends) ObserveEventlogAppend(kind, status string, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d < 0 {
		status = "before it began"
	}
	a.seen = append(a.seen, kind+" "+status)
}

func TestWithMetricsObservesAppends(t *testing.T) {
	var seen appends
	log := eventlog.WithMetrics(memlog.New(), &seen)
	defer log.Close()
	raw, err := event.EncodePayload(event.RunStarted{SchemaVersion: 1})
	if err != nil {
		t.Fatal(err)
	}
	first := event.Event{RunID: "r", Seq: 1, Timestamp: 1, Kind: event.KindRunStarted, Payload: raw}
	if err := log.Append(t.Context(), "r", first); err != nil {
		t.Fatal(err)
	}
	if err := log.Append(t.Context(), "r", first); err == nil {
		t.Error("the same event was taken twice")
	}
	if diff := cmp.Diff([]string{"RunStarted ok", "RunStarted error"}, seen.seen); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

// TestWithMetricsHidesNothing compares the methods of each backend with those
// that are left when it is measured.
func TestWithMetricsHidesNothing(t *testing.T) {
	file, err := sqlitelog.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), sqlitelog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, log := range []eventlog.EventLog{memlog.New(), file} {
		measured := reflect.TypeOf(eventlog.WithMetrics(log, &appends{}))
		for i := range reflect.TypeOf(log).NumMethod() {
			m := reflect.TypeOf(log).Method(i)
			if got, ok := measured.MethodByName(m.Name); !ok || got.Type.NumIn() != m.Type.NumIn() {
				t.Errorf("%T loses %s", log, m.Name)
			}
		}
		_, want := log.(eventlog.SchemaKeeper)
		if _, got := eventlog.WithMetrics(log, &appends{}).(eventlog.SchemaKeeper); got != want {
			t.Errorf("%T: SchemaKeeper is %t, want %t", log, got, want)
		}
	}
}

func TestWithMetricsOfAPlainLog(t *testing.T) {
	inner := plain{memlog.New()}
	log := eventlog.WithMetrics(inner, &appends{})
	if _, ok := log.(eventlog.RunLister); ok {
		t.Error("a log that lists nothing became a RunLister")
	}
	if got := log.(interface{ Unwrap() eventlog.EventLog }).Unwrap(); got != eventlog.EventLog(inner) {
		t.Errorf("unwraps to %T", got)
	}
	if got := eventlog.WithMetrics(inner, nil); got != eventlog.EventLog(inner) {
		t.Errorf("without an observer: %T", got)
	}
}

func TestAMeasuredLogIsALog(t *testing.T) {
	logtest.Run(t, func(testing.TB) eventlog.EventLog { return eventlog.WithMetrics(memlog.New(), &appends{}) })
}
