package inspect

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// Bounds of a waterfall.
const (
	maxDrawn = 100_000  // events
	maxBelow = 40       // rows below one other
	maxRows  = 1000     // rows in all
	maxBody  = 64 << 10 // bytes of a request or a response
)

// waterfallPage is a run as bars on a time axis.
type waterfallPage struct {
	Run     runHead
	Tabs    []link
	Failure *failure
	Tiles   []fact
	Ticks   []tick
	Rows    []spanRow
	Notes   []string // what is not drawn
	Panel   *spanPanel
}

// failure is why a run did not complete.
type failure struct {
	Text, Where string
	Path        string // of the row that failed, or empty
}

// tick is a label of the time axis.
type tick struct {
	X     string // percent
	Text  string
	Class string // start, middle, end or fold
}

// spanRow is one bar.
type spanRow struct {
	Seq          uint64
	Path         string
	Name, Sub    string
	Indent       []struct{} // one for each ancestor
	Class        string     // with which the bar is drawn
	Bad, Current bool
	X, W         string // percent
	Took         string
}

// spanPanel is the selected span.
type spanPanel struct {
	Title, Error      string
	Facts             []fact
	Request, Response string
	Payload           string
	Path              string // of the event
	Close             string
}

func (s *Server) waterfall(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	run, err := v.Run(r.Context(), r.PathValue("run"))
	if err != nil {
		return err
	}
	if err := v.Reserve(r.Context(), run.RunID); err != nil {
		return err
	}
	selected, _ := strconv.ParseUint(r.URL.Query().Get("at"), 10, 64)
	var b span.Builder
	var chosen *event.Event
	inputs := map[uint64]string{} // the arguments of calls, by the number of their event
	p := waterfallPage{}
	for ev, err := range v.Events(r.Context(), run.RunID, 0) {
		if err == nil {
			err = b.Add(ev)
		}
		if err != nil {
			p.Notes = append(p.Notes, "The next event cannot be read: "+display.PrintableError(err))
			break
		}
		if call, err := ev.AsToolCallScheduled(); err == nil && len(inputs) < maxRows {
			text, _ := canon.Render(call.Args)
			inputs[ev.Seq] = display.Shorten(display.Printable(string(text[:min(len(text), 4*maxLine)])), maxLine)
		}
		if ev.Seq == selected {
			chosen = &ev
		}
		if ev.Seq == maxDrawn {
			p.Notes = append(p.Notes, fmt.Sprintf("Only the first %s events are drawn.", display.Digits(maxDrawn)))
			break
		}
	}
	drawn := b.Run()
	p.Run, _ = s.runHead(r, v, run)
	p.Tabs = s.runTabs(run.RunID, "waterfall")
	p.draw(s, drawn, inputs, selected)
	if chosen != nil {
		p.Panel = s.panel(run.RunID, drawn, *chosen)
	}
	s.render(w, r, http.StatusOK, "waterfall", run.RunID, v, p)
	return nil
}

// runTabs returns links to the views of a run.
func (s *Server) runTabs(id, current string) []link {
	return []link{
		{"Waterfall", s.path("runs", id, "waterfall"), "", current == "waterfall"},
		{"Events", s.path("runs", id), "", current == "events"},
	}
}

func (p *waterfallPage) draw(s *Server, run *span.Run, inputs map[uint64]string, selected uint64) {
	path := func(seq uint64) string {
		return s.path("runs", p.Run.RunID, "waterfall") + fmt.Sprintf("?at=%d#s%d", seq, seq)
	}
	if run.Error != "" || run.ErrorType != "" {
		p.Failure = &failure{Text: display.PrintableText(run.Error), Where: display.Printable(run.ErrorType)}
		if run.Cause != span.None {
			cause := run.Spans[run.Cause]
			p.Failure.Path = path(cause.First)
			p.Failure.Where = display.Printable(cause.Name) + ", " + p.Failure.Where
			if cause.Attempt > 1 {
				p.Failure.Where += fmt.Sprintf(", attempt %d", cause.Attempt)
			}
		}
	}
	p.Tiles = tiles(run)
	if run.Encrypted {
		p.Notes = append(p.Notes, "Some payloads are encrypted. What they did is not drawn.")
	}
	axis := span.NewAxis(run)
	p.Ticks = ticks(axis, run.End)
	rows := run.Rows(maxBelow)
	if len(rows) > maxRows {
		p.Notes = append(p.Notes, fmt.Sprintf("%s more rows are not drawn.", digits(len(rows)-maxRows)))
		rows = rows[:maxRows]
	}
	for _, row := range rows {
		r := newSpanRow(row, axis, inputs[row.First])
		r.Path, r.Current = path(r.Seq), r.Seq == selected
		p.Rows = append(p.Rows, r)
	}
}

