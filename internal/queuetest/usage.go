package queuetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// usage has runs of two tenants end on two days. An attempt that comes back counts nothing,
// and what is older than is kept is removed.
func usage(t *testing.T, db Database) {
	clock := NewClock()
	h := db(t, queue.Config{Clock: clock, Lease: forever})
	of := map[string]tenant.DayUsage{
		"a/1": {Fuel: 5, Effects: 2, EgressBytes: 30, RecordedBytes: 400},
		"a/2": {Fuel: 1 << 62, Effects: -1, RecordedBytes: 1}, // which no run can use
		"a/3": {Fuel: 7},
		"b/1": {Fuel: 11},
	}
	stop := work(t, h, func(_ context.Context, l queue.Lease) error {
		l.Used(of[l.RunID])
		if l.RunID == "a/1" && l.Attempt == 1 {
			return errors.New("try again")
		}
		return nil
	})
	enqueue(t, h, queue.Job{RunID: "a/1", Tenant: "a", MaxAttempts: 2}, queue.Job{RunID: "a/2", Tenant: "a"}, queue.Job{RunID: "b/1", Tenant: "b"})
	clock.AdvanceUntil(t, time.Second, func() bool { _, err := h.Find(t.Context(), "a/1"); return errors.Is(err, queue.ErrNotFound) })
	for _, id := range []string{"a/2", "b/1"} {
		absent(t, h, id)
	}
	day := clock.Now().UTC().Truncate(24 * time.Hour)
	first := tenant.DayUsage{Day: day.Format(time.DateOnly), Runs: 2, Fuel: 5 + 1<<50, Effects: 2, EgressBytes: 30, RecordedBytes: 401}
	wantUsage(t, h, "a", 1, first)
	wantUsage(t, h, "b", 1, tenant.DayUsage{Day: day.Format(time.DateOnly), Runs: 1, Fuel: 11})
	stop()

	clock.Advance(24 * time.Hour)
	stop = work(t, h, func(_ context.Context, l queue.Lease) error { l.Used(of[l.RunID]); return nil })
	enqueue(t, h, queue.Job{RunID: "a/3", Tenant: "a"})
	absent(t, h, "a/3")
	next := tenant.DayUsage{Day: day.Add(24 * time.Hour).Format(time.DateOnly), Runs: 1, Fuel: 7}
	wantUsage(t, h, "a", 1, next)
	wantUsage(t, h, "a", 2, next, first)
	stop()

	clock.Advance((queue.UsageDays - 1) * 24 * time.Hour)
	stop = work(t, h, func(context.Context, queue.Lease) error { return nil })
	enqueue(t, h, queue.Job{RunID: "b/2", Tenant: "b"})
	absent(t, h, "b/2")
	wantUsage(t, h, "a", 10000, next)
	wantUsage(t, h, "b", 10000, tenant.DayUsage{Day: day.Add(queue.UsageDays * 24 * time.Hour).Format(time.DateOnly), Runs: 1})
	stop()
}

func wantUsage(t *testing.T, h Host, id string, days int, want ...tenant.DayUsage) {
	t.Helper()
	if got, err := h.Usage(t.Context(), id, days); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %+v, %v; want %+v", id, got, err, want)
	}
}
