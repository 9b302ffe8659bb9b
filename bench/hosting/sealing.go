package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/queuetest"
)

// sealEvery is how often checkpoints are signed here. A host does it after 1000 runs.
const sealEvery = 500 * time.Millisecond

func sealed(queue string) string { return queue + ", sealed" }

// sealing measures runs that go through the queue of a host that seals its database, against
// one that does not.
func (b *bench) sealing(ctx context.Context) error {
	const workers = 64
	plain, err := b.openHosts(ctx, "unsealed", workers)
	if err != nil {
		return err
	}
	h, err := b.openHosts(ctx, "sealed", workers)
	if err != nil {
		return err
	}
	key, err := seal.NewKey("bench")
	if err != nil {
		return err
	}
	t, err := take(ctx, b.rounds, 2*b.flow,
		flowing(onSQLite, plain.sqlite.EmptyRuns(workers)), flowing(onPostgres, plain.postgres.EmptyRuns(workers)),
		flowingSealed(onSQLite, h.sqlite, workers, key), flowingSealed(onPostgres, h.postgres, workers, key))
	if err != nil {
		return err
	}
	const load = "64 callers and workers, 2 events a run, a checkpoint every half second"
	for _, name := range []string{onSQLite, onPostgres} {
		b.report.note(load, t, sealed(name), name)
		b.report.atLeast(0.98, load, sealed(name)+" / not sealed", t.ratio(sealed(name), name))
	}
	return errors.Join(plain.close(), h.close())
}

// flowingSealed enqueues and works, and signs checkpoints meanwhile.
func flowingSealed(name string, h queuetest.Host, workers int, key *seal.Key) contender {
	sealer, c := seal.NewSealer(h.Log.(eventlog.Database), key), flowing(sealed(name), h.EmptyRuns(workers))
	run := c.rate
	c.rate = func(ctx context.Context, d time.Duration) (float64, error) {
		var failed error
		ended := make(chan struct{})
		var signing sync.WaitGroup
		signing.Go(func() {
			for failed == nil {
				select {
				case <-time.After(sealEvery):
					_, failed = sealer.Seal(ctx)
				case <-ended:
					return
				}
			}
		})
		rate, err := run(ctx, d)
		close(ended)
		signing.Wait()
		return rate, errors.Join(err, failed)
	}
	return c
}
