package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
)

// A log that is not valid has an exit code of its own, which what is wrong with the
// place that it is in has not.
func TestUnreadableLogMessages(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), fmt.Errorf("%w: file is not a database (26)", eventlog.ErrLogCorrupt), exitInvalid},
		{t.Context(), fmt.Errorf("%w: unable to open database file (14)", store.ErrWALNotReadable), exitFailed},
		{t.Context(), fmt.Errorf("%w: disk I/O error (10)", eventlog.ErrUnavailable), exitFailed},
		{t.Context(), store.ErrNotLog, exitInvalid},
		{t.Context(), eventlog.ErrSchemaTooNew, exitFailed},
		{ended, context.Canceled, exitCancelled},
	} {
		if f := explain(unreadable(c.ctx, c.err)); f.code != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, f.code, c.want)
		}
	}
}
