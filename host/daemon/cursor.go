package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/starling-host/starling/eventlog"
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

func (c cursor) String() string {
	b, _ := json.Marshal(c) // two numbers and a text
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(text string) (c cursor, ok bool) {
	if text == "" {
		return c, true
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) > 1024 || json.Unmarshal(b, &c) != nil || c.Offset < 0 {
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
	want := o.Limit
	o.Offset = c.Offset
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
				return runs, cursor{o.Offset + i + 1, run.StartedAt.UnixNano(), run.RunID}.String(), total, nil
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
