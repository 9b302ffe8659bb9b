package sqlitelog

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// pollEvery is how often a log with streams looks for commits of other
// processes. This process's own commits wake the streams themselves.
const pollEvery = 100 * time.Millisecond

// poller wakes all streams when another process has committed. That has each of them
// read the log, so what this process commits itself must not do it.
type poller struct {
	once    sync.Once
	cancel  context.CancelFunc
	done    chan struct{}
	version func(ctx context.Context, r *conn) (int64, error)

	looked atomic.Uint64 // transactions in which the writer has looked, see [Log.noteOtherCommits]
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
// another one has committed. When it cannot be read, the streams look by themselves,
// and the next tick tries a new connection.
func (p *poller) run(ctx context.Context, l *Log) {
	var r *conn
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for seen := (pollState{version: -1}); ; {
		select {
		case <-ctx.Done():
			if r != nil {
				r.Close()
			}
			return
		case <-tick.C:
		}
		if l.hub.Idle() {
			continue
		}
		var version int64
		var err error
		if r == nil {
			r, err = l.readers.open(ctx)
		}
		if err == nil {
			version, err = p.version(ctx, r)
		}
		switch {
		case err != nil:
			if r != nil {
				r.Close()
			}
			r, seen = nil, pollState{version: -1}
			l.hub.WakeAll()
		case seen.foreign(version, p.looked.Load()):
			l.hub.WakeAll()
		}
	}
}

func dataVersion(ctx context.Context, r *conn) (int64, error) {
	return r.integer(ctx, "PRAGMA data_version")
}

// close ends the polling, and keeps it from starting.
func (p *poller) close() {
	p.once.Do(func() {})
	if p.cancel != nil {
		p.cancel()
		<-p.done
	}
}

// pollState is what the poller knew of the file when it looked last.
type pollState struct {
	version int64  // data_version of the poller's connection
	looked  uint64 // transactions in which the writer had looked
	changed bool   // something was committed of which the streams may not know
}

// foreign reports whether the streams are to be told that another process may have
// committed. The poller's connection cannot tell a commit of the writer from one of
// another process; the writer can, in the next transaction that it begins. So as long as the
// writer goes on nothing is said here, and the first time that it has rested between two
// looks, whatever has changed since the last time is.
func (s *pollState) foreign(version int64, looked uint64) bool {
	s.changed = s.changed || version != s.version
	rested := looked == s.looked
	s.version, s.looked = version, looked
	if !s.changed || !rested {
		return false
	}
	s.changed = false
	return true
}

// noteOtherCommits is told after each transaction whether the writer has found, at its
// beginning, that another process had committed since the one before.
func (l *Log) noteOtherCommits(found bool) {
	if found {
		l.hub.WakeAll()
	}
	l.poll.looked.Add(1)
}
