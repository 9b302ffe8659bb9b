package inspect

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
)

// Bounds of a waterfall.
const (
	maxBelow = 40   // rows below one other
	maxRows  = 1000 // rows in all
)

// waterfall is a run as bars on a time axis.
type waterfall struct {
	Ticks []tick
	Folds []string // percent
	Rows  []spanRow
}

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

// waterfall draws the run.
func (b *reader) waterfall(r *http.Request) error {
	if err := b.read(r, nil); err != nil {
		return err
	}
	run, chosen := b.did, b.choose(r, viewWaterfall)
	axis := span.NewAxis(run)
	w := &waterfall{Ticks: ticks(axis, run.End)}
	for _, f := range axis.Folds {
		w.Folds = append(w.Folds, percent((axis.At(f.From)+axis.At(f.To))/2))
	}
	rows := run.Rows(maxBelow)
	if len(rows) > maxRows {
		rows = run.Rows(maxBelow / 8) // a long run shows less of each call
	}
	if len(rows) > maxRows {
		b.note(fmt.Sprintf("%s more rows are not drawn.", digits(len(rows)-maxRows)))
		rows = rows[:maxRows]
	}
	for _, row := range rows {
		if row.State == span.Open {
			row.End = run.End
		}
		one := newSpanRow(row, axis)
		view := viewWaterfall
		if row.Hidden {
			view = viewEvents
		}
		one.Path, one.Current = b.runPath(b.run.RunID, view, numberOf(row.Span)), row.Index == chosen
		w.Rows = append(w.Rows, one)
	}
	b.page.Waterfall = w
	return nil
}

// newSpanRow returns the bar of a row.
func newSpanRow(row span.Row, axis span.Axis) spanRow {
	name, detail := row.Text()
	r := spanRow{
		Name: line(name), Sub: cmp.Or(line(detail), line(row.Input)), Took: row.Took(), Bad: row.Bad(), Indent: make([]struct{}, min(row.Depth, 8)),
		Class: "b-" + string(row.Kind), X: percent(axis.At(row.Start)), W: percent(max(axis.At(row.End)-axis.At(row.Start), 0.002)),
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
func ticks(axis span.Axis, end int64) []tick {
	if len(axis.Folds) == 0 {
		return []tick{{"0%", "0s", "start"}, {"50%", duration(end / 2), "middle"}, {"100%", duration(end), "end"}}
	}
	longest := slices.MaxFunc(axis.Folds, func(a, b span.Fold) int { return cmp.Compare(a.To-a.From, b.To-b.From) })
	all := []tick{{percent(longest.At), duration(longest.To-longest.From) + " idle", "fold"}}
	if longest.At > 0.25 {
		all = append(all, tick{"0%", "0s", "start"})
	}
	if longest.At < 0.7 {
		all = append(all, tick{"100%", duration(end), "end"})
	}
	return all
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 3, 64) + "%" }

// requestRow is one HTTP request.
type requestRow struct {
	Path, Method, URL, Status, Took, Size, Call string
	Bad, Current                                bool
}

// requests lists the HTTP requests of the run, in the order in which they began.
func (b *reader) requests(r *http.Request) error {
	if err := b.read(r, nil); err != nil {
		return err
	}
	run, chosen := b.did, b.choose(r, viewRequests)
	more := 0
	for i := range run.Spans {
		s := &run.Spans[i]
		if s.Request == "" {
			continue
		}
		if len(b.page.Requests) == maxRows {
			more++
			continue
		}
		row := requestRow{
			Path: b.runPath(b.run.RunID, viewRequests, numberOf(s)), Status: strconv.Itoa(s.Status), Took: span.Row{Span: s, End: s.End}.Took(), Size: display.Size(uint64(s.Bytes)),
			Bad: s.Bad(), Current: i == chosen, Call: callName(run, i),
		}
		row.Method, row.URL, _ = strings.Cut(display.Printable(display.Clip(s.Request, 8*maxLine)), " ")
		if s.Status == 0 {
			row.Status = line(cmp.Or(s.Error, string(s.State)))
		}
		b.page.Requests = append(b.page.Requests, row)
	}
	if more > 0 {
		b.note(fmt.Sprintf("%s more requests are not listed.", digits(more)))
	}
	return nil
}
