package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/host/logview"
)

// cursor is where a page of a listing ended. Runs that began since come before it
// and push what follows further back, so that the run at the old place was on the
// page already: it is passed over by time and id.
type cursor struct {
	Offset  int    `json:"o"`
	Started int64  `json:"t"` // of the last run on the page
	RunID   string `json:"r"`
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
	b, _ := json.Marshal(c) // two numbers and a text
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

// seen reports whether the run was on the page that the cursor ended, or before.
func (c cursor) seen(s eventlog.RunSummary) bool {
	if c.RunID == "" {
		return false
	}
	return s.StartedAt.After(time.Unix(0, c.Started)) || s.RunID == c.RunID
}

// maxSkips bounds the pages that are passed over to find where the last one ended.
const maxSkips = 20

// page returns the runs after the cursor, and the cursor after them: empty when
// there are no more.
func (c cursor) page(ctx context.Context, view logview.View, o eventlog.RunPageOptions) (runs []eventlog.RunSummary, next string, total int, err error) {
	want, of := o.Limit, listing(view, o)
	if o.Offset, err = c.start(ctx, view, o); err != nil {
		return nil, "", 0, err
	}
	for range maxSkips {
		p, err := view.Runs(ctx, o)
		if err != nil {
			return nil, "", 0, err
		}
		total = p.TotalMatching
		for i, run := range p.Runs {
			if c.seen(run) {
				continue
			}
			runs = append(runs, run)
			if len(runs) == want && o.Offset+i+1 < total {
				return runs, cursor{o.Offset + i + 1, run.StartedAt.UnixNano(), run.RunID}.String(of), total, nil
			} else if len(runs) == want {
				return runs, "", total, nil
			}
		}
		o.Offset += len(p.Runs)
		if len(p.Runs) == 0 || o.Offset >= total {
			break
		}
	}
	return runs, "", total, nil
}

// start returns where to look for the page after the cursor. That is the old place,
// but runs that have ended since leave the listing of those that are open and pull
// what follows to the front.
func (c cursor) start(ctx context.Context, view logview.View, o eventlog.RunPageOptions) (int, error) {
	step, at := o.Limit, c.Offset
	if o.Status != eventlog.StatusOpen {
		return at, nil
	}
	o.Limit = 1
	for range maxSkips {
		if at == 0 {
			break
		}
		o.Offset = at - 1
		p, err := view.Runs(ctx, o)
		if err != nil {
			return 0, err
		}
		if len(p.Runs) == 1 && c.seen(p.Runs[0]) {
			break
		}
		at = max(0, at-step)
	}
	return at, nil
}
