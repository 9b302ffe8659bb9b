package span

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/internal/display"
)

// Axis maps a part of the time of a run to a line of the length 1. Long stretches in which nothing
// happens are folded: each takes a small, fixed part of the line.
type Axis struct {
	Folds    []Fold
	from, to int64
}

// Fold is a stretch of an axis in nanoseconds since the beginning of the run, and where it begins
// on the line.
type Fold struct {
	From, To int64
	At       float64
}

const (
	foldWidth = 0.03 // of the line
	minFold   = 50e6 // nanoseconds
	maxFolds  = 10
)

// NewAxis returns the axis of a run between two times in nanoseconds since it began. The whole run is
// between 0 and its End.
func NewAxis(r *Run, from, to int64) Axis {
	type stretch struct{ from, to int64 }
	var busy []stretch
	for i := range r.Spans {
		s := &r.Spans[i]
		end := s.End
		if s.State == Open {
			end = r.End
		}
		if s.Kind != Wait && s.Kind != Turn && s.Start <= to && end >= from {
			busy = append(busy, stretch{max(s.Start, from), min(end, to)})
		}
	}
	slices.SortFunc(busy, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	a := Axis{from: from, to: max(to, from+1)}
	worked, at := int64(0), from
	for _, b := range append(busy, stretch{a.to, a.to}) {
		if b.from > at {
			a.Folds = append(a.Folds, Fold{From: at, To: b.from})
		}
		worked += max(b.to-max(b.from, at), 0)
		at = max(at, b.to)
	}
	// Only what is long beside the work is folded, the longest first.
	a.Folds = slices.DeleteFunc(a.Folds, func(f Fold) bool { return f.To-f.From < max(minFold, worked/3) })
	slices.SortFunc(a.Folds, func(x, y Fold) int { return cmp.Compare(y.To-y.From, x.To-x.From) })
	a.Folds = a.Folds[:min(len(a.Folds), maxFolds)]
	slices.SortFunc(a.Folds, func(x, y Fold) int { return cmp.Compare(x.From, y.From) })
	for i := range a.Folds {
		a.Folds[i].At = a.At(a.Folds[i].From)
	}
	return a
}

// At returns the place of a time on the line, from 0 to 1.
func (a Axis) At(t int64) float64 {
	t = min(max(t, a.from), a.to)
	shown, folded, passed := a.to-a.from, 0.0, t-a.from
	for _, f := range a.Folds {
		shown -= f.To - f.From
		if inside := min(t, f.To) - f.From; inside > 0 {
			passed -= inside
			folded += foldWidth * float64(inside) / float64(f.To-f.From)
		}
	}
	room := 1 - foldWidth*float64(len(a.Folds))
	return folded + room*float64(passed)/float64(max(shown, 1))
}

// Row is a line of a view of a run: a span, or several effects in a row that are alike, such as
// readings of the clock.
type Row struct {
	*Span
	Index  int   // of the first span, in [Run].Spans
	Count  int   // how many it stands for
	End    int64 // of the last of them
	Hidden bool  // it stands for further children of its parent
}

// Text returns the words for a row: what it is, and a detail. Both may be hostile.
func (r Row) Text() (name, detail string) {
	name = r.Name
	switch {
	case r.Hidden:
		return fmt.Sprintf("%s more", display.Digits(uint64(r.Count))), "in the events"
	case r.Kind == Call && r.Attempt > 1:
		name += fmt.Sprintf(", attempt %d", r.Attempt)
	case r.Kind == Answer:
		name = cmp.Or(name, "model")
		detail = fmt.Sprintf("%s tokens in, %s out", display.Digits(uint64(max(r.InputTokens, 0))), display.Digits(uint64(max(r.OutputTokens, 0))))
	case r.Kind == Wait:
		name = "wait " + name
	case r.Kind == Effect && r.Request != "":
		if method, address, _ := strings.Cut(r.Request, " "); name == r.Request && r.Host != "" { // room is for the path
			_, path, _ := strings.Cut(address, r.Host)
			name, detail = method+" "+path, r.Host+" "
		}
		if r.Status != 0 {
			name, detail = fmt.Sprintf("%d %s", r.Status, name), detail+display.Size(uint64(r.Bytes))
		}
	}
	if r.Count > 1 {
		name += fmt.Sprintf(" ×%d", r.Count)
	}
	switch r.State {
	case Failed:
		detail, _, _ = strings.Cut(worded(r.ErrorType, r.Error), "\n")
	case Cancelled, Lost:
		detail = string(r.State)
	}
	return cmp.Or(name, "no name"), detail
}

// Took returns how long a row took, or nothing if it took no time.
func (r Row) Took() string {
	took := display.Duration(time.Duration(r.End - r.Start))
	switch {
	case r.State == Open:
		return "open"
	case r.End == r.Start:
		return ""
	case r.Approximate:
		return "≤ " + took
	}
	return took
}

// Bad reports whether something failed, or was answered with an HTTP status of 400 or more.
func (s *Span) Bad() bool { return s.State == Failed || s.Status >= 400 }

// Rows returns the lines of a view: each span is followed by its children. If a span has more
// children than most, one more line stands for the rest, except for what is bad. If keep is not nil,
// only the spans that it keeps have lines, and those that contain them.
func (r *Run) Rows(most int, keep func(i int) bool) []Row {
	kept := make([]bool, len(r.Spans)+1) // by the number of the span
	for i := len(r.Spans) - 1; i >= 0; i-- {
		if kept[i+1] = kept[i+1] || keep == nil || keep(i); kept[i+1] {
			kept[r.Spans[i].Parent+1] = true
		}
	}
	children := make([][]int, len(r.Spans)+1) // by parent; those of no span come first
	for i := range r.Spans {
		if at := r.Spans[i].Parent + 1; kept[i+1] {
			children[at] = append(children[at], i)
		}
	}
	var rows []Row
	next := [][]int{children[0]} // the remaining children of a span, after those of its ancestors
	shown := []int{0}
	for len(next) > 0 {
		top := len(next) - 1
		if len(next[top]) == 0 {
			next, shown = next[:top], shown[:top]
			continue
		}
		row := Row{Span: &r.Spans[next[top][0]], Index: next[top][0]}
		row.Hidden = shown[top] >= most && !row.Bad()
		for _, i := range next[top] {
			if s := &r.Spans[i]; row.Count == 0 || row.Hidden && !s.Bad() || !row.Hidden && alike(row.Span, s) {
				row.Count++
				row.End = max(row.End, s.End)
				continue
			}
			break
		}
		rows = append(rows, row)
		next[top] = next[top][row.Count:]
		shown[top]++
		if !row.Hidden && row.Count == 1 {
			next, shown = append(next, children[row.Index+1]), append(shown, 0)
		}
	}
	return rows
}

// alike reports whether two effects in a row share a line.
func alike(a, b *Span) bool {
	return a.Kind == Effect && b.Kind == Effect && a.State == OK && b.State == OK &&
		a.Name == b.Name && a.Parent == b.Parent && a.Status == b.Status
}
