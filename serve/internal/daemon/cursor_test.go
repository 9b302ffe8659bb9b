package daemon

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// waitingRoom lists runs that are open.
type waitingRoom struct {
	eventlog.EventLog
	runs []eventlog.RunSummary
}

func (r *waitingRoom) ListRunsPage(_ context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	return o.Select(r.runs)
}

// begin adds a run that is newer than all, or as old as the newest.
func (r *waitingRoom) begin(id string, at int64) {
	r.runs = slices.Insert(r.runs, 0, eventlog.RunSummary{RunID: id, StartedAt: time.Unix(at, 0), LastSeq: 1})
}

// TestPagesStayWhereTheyAre: whatever begins, ends or is removed between two pages, each
// run that was there all the time is on one of them.
func TestPagesStayWhereTheyAre(t *testing.T) {
	for name, tc := range map[string]struct {
		atOnce    int // runs that begin at the same time
		meanwhile func(r *waitingRoom, page int)
	}{
		"nothing": {4, func(*waitingRoom, int) {}},
		"many begin": {4, func(r *waitingRoom, page int) {
			for i := range 50 {
				r.begin(fmt.Sprint("new", page, "-", i), int64(1000*page+i))
			}
		}},
		"those of the page end": {2, func(r *waitingRoom, _ int) { r.runs = r.runs[3:] }},
	} {
		room := &waitingRoom{}
		var want, got []string
		for i := range 10 {
			room.begin(fmt.Sprint("run", i), int64(i/tc.atOnce))
			want = append([]string{fmt.Sprint("run", i)}, want...)
		}
		view, o := eventview.View{Log: room}, eventlog.RunPageOptions{Limit: 3, Status: eventlog.StatusOpen}
		var at cursor
		for page := 1; ; page++ {
			runs, next, _, err := at.page(t.Context(), view, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range runs {
				got = append(got, run.RunID)
			}
			if next == "" {
				break
			}
			var ok bool
			if at, ok = parseCursor(next, listing(view, o)); !ok {
				t.Fatalf("%s: %s is no cursor", name, next)
			}
			tc.meanwhile(room, page)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
