package inspect

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// pickable is how many runs the pickers offer, the newest first.
const pickable = 100

// diffPage is two runs side by side.
type diffPage struct {
	A, B           string   // ids of the chosen runs, or empty
	Runs           []option // that can be chosen
	All            bool     // matching pairs are shown as well
	Chosen         bool     // both runs are
	Found          eventview.Comparison
	FirstPath      string
	Pairs          []pairRow
	Previous, Next string
	SwitchPath     string
	SwitchName     string
	Swap           string
}

// pairRow is two events, below the name of their call if the row before has another.
type pairRow struct {
	eventview.Pair
	Head string
}

// option is a run in a picker.
type option struct{ ID, Text string }

func (s *Server) diff(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	q := r.URL.Query()
	p := diffPage{A: q.Get("a"), B: q.Get("b"), All: q.Get("all") == "1", Chosen: q.Get("a") != "" && q.Get("b") != ""}
	newest, err := v.Runs(r.Context(), eventlog.RunPageOptions{Limit: pickable})
	if err != nil {
		return err
	}
	for _, id := range []string{p.A, p.B} {
		if id == "" || slices.ContainsFunc(newest.Runs, func(run eventlog.RunSummary) bool { return run.RunID == id }) {
			continue
		}
		run, err := v.Run(r.Context(), id)
		if err != nil {
			return err
		}
		newest.Runs = append(newest.Runs, run)
	}
	for _, run := range newest.Runs {
		goal, _ := opening(r.Context(), v, run.RunID)
		id := display.Printable(run.RunID)
		p.Runs = append(p.Runs, option{run.RunID, fmt.Sprintf("%s · %s, %s · …%s", display.Shorten(cmp.Or(goal, id), 60), run.Status(), ago(time.Since(run.StartedAt)), id[max(0, len(id)-6):])})
	}
	if p.Chosen {
		from, _ := strconv.Atoi(q.Get("from"))
		if err := s.compare(r.Context(), v, max(from, 1), &p); err != nil {
			return err
		}
	}
	return s.render(w, r, http.StatusOK, "diff", "Compare runs", v, p)
}

// compare fills in a page of pairs.
func (s *Server) compare(ctx context.Context, v eventview.View, from int, p *diffPage) error {
	c, err := v.Compare(ctx, p.A, p.B, eventview.DiffOptions{From: from, Limit: eventsPerPage, DifferentOnly: !p.All})
	if err != nil {
		return err
	}
	path := func(from int, all bool) string {
		q := url.Values{"a": {p.A}, "b": {p.B}, "from": {unless(1, from)}}
		if all {
			q.Set("all", "1")
		}
		return address(s.path("diff"), q)
	}
	p.Found = c
	p.Swap = address(s.path("diff"), url.Values{"a": {p.B}, "b": {p.A}})
	p.SwitchPath, p.SwitchName = path(1, true), "Show matching events too"
	if p.All {
		p.SwitchPath, p.SwitchName = path(1, false), "Show differences only"
	}
	if c.First.Position > 0 {
		p.FirstPath = path(c.First.Position, p.All)
	}
	if from > 1 {
		p.Previous = path(1, p.All)
	}
	if c.Next > 0 {
		p.Next = path(c.Next, p.All)
	}
	for _, pair := range c.Pairs {
		row := pairRow{Pair: pair}
		if n := len(p.Pairs); n == 0 || p.Pairs[n-1].Call != pair.Call {
			row.Head = pair.Call
		}
		p.Pairs = append(p.Pairs, row)
	}
	return nil
}
