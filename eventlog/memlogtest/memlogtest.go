// Package memlogtest writes to a log in memory as another program would.
package memlogtest

import (
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/memlog"
)

// Adopt adds the next event of a run to a log in memory as another program wrote it,
// under any run id. It checks nothing and wakes no stream.
func Adopt(l *memlog.Log, ev event.Event) { memlog.Adopt(l, ev) }
