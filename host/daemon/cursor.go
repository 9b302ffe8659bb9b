package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/host/logview"
)

// cursor is where a page of a listing ended: at the runs that began when its last one
// did. So the next page has what comes behind, whatever runs have begun, ended or been
// removed since.
type cursor struct {
	Started int64    `json:"t"` // of the last run on the page
	RunIDs  []string `json:"r"` // of the runs on this page and earlier ones that began then
}

// listing names what a page is of, so that a cursor goes on with nothing else.
func listing(view logview.View, o eventlog.RunPageOptions) string {
	return fmt.Sprintf("%q %q %q %d", view.Namespace, o.Status, o.Query, eventlog.Nanos(o.StartedAfter))
}

// checkBytes is the length of what a cursor begins with: a hash of the rest and of
// its listing. It keeps mistakes out and no secret; whoever computes one gets a page
// of their own runs.
const checkBytes = 8

func (c cursor) String(listing string) string {
	b, _ := json.Marshal(c) // a number and texts
	check := chain.Sum(append([]byte(listing), b...))
	return base64.RawURLEncoding.EncodeToString(append(check[:checkBytes], b...))
}

// parseCursor reads what String has written for the same listing.
func parseCursor(text, listing string) (c cursor, ok bool) {
	if text == "" {
		return c, true
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < checkBytes || json.Unmarshal(b[checkBytes:], &c) != nil || c.String(listing) != text {
		return cursor{}, false
	}
	return c, true
}

// page returns the runs after the cursor, and the cursor after them: empty when
// there are no more.
func (c cursor) page(ctx context.Context, view logview.View, o eventlog.RunPageOptions) (runs []eventlog.RunSummary, next string, total int, err error) {
	want, of := o.Limit, listing(view, o)
	o.Limit = want + 1 + len(c.RunIDs) // one more says whether there are more
	if len(c.RunIDs) > 0 {
		o.From = time.Unix(0, c.Started)
	}
	p, err := view.Runs(ctx, o)
	runs = slices.DeleteFunc(p.Runs, func(s eventlog.RunSummary) bool { return slices.Contains(c.RunIDs, s.RunID) })
	if err != nil || len(runs) <= want {
		return runs, "", p.TotalMatching, err
	}
	runs = runs[:want]
	return runs, c.after(runs).String(of), p.TotalMatching, nil
}

// after returns the cursor behind a page that begins at c.
func (c cursor) after(page []eventlog.RunSummary) cursor {
	for _, run := range page {
		if at := run.StartedAt.UnixNano(); at != c.Started {
			c = cursor{Started: at}
		}
		c.RunIDs = append(c.RunIDs, run.RunID)
	}
	return c
}
