package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// heapSlack is how many bytes a host may make before the collector looks.
	heapSlack = 64 << 20
	// smallHeap is the heap that the runtime never looks at below, times GOGC / 100.
	smallHeap = 4 << 20
	// doubling is Go's own GOGC: it looks when the heap has doubled.
	doubling = 100
)

// pacer has Go's collector look when the heap has grown by heapSlack, or has doubled
// if that is more. By itself it looks whenever the few megabytes of a host have doubled:
// every few calls where there are many, and each time all of them stop.
//
// GOGC is set anew after each look, in the cleanup of an object that nobody holds.
type pacer struct {
	live []metrics.Sample

	mu      sync.Mutex // held while GOGC is set
	percent int
	over    bool
}

// relaxCollector starts a pacer, unless somebody has decided by the variable GOGC. The
// caller ends it with stop.
func relaxCollector() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	p := &pacer{live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.looked()
	return p.stop
}

// looked is called after each look, and once before.
func (p *pacer) looked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	metrics.Read(p.live)
	if now := percentFor(p.live[0].Value.Uint64()); now != p.percent {
		p.percent = now
		debug.SetGCPercent(now)
	}
	runtime.AddCleanup(new([smallObject]byte), (*pacer).looked, p)
}

func (p *pacer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	debug.SetGCPercent(doubling)
}

// smallObject is large enough for an object of its own: smaller ones share one.
const smallObject = 16

// percentFor is the GOGC for a heap with so many bytes alive, in steps, because to set it
// stops everybody for a moment.
func percentFor(live uint64) int {
	const step = 50
	percent := int(doubling * heapSlack / max(live, smallHeap))
	return max(percent/step*step, doubling)
}
