package inspect

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// pickable is how many runs the pickers offer, the newest first.
const pickable = 100

// diffPage is two runs side by side.
type diffPage struct {
	Action         string
	A, B           picker
	All            bool // matching pairs are shown as well
	Chosen         bool // both runs are
	Verdict        state
	Sentence       string
	Counts         []fact
	FirstPath      string
	Pairs          []eventview.Pair
	Previous, Next string
	SwitchPath     string
	SwitchName     string
	Swap           string
}

// picker is a choice among runs.
type picker struct {
	Name, Chosen string
	Runs         []eventlog.RunSummary
}

func (s *Server) diff(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	q := r.URL.Query()
	a, b := q.Get("a"), q.Get("b")
	p := diffPage{Action: s.path("diff"), All: q.Get("all") == "1", Chosen: a != "" && b != ""}
	options, err := v.Runs(r.Context(), eventlog.RunPageOptions{Limit: pickable})
	if err != nil {
		return err
	}
	if p.A, err = newPicker(r.Context(), v, "a", a, options.Runs); err != nil {
		return err
	}
	if p.B, err = newPicker(r.Context(), v, "b", b, options.Runs); err != nil {
		return err
	}
	if p.Chosen {
		from, _ := strconv.ParseUint(q.Get("from"), 10, 64)
		if err := s.compare(r.Context(), v, a, b, max(from, 1), &p); err != nil {
			return err
		}
	}
	s.render(w, r, http.StatusOK, "diff", "Compare runs", v, p)
	return nil
}

// newPicker offers the newest runs, and the chosen one if it exists.
func newPicker(ctx context.Context, v eventview.View, name, chosen string, runs []eventlog.RunSummary) (picker, error) {
	p := picker{name, chosen, runs}
	if chosen == "" || slices.ContainsFunc(runs, func(run eventlog.RunSummary) bool { return run.RunID == chosen }) {
		return p, nil
	}
	run, err := v.Run(ctx, chosen)
	p.Runs = append([]eventlog.RunSummary{run}, runs...)
	return p, err
}

// compare fills in a page of pairs.
func (s *Server) compare(ctx context.Context, v eventview.View, a, b string, from uint64, p *diffPage) error {
	c, err := v.Compare(ctx, a, b, eventview.DiffOptions{From: from, Limit: eventsPerPage + 1, DifferentOnly: !p.All})
	if err != nil {
		return err
	}
	path := func(from uint64, all bool) string {
		q := url.Values{"a": {a}, "b": {b}, "from": {unless(1, from)}}
		if all {
			q.Set("all", "1")
		}
		return address(s.path("diff"), q)
	}
	p.Verdict, p.Sentence = verdictOf(c)
	p.Counts = []fact{{"match", display.Digits(uint64(c.Match))}, {"differ", display.Digits(uint64(c.Diff))},
		{"only in A", display.Digits(uint64(c.OnlyA))}, {"only in B", display.Digits(uint64(c.OnlyB))}}
	p.Swap = address(s.path("diff"), url.Values{"a": {b}, "b": {a}})
	p.SwitchPath, p.SwitchName = path(1, true), "Show matching events too"
	if p.All {
		p.SwitchPath, p.SwitchName = path(1, false), "Show differences only"
	}
	if c.First > 0 {
		p.FirstPath = path(c.First, p.All)
	}
	if from > 1 {
		p.Previous = path(1, p.All)
	}
	if len(c.Pairs) > eventsPerPage {
		p.Next = path(c.Pairs[eventsPerPage].Seq, p.All)
		c.Pairs = c.Pairs[:eventsPerPage]
	}
	p.Pairs = c.Pairs
	return nil
}

// verdictOf describes the comparison of two runs in a sentence.
func verdictOf(c eventview.Comparison) (state, string) {
	capped := ""
	if c.Capped {
		capped = fmt.Sprintf(" Only the first %s were compared.", display.Plural(c.Examined, "event"))
	}
	if c.First == 0 {
		return state{"the same", "good"}, fmt.Sprintf("%s match.%s", display.Plural(c.Match, "event"), capped)
	}
	return state{"different", "warn"}, fmt.Sprintf("The first difference is at event %d.%s", c.First, capped)
}

// relations are how the pairs are marked.
var relations = map[eventview.Relation]state{
	eventview.Match: {"match", "good"}, eventview.Diff: {"differ", "warn"}, eventview.OnlyA: {"only A", "open"}, eventview.OnlyB: {"only B", "open"},
}
