package inspect

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
)

// Bounds of a waterfall.
const (
	maxBelow = 40   // rows below one other
	maxRows  = 1000 // rows in all
)

// waterfall is a run as bars on a time axis.
type waterfall struct {
	Pills, Zoom  []link
	Strip, Parts []rect // of the whole run: what happened when, and links to its tenths
	Window       []rect // the part of it that is shown
	Ticks        []tick
	Folds        []string // percent
	Rows         []spanRow
	Unread       bool // what the run did cannot be read
}

// rect is a rectangle of a drawing, in percent.
type rect struct{ X, Y, W, H, Class, Title, Path string }

// newRect returns the rectangle between two places on a line, of the height between two others from the
// top, all from 0 to 1.
func newRect(left, right, top, bottom float64, class, title, path string) rect {
	return rect{percent(left), percent(top), percent(right - left), percent(bottom - top), class, title, path}
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 3, 64) + "%" }

// tick is a label of the time axis.
type tick struct {
	X     string // percent
	Text  string
	Class string // start, middle, end or fold
}

// spanRow is one bar.
type spanRow struct {
	Path         string
	Name, Sub    string
	Indent       []struct{} // one for each ancestor
	Class        string     // with which the bar is drawn
	Bad, Current bool
	X, W         string // percent
	Took         string
}

// waterfall draws the run, or the part of it that the address selects: a kind of spans, and a window of
// time.
func (b *reader) waterfall(r *http.Request) error {
	if err := b.read(r, nil); err != nil {
		return err
	}
	chosen := b.choose(r, viewWaterfall)
	run := b.did
	for i := range run.Spans {
		if s := &run.Spans[i]; s.State == span.Open {
			s.End = run.End
		}
	}
	w, shown, keep := &waterfall{Unread: b.broken || run.Encrypted}, part{to: run.End}, func(int) bool { return true }
	pills := pills(run)
	if i := slices.IndexFunc(pills, func(p pill) bool { return p.key == r.URL.Query().Get("only") }); i >= 0 { // the page repeats no other text
		shown.only, keep = pills[i].key, pills[i].keep
	}
	if from, to := asNumber(r, "from"), asNumber(r, "to"); from < to && to <= run.End {
		shown.from, shown.to = from, to
	}
	path := func(p part, at uint64) string {
		q := url.Values{"only": {p.only}, "from": {""}, "to": {""}, "at": {unless(0, at)}}
		if p.from > 0 || p.to < run.End {
			q["from"], q["to"] = []string{strconv.FormatInt(p.from, 10)}, []string{strconv.FormatInt(p.to, 10)}
		}
		return address(b.path("runs", b.run.RunID), q) + anchor(viewWaterfall, at)
	}
	b.pathOf = func(at uint64) string { return path(shown, at) }
	w.controls(run, chosen, pills, shown, func(p part) string { return path(p, b.selected) })
	b.page.Waterfall = w

	some := func(i int) bool { return run.Spans[i].Start <= shown.to && run.Spans[i].End >= shown.from && keep(i) }
	axis := span.NewAxis(run, shown.from, shown.to)
	w.Ticks = ticks(axis, shown.from, shown.to)
	w.Folds = lists.Map(axis.Folds, func(f span.Fold) string { return percent((axis.At(f.From) + axis.At(f.To)) / 2) })
	rows := run.Rows(maxBelow, some)
	if len(rows) > maxRows {
		rows = run.Rows(maxBelow/8, some) // a long run shows less of each call
	}
	if len(rows) > maxRows {
		b.note(fmt.Sprintf("%s more rows are not drawn.", digits(len(rows)-maxRows)))
		rows = rows[:maxRows]
	}
	current := rowOf(rows, run, chosen, some)
	for i, row := range rows {
		one := newSpanRow(row, axis)
		at := numberOf(row.Span)
		if one.Path = b.pathOf(at); row.Hidden {
			one.Path = b.runPath(b.run.RunID, viewEvents, at)
		}
		one.Current = i == current
		b.drawn(at, one.Current, one.Bad)
		w.Rows = append(w.Rows, one)
	}
	return nil
}

