package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{0: 1600, 4 << 20: 1600, 10 << 20: 600, 33 << 20: 150, 64 << 20: 100, 1 << 40: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("with %d bytes GOGC is %d, want %d", live, got, want)
		}
	}
}

// TestTheCollectorIsRelaxed while the heap is small, and as it was when it is large.
func TestTheCollectorIsRelaxed(t *testing.T) {
	t.Setenv("GOGC", "")
	stop := relaxCollector()
	defer stop()
	awaitPercent(t, func(p uint64) bool { return p > doubling })
	large := make([]byte, 2*heapSlack)
	awaitPercent(t, func(p uint64) bool { return p == doubling })
	runtime.KeepAlive(large)
	large = nil
	awaitPercent(t, func(p uint64) bool { return p > doubling })
	stop()
	awaitPercent(t, func(p uint64) bool { return p == doubling })
}

// awaitPercent collects until GOGC is right.
func awaitPercent(t *testing.T, right func(percent uint64) bool) {
	t.Helper()
	gogc := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for deadline := time.Now().Add(awaitTime); ; {
		runtime.GC()
		metrics.Read(gogc)
		if right(gogc[0].Value.Uint64()) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("GOGC stays %d", gogc[0].Value.Uint64())
		}
	}
}
