package pglog

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// run is a run that this process writes, and item an event of one that waits for its
// lane.
type (
	run  = pending.Run[none]
	item = pending.Item[none]
)

// none is what a lane keeps of a run.
type none = struct{}

// findRun is look, for [pending.Backend].
func (l *Log) findRun(ctx context.Context, runID string) (pending.Place, error) {
	if err := storable(runID); err != nil {
		return pending.Place{}, err
	}
	at, _, err := l.look(ctx, runID)
	return at, err
}

// isText reports whether the database can hold the text.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// storable refuses the id of a run that the database cannot hold.
func storable(runID string) error {
	if !isText(runID) {
		return fmt.Errorf("%w: run id %q has a zero byte, or is not UTF-8", eventlog.ErrInvalidAppend, runID)
	}
	return nil
}
