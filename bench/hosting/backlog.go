package main

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-host/starling/internal/queuetest"
)

// backlogs measures how fast runs are worked off that lie there when the workers start,
// until all are worked and the workers have stopped, so that what became of each is
// durable. Before that, and not timed, callers enqueue ours one by one, and River's jobs
// are inserted by the thousand. So many workers are what ours are fastest with, and
// River on Postgres; River on SQLite may be a tenth faster with half of them.
func (b *bench) backlogs(ctx context.Context) error {
	const workers = 500
	h, r, lite, err := b.openQueues(ctx, "backlog", workers)
	if err != nil {
		return err
	}
	defer r.pool.Close()
	t, err := take(ctx, b.rounds, 0,
		b.workingOff(onSQLite, h.sqlite), contender{riverLite, lite.workOff(workers, b.jobs)},
		b.workingOff(onPostgres, h.postgres), contender{riverOwn, r.workOff(b.jobs)})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d workers, a backlog of %d runs of 2 events", workers, b.jobs)
	b.report.note(name, t, onSQLite, riverLite, onPostgres, riverOwn)
	b.report.atLeast(0, name, onSQLite+" / "+riverLite, t.ratio(onSQLite, riverLite))
	b.report.atLeast(0, name, onPostgres+" / "+riverOwn, t.ratio(onPostgres, riverOwn))
	return h.close()
}

// workingOff is a queue that works a backlog off.
func (b *bench) workingOff(name string, h queuetest.Host) contender {
	return contender{name, func(ctx context.Context, _ time.Duration) (float64, error) {
		took, err := h.EmptyRuns(64).WorkOff(ctx, b.jobs)
		return float64(b.jobs) / took.Seconds(), err
	}}
}
