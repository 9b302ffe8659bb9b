package sqlitelog

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog/internal/tail"
)

// pollEvery is how often a log with streams looks for commits of other
// processes. This process's own commits wake the streams themselves.
const pollEvery = 100 * time.Millisecond

// poller wakes all streams when another process has committed. Each of them then
// reads the log, so this process's own commits must not wake them all.
type poller struct {
	tail.Watcher
	version func(ctx context.Context, r *conn) (int64, error)

	looked atomic.Uint64 // transactions in which the writer has looked, see [Log.commit]
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

// pollState is the state of the file at the poller's last look.
type pollState struct {
	version int64  // data_version of the poller's connection
	looked  uint64 // transactions in which the writer had looked
	changed bool   // there was a commit that streams may not know
}

// foreign reports whether to wake the streams because another process may have committed.
// The poller's connection cannot tell a commit of the writer from another process's; the
// writer can, in the next transaction that it begins. So while the writer keeps writing,
// foreign returns false. Once the writer has rested between two looks, foreign reports any
// change since the last report.
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
