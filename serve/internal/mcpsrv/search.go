package mcpsrv

import (
	"context"
	"errors"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/serve/internal/logview"
)

type diffArgs struct {
	A     string `json:"a" jsonschema:"minLength=1,description=Id of the first run"`
	B     string `json:"b" jsonschema:"minLength=1,description=Id of the second run"`
	From  uint64 `json:"from" jsonschema:"default=1,minimum=1,description=List differences from this event on"`
	Limit int    `json:"limit" jsonschema:"default=50,minimum=1,maximum=200,description=Differences at most"`

	Matches bool `json:"matches,omitempty" jsonschema:"description=List events that match as well"`
}

type runDiff struct {
	Same            bool        `json:"same"`
	FirstDivergence uint64      `json:"first_divergence,omitempty"` // number of the event
	Match           int         `json:"match"`
	Diff            int         `json:"diff"`
	OnlyA           int         `json:"only_a"`
	OnlyB           int         `json:"only_b"`
	Differences     []eventDiff `json:"differences"`      // and matches, if they are asked for
	Capped          bool        `json:"capped,omitempty"` // the runs are longer than what was compared
}

type eventDiff struct {
	Seq      uint64 `json:"seq"`
	Relation string `json:"relation"` // match, diff, only-a or only-b
	A        string `json:"a,omitempty"`
	B        string `json:"b,omitempty"`
	Field    string `json:"field,omitempty"`
	InA      string `json:"in_a,omitempty"`
	InB      string `json:"in_b,omitempty"`
}

func diffRuns(ctx context.Context, v logview.View, in diffArgs) (runDiff, error) {
	c, err := v.Compare(ctx, in.A, in.B, logview.DiffOptions{From: in.From, Limit: in.Limit, DifferentOnly: !in.Matches})
	if err != nil {
		return runDiff{}, err
	}
	out := runDiff{Same: c.First == 0 && !c.Capped, FirstDivergence: c.First, Match: c.Match, Diff: c.Diff,
		OnlyA: c.OnlyA, OnlyB: c.OnlyB, Differences: []eventDiff{}, Capped: c.Capped}
	for _, pair := range c.Pairs {
		out.Differences = append(out.Differences, newEventDiff(pair))
	}
	return out, nil
}

func newEventDiff(pair logview.Pair) eventDiff {
	short := func(s string) string {
		return starling.Shorten(starling.Printable(bounded(s, 4*maxFacts)), maxFacts)
	}
	side := func(ev event.Event) string {
		if ev.Seq == 0 {
			return ""
		}
		return ev.Kind.String() + ": " + newEventInfo(ev, 0).Facts
	}
	return eventDiff{Seq: pair.Seq, Relation: string(pair.Relation), A: side(pair.A), B: side(pair.B),
		Field: short(pair.Field), InA: short(pair.InA), InB: short(pair.InB)}
}

type searchArgs struct {
	Query     string `json:"query,omitempty" jsonschema:"maxLength=500,description=Text that the payload contains as JSON; ASCII letters in any case"`
	Kind      string `json:"kind,omitempty" jsonschema:"description=Kind of the event such as ToolCallFailed"`
	Status    string `json:"status,omitempty" jsonschema:"enum=completed,enum=failed,enum=cancelled,enum=open,description=Only in runs in this state"`
	Limit     int    `json:"limit" jsonschema:"default=50,minimum=1,maximum=500,description=Events to list at most"`
	RunLimit  int    `json:"run_limit" jsonschema:"default=200,minimum=1,maximum=1000,description=Runs to look into - the newest first"`
	RunOffset int    `json:"run_offset" jsonschema:"default=0,minimum=0,description=Runs to leave out - the newest ones"`
	MaxEvents int    `json:"max_examined_events" jsonschema:"default=10000,minimum=1,maximum=50000,description=Events to look at"`
}

type searchResult struct {
	Matches           []match `json:"matches"`
	RunsExamined      int     `json:"runs_examined"`
	EventsExamined    int     `json:"events_examined"`
	RunsUnreadable    int     `json:"runs_unreadable,omitempty"` // of those examined; validate_run says why
	TotalMatchingRuns int     `json:"total_matching_runs"`       // runs in that state, examined or not
	RunsCapped        bool    `json:"runs_capped"`               // run_limit left out older ones: more with run_offset
	ScanCapped        bool    `json:"scan_capped"`               // max_examined_events left out events
	Capped            bool    `json:"capped"`                    // limit left out matches
}

type match struct {
	RunID string `json:"run_id"`
	eventInfo
}

func searchRuns(ctx context.Context, v logview.View, in searchArgs) (searchResult, error) {
	wanted, err := newWanted(in)
	if err != nil {
		return searchResult{}, err
	}
	page, err := v.Runs(ctx, eventlog.RunPageOptions{Limit: in.RunLimit, Offset: in.RunOffset, Status: in.Status})
	if err != nil {
		return searchResult{}, err
	}
	out := searchResult{Matches: []match{}, TotalMatchingRuns: page.TotalMatching, RunsCapped: page.TotalMatching > in.RunOffset+len(page.Runs)}
	for _, run := range page.Runs {
		if out.ScanCapped || out.Capped {
			break
		}
		err := out.search(ctx, v, run.RunID, in, wanted)
		switch {
		case errors.Is(err, eventlog.ErrLogCorrupt), logview.Unreadable(err) != "": // which says nothing of the others
			out.RunsUnreadable++
		case err != nil:
			return searchResult{}, err
		}
	}
	return out, nil
}

// search adds what one run has.
func (r *searchResult) search(ctx context.Context, v logview.View, id string, in searchArgs, wanted wanted) error {
	r.RunsExamined++
	for ev, err := range v.Events(ctx, id, 0) {
		if err != nil {
			return err
		}
		if r.EventsExamined == in.MaxEvents {
			r.ScanCapped = true
			return nil
		}
		r.EventsExamined++
		if !wanted.match(ev) {
			continue
		}
		if len(r.Matches) == in.Limit {
			r.Capped = true
			return nil
		}
		r.Matches = append(r.Matches, match{id, newEventInfo(ev, 0)})
	}
	return nil
}

// wanted is what is searched for.
type wanted struct {
	kind event.Kind // zero for any
	text string     // lower case; empty for any
}

func newWanted(in searchArgs) (wanted, error) {
	if in.Kind == "" && in.Query == "" {
		return wanted{}, &mistake{"query or kind is required"}
	}
	w := wanted{text: eventlog.LowerASCII(in.Query)}
	if in.Kind == "" {
		return w, nil
	}
	for k := event.KindRunStarted; k.Valid(); k++ {
		if k.String() == in.Kind {
			w.kind = k
			return w, nil
		}
	}
	return w, &mistake{"kind: there is none of that name; one is ToolCallFailed"}
}

func (w wanted) match(ev event.Event) bool {
	if w.kind != 0 && ev.Kind != w.kind {
		return false
	}
	if w.text == "" {
		return true
	}
	doc, err := canon.Render(ev.Payload)
	return err == nil && strings.Contains(eventlog.LowerASCII(string(doc)), w.text)
}