// part is what is shown of a run: the spans of a pill, or all, in a window of time.
type part struct {
	only     string
	from, to int64
}

// pill selects some spans of a run.
type pill struct {
	name, key string
	keep      func(i int) bool
}

// pills are what can be looked at alone.
func pills(run *span.Run) []pill {
	took := func(i int) int64 {
		if s := &run.Spans[i]; s.Kind != span.Turn && s.Kind != span.Wait {
			return s.End - s.Start
		}
		return 0
	}
	var all []int64
	for i := range run.Spans {
		all = append(all, took(i))
	}
	slices.Sort(all)
	slow := int64(1) // how long the slowest ones took at least
	if n := len(all) - maxSlow; n >= 0 {
		slow = max(slow, all[n])
	}
	critical := criticalPath(run)
	return []pill{
		{"errors", "errors", func(i int) bool { return run.Spans[i].Bad() }},
		{"slow", "slow", func(i int) bool { return took(i) >= slow }},
		{"critical path", "path", func(i int) bool { return critical[i] }},
		{"waits", "waits", func(i int) bool { return run.Spans[i].Kind == span.Wait }},
	}
}

// maxSlow is how many spans are slow, if none took equally long.
const maxSlow = 5

// criticalPath returns which spans the end of the run waited for: the one that ended last, the one that
// ended last before that began, and so on, and likewise among the children of each of these.
func criticalPath(run *span.Run) []bool {
	order := make([]int, len(run.Spans))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(run.Spans[j].End, run.Spans[i].End) })
	on, began := make([]bool, len(order)), map[int]int64{} // where the path has come to, by parent
	for _, i := range order {
		s := &run.Spans[i]
		at, begun := began[s.Parent]
		if (s.Parent == span.None || on[s.Parent]) && (!begun || s.End <= at) {
			on[i], began[s.Parent] = true, s.Start
		}
	}
	return on
}

// rowOf returns the index of the row that stands for a span, or else for one that contains it, or None.
func rowOf(rows []span.Row, run *span.Run, at int, some func(i int) bool) int {
	for ; at != span.None; at = run.Spans[at].Parent {
		found := span.None
		for i, row := range rows {
			if row.Index == at || row.Parent == run.Spans[at].Parent && row.Index < at && some(at) { // rows of a parent are in the order of its children
				found = i
			}
		}
		if found != span.None {
			return found
		}
	}
	return span.None
}

// controls fills in what leads to other parts of a run: pills, the zoom, and what happened when in the
// whole run.
func (w *waterfall) controls(run *span.Run, chosen int, pills []pill, shown part, path func(part) string) {
	for _, pill := range pills {
		n := 0
		for i := range run.Spans {
			if pill.keep(i) {
				n++
			}
		}
		one := link{pill.name, path(part{pill.key, shown.from, shown.to}), digits(n), pill.key == shown.only}
		if one.Current {
			one.Path = path(part{"", shown.from, shown.to})
		}
		if n > 0 && n < len(run.Spans) || one.Current {
			w.Pills = append(w.Pills, one)
		}
	}
	around := func(middle, width int64) string {
		left := max(min(middle-width/2, run.End-width), 0)
		return path(part{shown.only, left, left + width})
	}
	width := shown.to - shown.from
	middle := shown.from + width/2
	if width < run.End {
		w.Zoom = append(w.Zoom, link{Name: "[", Path: around(middle, 2*width)})
	}
	if chosen != span.None {
		middle = run.Spans[chosen].Start + (run.Spans[chosen].End-run.Spans[chosen].Start)/2
	}
	if width > 1 {
		w.Zoom = append(w.Zoom, link{Name: "]", Path: around(middle, width/2)})
	}

	const columns, parts = 150, 10
	axis, end := span.NewAxis(run, 0, run.End), max(run.End, 1)
	var top [columns]int
	levels, classes := map[span.Kind]int{span.Wait: 1, span.Answer: 2, span.Call: 3}, []string{"", "b-wait", "b-answer", "b-call", "b-bad"}
	for i := range run.Spans {
		s := &run.Spans[i]
		level := levels[s.Kind]
		if s.Bad() {
			level = len(classes) - 1
		}
		for c := int(axis.At(s.Start) * columns); c <= int(axis.At(s.End)*columns) && c < columns; c++ {
			top[c] = max(top[c], level)
		}
	}
	for c, level := range top {
		if level > 0 {
			w.Strip = append(w.Strip, newRect(float64(c)/columns, float64(c+1)/columns, 0, 1, classes[level], "", ""))
		}
	}
	at := func(i int) int64 { // the time at a part of the axis
		return int64(sort.Search(int(end), func(t int) bool { return axis.At(int64(t)) >= float64(i)/parts }))
	}
	for i := range parts {
		left, right := at(i), at(i+1)
		if left < right {
			w.Parts = append(w.Parts, newRect(float64(i)/parts, float64(i+1)/parts, 0, 1, "whole", fmt.Sprintf("%s to %s", duration(left), duration(right)), path(part{shown.only, left, right})))
		}
	}
	if left, right := axis.At(shown.from), axis.At(shown.to); width < run.End {
		w.Window = []rect{newRect(left, max(right, left+.003), 0, 1, "window", "", "")}
	}
}