// tiles returns the figures of a run, without zero ones.
func tiles(run *span.Run) (all []fact) {
	tile := func(name, value string, shown bool) {
		if shown {
			all = append(all, fact{name, value})
		}
	}
	some := func(n, failed int, what string) string {
		text := digits(n)
		if failed > 0 {
			text += fmt.Sprintf(" · %d %s", failed, what)
		}
		return text
	}
	tile("duration", duration(run.End), true)
	tile("turns", digits(run.Turns), run.Turns > 0)
	tile("calls", some(run.Calls, run.FailedCalls, "failed"), run.Calls > 0)
	tile("requests", some(run.Requests, run.Status4xx+run.Status5xx, "4xx or 5xx"), run.Requests > 0)
	tile("fuel", display.Fuel(run.Fuel), run.Fuel > 0)
	tile("peak memory", display.Size(run.PeakMemory), run.PeakMemory > 0)
	tile("tokens in / out", digits(run.InputTokens)+" / "+digits(run.OutputTokens), run.InputTokens+run.OutputTokens > 0)
	tile("cost", cost(run.CostUSD), run.CostUSD > 0)
	tile("waited", duration(run.Waited), run.Waited > 0)
	return all
}

// newSpanRow returns the bar of a row. The input is that of a call.
func newSpanRow(row span.Row, axis span.Axis, input string) spanRow {
	r := spanRow{
		Seq: row.First, Name: display.Printable(row.Name), Indent: make([]struct{}, min(row.Depth, 8)), Class: "b-" + string(row.Kind),
		X: percent(axis.At(row.Start)), W: percent(max(axis.At(row.End)-axis.At(row.Start), 0.002)), Took: duration(row.End - row.Start),
	}
	switch row.Kind {
	case span.Call:
		r.Sub = input
		if row.Attempt > 1 {
			r.Name += fmt.Sprintf(", attempt %d", row.Attempt)
		}
	case span.Answer:
		r.Sub = fmt.Sprintf("%s tokens in, %s out", digits(row.InputTokens), digits(row.OutputTokens))
	case span.Wait:
		r.Name = "wait " + r.Name
	case span.Effect:
		if row.Last > 0 {
			r.Seq = row.Last // the event with the request, which an intent may have announced
		}
		if row.Status != 0 {
			r.Name, r.Sub = fmt.Sprintf("%d %s", row.Status, r.Name), display.Size(uint64(row.Bytes))
		}
		r.Bad = row.Status >= 400
	}
	switch row.State {
	case span.Failed:
		r.Bad = true
		r.Sub = display.Shorten(display.Printable(row.ErrorType+": "+row.Error), maxLine)
	case span.Cancelled, span.Lost:
		r.Sub = string(row.State)
		r.Class += " b-lost"
	case span.Open:
		r.Took = "open"
	}
	if r.Bad {
		r.Class += " b-bad"
	}
	switch {
	case row.Hidden:
		r.Name, r.Sub = digits(row.Count)+" more", ""
	case row.Count > 1:
		r.Name += fmt.Sprintf(" ×%d", row.Count)
	}
	if row.Start == row.End && row.State != span.Open {
		r.Took = ""
	} else if row.Approximate {
		r.Took = "≤ " + r.Took
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

// panel describes the event that was selected, and the span that it belongs to.
func (s *Server) panel(id string, run *span.Run, ev event.Event) *spanPanel {
	hash := ev.Hash()
	p := &spanPanel{
		Title: ev.Kind.Short(), Path: s.path("runs", id, "events", strconv.FormatUint(ev.Seq, 10)), Close: s.path("runs", id, "waterfall"),
		Facts: []fact{{"event", display.Digits(ev.Seq)}, {"at", "+" + duration(max(ev.Timestamp-run.Began, 0))}},
	}
	for i := range run.Spans {
		x := &run.Spans[i]
		if x.First != ev.Seq && (x.Last != ev.Seq || x.Kind != span.Effect) || x.Kind == span.Turn {
			continue
		}
		p.Title = display.Shorten(display.Printable(x.Name), maxLine)
		p.Facts = append(p.Facts, fact{"state", string(x.State)})
		if x.Error != "" {
			p.Error = display.PrintableText(x.ErrorType + ": " + x.Error)
		}
		if x.Fuel > 0 && x.Kind == span.Effect {
			p.Facts = append(p.Facts, fact{"fuel since the effect before", display.Digits(x.Fuel)})
		} else if x.Fuel > 0 {
			p.Facts = append(p.Facts, fact{"fuel", display.Digits(x.Fuel)}, fact{"peak memory", display.Size(x.PeakMemory)})
		}
	}
	p.Facts = append(p.Facts, fact{"hash", hash.String()})
	effect, err := ev.AsSideEffectRecorded()
	var answer event.Exchange
	if err == nil && event.IsHTTP(effect.Request) {
		p.Request = body(effect.Request)
		if canon.Unmarshal(effect.Value, &answer) == nil {
			p.Response = body(answer.Response)
			if v := answer.Decision; len(v) > 0 && v.Allowed() {
				p.Facts = append(p.Facts, fact{"policy", fmt.Sprintf("%s, rule %d, line %d", v[len(v)-1].Side, v[len(v)-1].Rule, v[len(v)-1].Line)})
			}
		}
		return p
	}
	if len(ev.Payload) <= maxBody {
		p.Payload = event.Indented(ev.Payload)
	}
	return p
}

// body returns the beginning of a message for reading.
func body(message []byte) string {
	text := display.PrintableText(strings.ReplaceAll(string(message[:min(len(message), maxBody)]), "\r\n", "\n"))
	if len(message) > maxBody {
		text += fmt.Sprintf("\n… %s in all", display.Size(uint64(len(message))))
	}
	return text
}

func duration(ns int64) string { return display.Duration(time.Duration(ns)) }

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 3, 64) + "%" }
