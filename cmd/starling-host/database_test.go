package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/sqlitelog"
)

// A log that is not valid has an exit code of its own, which what is wrong with the
// place that it is in has not.
func TestWhatIsSaidOfALogThatCannotBeRead(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), errors.New("sqlitelog: file is not a database (26)"), exitInvalid},
		{t.Context(), fmt.Errorf("%w: unable to open database file (14)", sqlitelog.ErrWALNotReadable), exitFailed},
		{t.Context(), eventlog.ErrSchemaTooNew, exitFailed},
		{ended, context.Canceled, exitCancelled},
	} {
		if f := explain(unreadable(c.ctx, c.err)); f.code != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, f.code, c.want)
		}
	}
}