// newSpanRow returns the bar of a row on an axis.
func newSpanRow(row span.Row, axis span.Axis) spanRow {
	name, detail := row.Text()
	left, right := axis.At(row.Start), axis.At(row.End)
	r := spanRow{
		Name: line(name), Sub: cmp.Or(line(detail), arguments(row.Input)), Took: row.Took(), Bad: row.Bad(), Indent: make([]struct{}, min(row.Depth, 8)),
		Class: "b-" + string(row.Kind), X: percent(left), W: percent(max(right-left, 0.002)),
	}
	switch {
	case r.Bad:
		r.Class += " b-bad"
	case row.State == span.Cancelled, row.State == span.Lost:
		r.Class += " b-lost"
	}
	if row.Approximate {
		r.Class += " b-approximate"
	}
	return r
}

// ticks returns the labels of an axis: its ends and its middle, or its longest fold. Labels need
// room, so an end beside the fold has none.
func ticks(axis span.Axis, from, to int64) []tick {
	first, last := tick{"0%", duration(from), "start"}, tick{"100%", duration(to), "end"}
	if len(axis.Folds) == 0 {
		return []tick{first, {"50%", duration(from + (to-from)/2), "middle"}, last}
	}
	longest := slices.MaxFunc(axis.Folds, func(a, b span.Fold) int { return cmp.Compare(a.To-a.From, b.To-b.From) })
	all := []tick{{percent(longest.At), duration(longest.To-longest.From) + " idle", "fold"}}
	if longest.At > 0.25 {
		all = append(all, first)
	}
	if longest.At < 0.7 {
		all = append(all, last)
	}
	return all
}

// requestRow is one HTTP request.
type requestRow struct {
	*span.Span
	Path, Method, URL, Took, Call string
	Current                       bool
}

// requests lists the HTTP requests of the run, in the order in which they began.
func (b *reader) requests(r *http.Request) error {
	if err := b.read(r, nil); err != nil {
		return err
	}
	chosen := b.choose(r, viewRequests)
	for i := range b.did.Spans {
		s := &b.did.Spans[i]
		if s.Request == "" {
			continue
		}
		if len(b.page.Requests) == maxRows {
			b.note(fmt.Sprintf("Only the first %s requests are listed.", digits(maxRows)))
			break
		}
		row := requestRow{Span: s, Path: b.pathOf(numberOf(s)), Took: span.Row{Span: s, End: s.End}.Took(), Call: callName(b.did, i), Current: i == chosen}
		row.Method, row.URL, _ = strings.Cut(display.Printable(display.Clip(s.Request, 8*maxLine)), " ")
		b.drawn(numberOf(s), row.Current, s.Bad())
		b.page.Requests = append(b.page.Requests, row)
	}
	return nil
}
