package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// Bounds of a page of runs.
const (
	perPage    = 50
	maxPerPage = 200
	maxReasons = 20
)

// listPage is a page of runs.
type listPage struct {
	Query, Error, Hint string
	Fields             []search.Field
	Words              []string // that complete the query
	Tabs, Chips        []link
	Bars               []rect
	From, To           string // the times of the first bar and of the end of the last
	Failed             string
	Reasons            []reason
	Runs               []runLine
	Has                map[string]bool // the columns that are not all zeros
	Together           eventlog.Totals // the runs of this page
	First, Last        int
	Total              string
	Previous, Next     string // paths, or empty
	Notes              []string
}

// link is a word that leads somewhere.
type link struct {
	Name, Path, Count string
	Current           bool
}

// reason is what some runs failed for.
type reason struct {
	Count, Tool, Text, Path string
	From, To                string // when the first and the last of them began
	First, Last             time.Time
}

// runLine is one run of a listing.
type runLine struct {
	search.Run
	State state
	Job   string // its place in the queue, or for how long it is silent, or empty
	Took  string // the width of its bar
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	now, parameters := time.Now(), r.URL.Query()
	offset := int(min(asNumber(r, "offset"), 1e9))
	size := cmp.Or(int(min(asNumber(r, "per_page"), maxPerPage)), perPage)
	path := func(query string, offset int) string {
		return address(s.path(), url.Values{"q": {query}, "offset": {unless(0, max(offset, 0))}, "per_page": {unless(perPage, size)}})
	}
	text := strings.Trim(parameters.Get("q"), " \t\r\n")
	for _, field := range search.Fields { // as an address may name them, such as /?since=1h
		value, name := parameters.Get(field.Name), field.Name
		if name == "status" && (eventlog.RunPageOptions{Status: value}).Valid() == nil { // as the Starling runtime names the state
			name = "state"
		}
		if value != "" {
			text = strings.TrimSpace(text + " " + search.Word(name, value))
		}
	}
	p := listPage{Query: text, Fields: search.Fields}
	q, err := search.Parse(text, now)
	if wrong := (*search.Error)(nil); errors.As(err, &wrong) {
		p.Query = display.Clip(text, search.MaxBytes)
		p.Error, p.Hint = display.Printable(fmt.Sprintf("Character %d: %s.", wrong.At, wrong.Why)), display.Printable(wrong.Hint)
		p.Total = "0"
		return s.render(w, r, http.StatusBadRequest, "list", "Runs", v, p)
	}
	found, err := v.Search(r.Context(), q, search.Options{Limit: size, Offset: offset})
	if err != nil {
		return err
	}
	p.Total, p.Words = display.Digits(uint64(min(found.Total, eventlog.MaxCounted))), found.Words()
	if found.Total > eventlog.MaxCounted {
		p.Total += "+"
	}

	states := map[string]int{}
	for _, start := range found.Starts {
		states[start.State]++
	}
	for _, status := range []string{"", eventlog.StatusCompleted, eventlog.StatusFailed, eventlog.StatusCancelled, eventlog.StatusOpen} {
		tab := link{cmp.Or(status, "all"), path(q.With("state", status), 0), "", q.Value("state") == status}
		if n := states[status]; status != "" && (q.Value("state") == "" || n > 0) {
			tab.Count = display.Digits(uint64(n))
		} else if status == "" && q.Value("state") == "" {
			tab.Count = p.Total
		}
		p.Tabs = append(p.Tabs, tab)
	}
	for _, since := range []struct{ age, name string }{{"1h", "last hour"}, {"24h", "last day"}, {"7d", "last week"}} {
		chip := link{since.name, path(q.With("since", since.age), 0), "", q.Value("since") == since.age}
		if chip.Current {
			chip.Path = path(q.With("since", ""), 0)
		}
		p.Chips = append(p.Chips, chip)
	}
	p.bars(found.Starts, func(from, to time.Time) string {
		ranged, _ := search.Parse(q.With("until", ""), now) // of words that were parsed before
		return path(strings.TrimSpace(ranged.With("since", from.Format(time.RFC3339Nano))+" "+search.Word("until", to.Format(time.RFC3339Nano))), 0)
	})
	failed := 0
	for i, one := range found.Reasons {
		if failed += one.Runs; i < maxReasons {
			from, to := display.Period(one.First, one.Last, now)
			p.Reasons = append(p.Reasons, reason{display.Digits(uint64(one.Runs)), line(one.Tool), line(one.Text), path(one.Query, 0), from, to, one.First, one.Last})
		}
	}
	p.Failed = display.Digits(uint64(failed))

	var summaries []eventlog.RunSummary
	longest := int64(1)
	for _, run := range found.Runs {
		p.Together.Add(run.RunSummary)
		summaries, longest = append(summaries, run.RunSummary), max(longest, run.DurationMs)
	}
	jobs := v.OpenJobs(r.Context(), summaries...)
	p.Has = map[string]bool{}
	for _, run := range found.Runs {
		one := runLine{Run: run, State: stateOf(run.Status), Took: percent(float64(run.DurationMs) / float64(longest))}
		if job, ok := jobs[run.RunID]; ok {
			one.State, one.Job = stateOf(job.State), sentenceOf(job)
		} else if silent := run.Silent(now); run.TerminalKind == 0 && silent >= minSilence {
			one.State.Class, one.Job = "warn", "silent for "+strings.TrimSuffix(ago(silent), " ago")
		}
		for name, n := range map[string]uint64{"fuel": run.Meter.Fuel, "http": uint64(run.Status4xx + run.Status5xx), "calls": uint64(run.ToolCallCount)} {
			p.Has[name] = p.Has[name] || n > 0
		}
		p.Has["cost"] = p.Has["cost"] || cost(run.CostUSD) != ""
		p.Runs = append(p.Runs, one)
	}
	if len(p.Runs) > 0 {
		p.First, p.Last = offset+1, offset+len(p.Runs)
	}
	if offset > 0 {
		p.Previous = path(text, min(offset, found.Total)-size) // runs may have been removed since
	}
	if p.Last > 0 && p.Last < found.Total {
		p.Next = path(text, p.Last)
	}
	if found.More {
		p.Notes = append(p.Notes, fmt.Sprintf("Only the newest %s runs were searched. For older ones add until:%s", display.Digits(uint64(found.Searched)), found.Oldest.UTC().Format(time.RFC3339)))
	}
	if note := found.Note(); note != "" {
		p.Notes = append(p.Notes, note)
	}
	if found.Unread > 0 {
		p.Notes = append(p.Notes, display.Plural(found.Unread, "run")+" could not be read to the end. Validate tells why.")
	}
	return s.render(w, r, http.StatusOK, "list", "Runs", v, p)
}

