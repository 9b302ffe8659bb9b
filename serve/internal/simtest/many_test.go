package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/serve/queue"
)

// What the model of many hosts takes for granted: the defaults of a host, runs of 100 ms, and 200 submissions
// a second for 100 tenants, which arrive at hosts and points in time by chance.
const (
	manyWay     = time.Millisecond     // to the server or back, on average
	manyWork    = 8 * time.Millisecond // of a transaction that hands out jobs
	manyRun     = 100 * time.Millisecond
	manyRate    = 200
	manyTenants = 100
)

// TestManyHosts prints the table of docs/serving.md: how up to a thousand hosts share a queue. Nothing fails
// but one host, which is killed while it works. Its job is handed out again.
func TestManyHosts(t *testing.T) {
	sizes := []int{1, 10}
	if os.Getenv("STARLING_NIGHTLY") != "" {
		sizes = append(sizes, 100, 1000)
	}
	for _, n := range sizes {
		synctest.Test(t, func(t *testing.T) { manyHosts(t, n) })
	}
}

func manyHosts(t *testing.T, n int) {
	db, err := openDatabase()
	if err != nil {
		t.Fatal(err)
	}
	defer db.close()
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	handles, queues := make([]*handle, n), make([]*queue.Queue, n)
	slow := make(chan *handle, 8) // what handlers of such runs have
	for i := range n {
		h := &handle{db: db, server: true, rng: rand.New(rand.NewPCG(1, uint64(i))), faults: faults{latency: manyWay, work: manyWork}}
		q, err := queue.Open(ctx, h, queue.Config{Label: fmt.Sprint("host", i)})
		if err != nil {
			t.Fatal(err)
		}
		handles[i], queues[i] = h, q
		working.Go(func() {
			_ = q.Work(ctx, func(ctx context.Context, l queue.Lease) error { return manyHandler(ctx, h, l, slow) })
		})
	}
	submit := func(at int, tenant, runID string) {
		first := (&logtest.Chain{RunID: runID}).Start("goal")
		if err := queues[at].Enqueue(ctx, queue.Job{RunID: runID, Tenant: tenant}, func(tx eventlog.Tx) error { return tx.Append(runID, first) }); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	time.Sleep(2 * time.Minute) // all have begun, each at its own time
	statements, _ := db.soFar()
	time.Sleep(time.Minute)
	later, _ := db.soFar()
	idle := float64(later-statements) / 60

	const runs = 10 * manyRate
	var clients sync.WaitGroup
	rng, waits, asked := rand.New(rand.NewPCG(2, 0)), make([]time.Duration, runs), make([]time.Time, runs)
	for i := range waits {
		at, tenant, runID := rng.IntN(n), fmt.Sprint("t", rng.IntN(manyTenants)), fmt.Sprint("run", i)
		asked[i] = time.Now()
		clients.Go(func() {
			submit(at, tenant, runID)
			waits[i] = time.Since(asked[i])
		})
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second/manyRate)))
	}
	clients.Wait()
	time.Sleep(time.Minute)
	_, claims := db.soFar()
	if len(claims) != runs {
		t.Errorf("%d hosts: %d jobs of %d were handed out", n, len(claims), runs)
	}
	starts := make([]time.Duration, 0, runs)
	for _, c := range claims {
		var i int
		fmt.Sscanf(c.runID, "run%d", &i)
		starts = append(starts, c.at.Sub(asked[i]))
	}
	slices.Sort(waits)
	slices.Sort(starts)

	again := "-"
	if n > 1 {
		submit(0, "slow", "slow")
		(<-slow).kill()
		killed := time.Now()
		<-slow
		longest := time.Since(killed)
		if _, all := db.soFar(); len(all)-len(claims) != 2 {
			t.Errorf("%d hosts: the job of a dead host was handed out %d times", n, len(all)-len(claims))
		}
		again = longest.Round(time.Second).String()
	}
	percent := func(of []time.Duration, p int) int64 { return of[(len(of)-1)*p/100].Milliseconds() }
	t.Logf("| %d | %d ms | %d ms | %d ms | %d ms | %s | %.0f |", n, percent(waits, 50), percent(waits, 99), percent(starts, 50), percent(starts, 99), again, idle)
}

// manyHandler ends the run after its time. Those of the tenant "slow" take long.
func manyHandler(ctx context.Context, h *handle, l queue.Lease, slow chan<- *handle) error {
	events, err := h.Read(ctx, l.RunID)
	if err != nil {
		return err
	}
	if err := l.Begin(ctx); err != nil {
		return err
	}
	d := manyRun
	if l.Tenant == "slow" {
		d = 10 * time.Second
		slow <- h
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	chain := logtest.Resume(events)
	return h.Append(ctx, l.RunID, l.Epoch, chain.Complete())
}
