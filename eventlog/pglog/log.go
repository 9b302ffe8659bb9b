package pglog

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// lanes is how many connections write, at most. While one waits for the server's disk the
// batches of the others are worked on; a fourth gains nothing.
const lanes = 3

// With fewer events than these on their way, one lane writes them all, or two do. It
// commits more of them at once then, which is worth more to them than company.
const (
	forOneLane  = 16
	forTwoLanes = 96
)

// Log is an event log in a PostgreSQL database. Use [Open] or [New].
type Log struct {
	pool     *pgxpool.Pool
	ownsPool bool
	opts     Options
	layout   atomic.Int64
	hub      tail.Hub
	lanes    [lanes]*lane
	notifier notifier
	listener listener
	marks    marks
	compared compared
	runs     *pending.Runs[none]
}

var (
	_ eventlog.EventLog      = (*Log)(nil)
	_ eventlog.EventSource   = (*Log)(nil)
	_ eventlog.RunLister     = (*Log)(nil)
	_ eventlog.RunPageLister = (*Log)(nil)
	_ eventlog.RunFinder     = (*Log)(nil)
	_ eventlog.RunPruner     = (*Log)(nil)
	_ eventlog.ModuleStore   = (*Log)(nil)
	_ eventlog.ModuleKeeper  = (*Log)(nil)
	_ eventlog.SchemaKeeper  = (*Log)(nil)
	_ eventlog.Transactor    = (*Log)(nil)
	_ eventlog.Fencer        = (*Log)(nil)
	_ eventlog.Shared        = (*Log)(nil)
)

func newLog(pool *pgxpool.Pool, o Options) *Log {
	l := &Log{pool: pool, opts: o}
	l.runs = pending.New(pending.Backend[none]{
		Name: "pglog", Sink: "server",
		Find: l.findRun, Refuse: l.refuse,
		Queue: l.queue,
	})
	for i := range l.lanes {
		l.lanes[i] = newLane(l)
	}
	l.notifier.init(l)
	l.listener.init(l)
	l.compared.every = compareEvery
	return l
}

// start begins to write, if the log does.
func (l *Log) start() {
	if l.opts.ReadOnly {
		return
	}
	for _, n := range l.lanes {
		go n.write()
	}
	go l.notifier.run()
}

// queue returns the queue of the lane that is to write a run of which nothing is on its
// way, for [pending.Backend].
func (l *Log) queue(runID string) *pending.Queue[none] {
	load := 0
	for _, n := range l.lanes {
		load += n.queue.Load()
	}
	return l.lanes[gate(runID)%lanesFor(load)].queue
}

// lanesFor is how many lanes share so many events that are on their way.
func lanesFor(load int) int32 {
	switch {
	case load < forOneLane:
		return 1
	case load < forTwoLanes:
		return 2
	}
	return lanes
}

// refuse says why the log takes nothing although it is open, if so.
func (l *Log) refuse() error {
	if l.opts.ReadOnly {
		return eventlog.ErrReadOnly
	}
	return eventlog.CheckSchema(int(l.layout.Load()), layoutVersion)
}

// readable says why nothing can be read, if so.
func (l *Log) readable() error {
	if l.runs.Closed() {
		return eventlog.ErrLogClosed
	}
	return eventlog.CheckSchema(int(l.layout.Load()), layoutVersion)
}

// Append implements [eventlog.EventLog]. It checks the event in memory and queues it;
// only the first event that this process appends to a run looks into the database, to
// find where the run stands. A run id with a zero byte is refused: PostgreSQL has no
// such texts.
func (l *Log) Append(ctx context.Context, runID string, ev event.Event) error {
	return l.runs.Append(ctx, runID, 0, ev)
}

// Sync implements [eventlog.EventLog]. A run of which nothing is on its way costs no
// more than a look into a map.
func (l *Log) Sync(ctx context.Context, runID string) error { return l.runs.Sync(ctx, runID, 0) }

// Close implements [eventlog.EventLog]. It writes what is queued, which takes up to
// [Options].Patience when the server is gone, and ends the streams.
func (l *Log) Close() error {
	if !l.runs.Close() {
		return nil
	}
	if !l.opts.ReadOnly {
		for _, n := range l.lanes {
			<-n.stopped
		}
		l.notifier.close()
		l.marks.clear(l)
	}
	l.hub.Close()
	l.listener.close()
	l.compared.work.Wait()
	if l.ownsPool {
		l.pool.Close()
	}
	return l.runs.Failure()
}