// minSilence is how long an open run records nothing until the list says so.
const minSilence = 30 * time.Second

// widths are the stretches of time that a bar may stand for.
var widths = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

const maxBars = 60

// bars draws when runs began.
func (p *listPage) bars(starts []search.Start, path func(from, to time.Time) string) {
	if len(starts) < 2 {
		return
	}
	earlier := func(a, b search.Start) int { return a.At.Compare(b.At) }
	first, last := slices.MinFunc(starts, earlier).At, slices.MaxFunc(starts, earlier).At
	width := widths[len(widths)-1]
	for _, wide := range slices.Backward(widths) {
		if last.Sub(first)/wide < maxBars-1 {
			width = wide
		}
	}
	first = first.Truncate(width).UTC()
	n := min(int(last.Sub(first)/width)+1, maxBars) // a log may claim times that are centuries apart
	all, bad := make([]int, n), make([]int, n)
	for _, start := range starts {
		at := min(max(int(start.At.Sub(first)/width), 0), n-1)
		all[at]++
		if start.State == eventlog.StatusFailed {
			bad[at]++
		}
	}
	most := float64(slices.Max(all))
	for i, count := range all {
		if count == 0 {
			continue
		}
		from := first.Add(time.Duration(i) * width)
		name := fmt.Sprintf("%s, %s: %s", from.Format(time.DateTime), width, display.Plural(count, "run"))
		if bad[i] > 0 {
			name += fmt.Sprintf(", %d failed", bad[i])
		}
		left, right := float64(i)/float64(n), (float64(i)+.9)/float64(n)
		p.Bars = append(p.Bars, newRect(left, right, 1-float64(count)/most, 1, "all", "", ""), newRect(left, right, 1-float64(bad[i])/most, 1, "bad", "", ""),
			newRect(left, right, 0, 1, "whole", name, path(from, from.Add(width))))
	}
	p.From, p.To = first.Format(time.DateTime), first.Add(time.Duration(n)*width).Format(time.DateTime)
}

// opening returns a run's goal, and the model it asked. It returns nothing for an
// unreadable first event; the timeline shows the reason.
func opening(ctx context.Context, v eventview.View, id string) (goal, model string) {
	started, err := v.Started(ctx, id)
	if err != nil {
		return "", ""
	}
	if started.ModelID != "" {
		model = display.Shorten(display.Printable(strings.TrimPrefix(started.ProviderID+"/"+started.ModelID, "/")), maxModel)
	}
	return display.Shorten(display.Printable(started.Goal), maxGoal), model
}

// Shown lengths of a goal and of a model's name, in characters.
const (
	maxGoal  = 160
	maxModel = 80
)
