package daemon

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/logview"
)

// waitingRoom lists runs that are open.
type waitingRoom struct {
	eventlog.EventLog
	runs []eventlog.RunSummary
}

func (r *waitingRoom) ListRuns(context.Context) ([]eventlog.RunSummary, error) {
	return slices.Clone(r.runs), nil
}

// Runs that end between two pages take none from the next one.
func TestPagesOfOpenRuns(t *testing.T) {
	room := &waitingRoom{}
	for i := range 9 {
		room.runs = append(room.runs, eventlog.RunSummary{RunID: fmt.Sprint("run", i), StartedAt: time.Unix(int64(100-i), 0), LastSeq: 1})
	}
	view, o := logview.View{Log: room}, eventlog.RunPageOptions{Limit: 4, Status: eventlog.StatusOpen}
	first, next, _, err := cursor{}.page(t.Context(), view, o)
	if err != nil || len(first) != 4 || first[3].RunID != "run3" {
		t.Fatalf("%v, %v", first, err)
	}
	room.runs = room.runs[3:]
	at, ok := parseCursor(next, listing(view, o))
	second, _, _, err := at.page(t.Context(), view, o)
	if err != nil || !ok || len(second) != 4 || second[0].RunID != "run4" || second[3].RunID != "run7" {
		t.Errorf("%v, %v", second, err)
	}
}
