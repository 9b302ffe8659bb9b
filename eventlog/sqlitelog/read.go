package sqlitelog

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Read implements [eventlog.EventLog].
func (l *Log) Read(ctx context.Context, runID string) ([]event.Event, error) {
	return tail.Collect(l.Events(ctx, runID, 0))
}

// Events implements [eventlog.EventSource]. No statement is open while the
// caller works, so a caller may take its time.
func (l *Log) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return l.runs.Events(ctx, runID, after, l.page)
}

func (l *Log) page(ctx context.Context, runID string, after uint64, n int) (evs []event.Event, err error) {
	err = l.readers.with(ctx, func(r *reader) error {
		evs, err = r.page(ctx, runID, after, n)
		return err
	})
	return evs, err
}

// Stream implements [eventlog.EventLog]. Events of another process are noticed
// within pollEvery.
func (l *Log) Stream(ctx context.Context, runID string) (<-chan event.Event, error) {
	l.poll.start(l)
	return l.hub.Stream(ctx, runID, l.page)
}

// pollEvery is how often a log with streams looks for commits of other
// processes. This process's own commits wake the streams themselves.
const pollEvery = 100 * time.Millisecond

// poller wakes all streams when another process has committed.
type poller struct {
	once   sync.Once
	cancel context.CancelFunc
	done   chan struct{}
}

func (p *poller) start(l *Log) {
	p.once.Do(func() {
		var ctx context.Context
		ctx, p.cancel = context.WithCancel(context.Background())
		p.done = make(chan struct{})
		go func() {
			defer close(p.done)
			p.run(ctx, l)
		}()
	})
}

// run compares SQLite's data_version, which changes on a connection when
// another one has committed. A file that cannot be read ends the polling; the
// streams will find out by themselves.
func (p *poller) run(ctx context.Context, l *Log) {
	r, err := openReader(ctx, l.readers.path, l.readers.query)
	if err != nil {
		return
	}
	defer r.close()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for seen := int64(-1); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.hub.Idle() {
			continue
		}
		v, err := r.conn.queryInt(ctx, "PRAGMA data_version")
		if err != nil {
			return
		}
		if v != seen {
			seen = v
			l.hub.WakeAll()
		}
	}
}

// close ends the polling, and keeps it from starting.
func (p *poller) close() {
	p.once.Do(func() {})
	if p.cancel != nil {
		p.cancel()
		<-p.done
	}
}

func unixNano(ns int64) time.Time { return time.Unix(0, ns).UTC() }
