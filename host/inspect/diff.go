package inspect

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/logview"
	"github.com/starling-host/starling/host/narrate"
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
	Pairs          []pairRow
	Previous, Next string
	SwitchPath     string
	SwitchName     string
	Swap           string
}

// picker is a choice among runs.
type picker struct {
	Name, Chosen, Path string
	Options            []option
}

type option struct {
	ID, Text string
	Selected bool
}

// pairRow is a pair of events.
type pairRow struct {
	Seq             uint64
	Relation        string
	State           state
	KindA, KindB    string
	GroupA, GroupB  string
	LineA, LineB    string
	PathA, PathB    string
	Field, InA, InB string
}

func (s *Server) diff(w http.ResponseWriter, r *http.Request, v logview.View) error {
	q := r.URL.Query()
	a, b := q.Get("a"), q.Get("b")
	p := diffPage{Action: s.path("diff"), All: q.Get("all") == "1", Chosen: a != "" && b != ""}
	options, err := v.Runs(r.Context(), eventlog.RunPageOptions{Limit: pickable})
	if err != nil {
		return err
	}
	if p.A, err = s.picker(r.Context(), v, "a", a, options.Runs); err != nil {
		return err
	}
	if p.B, err = s.picker(r.Context(), v, "b", b, options.Runs); err != nil {
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

// picker offers the newest runs, and the one that is chosen if it exists.
func (s *Server) picker(ctx context.Context, v logview.View, name, chosen string, runs []eventlog.RunSummary) (picker, error) {
	p := picker{Name: name, Chosen: narrate.Printable(chosen)}
	now, found := time.Now(), chosen == ""
	if chosen != "" {
		p.Path = s.path("runs", chosen)
	}
	for _, run := range runs {
		found = found || run.RunID == chosen
		p.Options = append(p.Options, newOption(run, chosen, now))
	}
	if found {
		return p, nil
	}
	run, err := v.Run(ctx, chosen)
	if err != nil {
		return p, err
	}
	p.Options = append([]option{newOption(run, chosen, now)}, p.Options...)
	return p, nil
}

func newOption(run eventlog.RunSummary, chosen string, now time.Time) option {
	text := fmt.Sprintf("%s  %s, %s, %s", narrate.Printable(run.RunID), run.Status(), narrate.Plural(run.LastSeq, "event"), newMoment(run.StartedAt.UnixNano(), now).Ago)
	return option{run.RunID, text, run.RunID == chosen}
}

// compare fills in a page of pairs.
func (s *Server) compare(ctx context.Context, v logview.View, a, b string, from uint64, p *diffPage) error {
	c, err := v.Compare(ctx, a, b, logview.DiffOptions{From: from, Limit: eventsPerPage + 1, DifferentOnly: !p.All})
	if err != nil {
		return err
	}
	path := func(from uint64, all bool) string {
		path := s.path("diff") + "?a=" + queryEscape(a) + "&b=" + queryEscape(b)
		if from > 1 {
			path += fmt.Sprintf("&from=%d", from)
		}
		if all {
			path += "&all=1"
		}
		return path
	}
	p.Verdict, p.Sentence = verdictOf(c)
	p.Counts = []fact{{"match", narrate.Grouped(uint64(c.Match))}, {"differ", narrate.Grouped(uint64(c.Diff))},
		{"only in A", narrate.Grouped(uint64(c.OnlyA))}, {"only in B", narrate.Grouped(uint64(c.OnlyB))}}
	p.Swap = s.path("diff") + "?a=" + queryEscape(b) + "&b=" + queryEscape(a)
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
	for _, pair := range c.Pairs {
		p.Pairs = append(p.Pairs, s.pairRow(a, b, pair))
	}
	return nil
}

// verdictOf says in a sentence how two runs compare.
func verdictOf(c logview.Comparison) (state, string) {
	capped := ""
	if c.Capped {
		capped = fmt.Sprintf(" Only the first %s were compared.", narrate.Plural(c.Examined, "event"))
	}
	if c.First == 0 {
		return state{"the same", "good"}, fmt.Sprintf("%s match.%s", narrate.Plural(c.Match, "event"), capped)
	}
	return state{"different", "warn"}, fmt.Sprintf("The first difference is at event %d.%s", c.First, capped)
}

// relations are how the pairs are marked.
var relations = map[logview.Relation]state{
	logview.Match: {"match", "good"}, logview.Diff: {"differ", "warn"}, logview.OnlyA: {"only A", "open"}, logview.OnlyB: {"only B", "open"},
}

func (s *Server) pairRow(a, b string, pair logview.Pair) pairRow {
	row := pairRow{Seq: pair.Seq, Relation: string(pair.Relation), State: relations[pair.Relation], Field: narrate.Printable(pair.Field),
		InA: narrate.Shorten(narrate.Printable(pair.InA), maxLine), InB: narrate.Shorten(narrate.Printable(pair.InB), maxLine)}
	side := func(run string, ev event.Event) (kind, class, text, path string) {
		if ev.Seq == 0 {
			return "", "", "", ""
		}
		return narrate.Kind(ev.Kind), group(ev.Kind), line(ev), s.path("runs", run, "events", strconv.FormatUint(ev.Seq, 10))
	}
	row.KindA, row.GroupA, row.LineA, row.PathA = side(a, pair.A)
	row.KindB, row.GroupB, row.LineB, row.PathB = side(b, pair.B)
	return row
}
