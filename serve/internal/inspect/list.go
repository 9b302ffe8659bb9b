package inspect

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// Bounds of a page of runs.
const (
	perPage    = 50
	maxPerPage = 200
	maxQuery   = 200 // bytes
)

// listPage is a page of runs.
type listPage struct {
	Tabs, Chips        []link
	Query              string
	Hidden             []field // of the search form
	Runs               []runLine
	Totals             []fact // of the runs of this page
	From, To           int
	Total              string
	Previous, Next     string // paths, or empty
	Narrowed           bool   // some runs are left out
	Everything, Action string // paths
}

// link is a word that leads somewhere.
type link struct {
	Name, Path, Count string
	Current           bool
}

// field is a member of a form.
type field struct{ Name, Value string }

// runLine is one run of a listing.
type runLine struct {
	eventlog.RunSummary
	Goal, Model string
	State       state
	Job         string // its place in the queue, or empty
	Error       string // why it failed, or empty
}

// selection is the parsed address of a listing.
type selection struct {
	status, query, since string
	calls                bool
	perPage, offset      int
}

// sinces are the times that a listing can be narrowed to.
var sinces = []struct {
	key, name string
	age       time.Duration
}{{"1h", "last hour", time.Hour}, {"24h", "last day", 24 * time.Hour}, {"7d", "last week", 7 * 24 * time.Hour}}

// readSelection reads the valid parts of an address; the rest gets its default. An
// unknown state would then select all runs, so it is refused.
func readSelection(q url.Values) (selection, error) {
	sel := selection{status: q.Get("status"), query: strings.TrimSpace(q.Get("q")), since: q.Get("since"), calls: q.Get("calls") == "1"}
	sel.query = sel.query[:min(len(sel.query), maxQuery)]
	if (eventlog.RunPageOptions{Status: sel.status}).Valid() != nil {
		return sel, &status{http.StatusBadRequest, "Unknown status. Use completed, failed, cancelled or open."}
	}
	sel.perPage, _ = strconv.Atoi(q.Get("per_page"))
	if sel.perPage < 1 {
		sel.perPage = perPage
	}
	sel.perPage = min(sel.perPage, maxPerPage)
	sel.offset, _ = strconv.Atoi(q.Get("offset"))
	sel.offset = max(sel.offset, 0)
	return sel, nil
}

// options returns the query for the log.
func (sel selection) options(now time.Time) eventlog.RunPageOptions {
	o := eventlog.RunPageOptions{Limit: sel.perPage, Offset: sel.offset, Status: sel.status, Query: sel.query, RequireToolCalls: sel.calls}
	for _, since := range sinces {
		if sel.since == since.key {
			o.StartedAfter = now.Add(-since.age)
		}
	}
	return o
}

// parameters returns the selection as parameters of an address.
func (sel selection) parameters() url.Values {
	q := url.Values{"status": {sel.status}, "q": {sel.query}, "since": {sel.since}, "per_page": {unless(perPage, sel.perPage)}, "offset": {unless(0, sel.offset)}}
	if sel.calls {
		q.Set("calls", "1")
	}
	return q
}

// listPath is the address of a selection.
func (s *Server) listPath(sel selection) string { return address(s.path(), sel.parameters()) }

func (s *Server) list(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	sel, err := readSelection(r.URL.Query())
	if err != nil {
		return err
	}
	now := time.Now()
	found, err := v.Runs(r.Context(), sel.options(now))
	if err != nil {
		return err
	}
	p := listPage{Query: sel.query, Total: display.Digits(uint64(found.TotalMatching)), Everything: s.path(), Action: s.path()}
	p.Narrowed = sel.status != "" || sel.query != "" || sel.since != "" || sel.calls
	if p.Tabs, err = s.tabs(r.Context(), v, sel, now); err != nil {
		return err
	}
	p.Chips, p.Hidden = s.chips(sel), hidden(sel)
	jobs := v.OpenJobs(r.Context(), found.Runs...)
	for _, run := range found.Runs {
		line := runLine{RunSummary: run, State: stateOf(run)}
		line.Goal, line.Model = opening(r.Context(), v, run.RunID)
		if failed := v.Failure(r.Context(), run); failed.ErrorType != "" {
			line.Error = display.Shorten(display.Printable(failed.Reason()), maxGoal)
		}
		if job, ok := jobs[run.RunID]; ok {
			line.State, line.Job = stateOfJob(job.State), sentenceOf(job)
		}
		p.Runs = append(p.Runs, line)
	}
	if len(p.Runs) > 0 {
		p.Totals = append([]fact{{"together", display.Plural(len(p.Runs), "run")}}, used(eventlog.Together(found.Runs))...)
		p.From, p.To = found.Offset+1, found.Offset+len(p.Runs)
	}
	if found.Offset > 0 {
		p.Previous = s.listPath(sel.at(min(found.Offset, found.TotalMatching) - sel.perPage)) // runs may have been removed since
	}
	if p.To > 0 && p.To < found.TotalMatching {
		p.Next = s.listPath(sel.at(p.To))
	}
	s.render(w, r, http.StatusOK, "list", "Runs", v, p)
	return nil
}

// at is the same selection from another run on.
func (sel selection) at(offset int) selection {
	sel.offset = max(offset, 0)
	return sel
}

// tabs are the states, with how many runs are in each.
func (s *Server) tabs(ctx context.Context, v eventview.View, sel selection, now time.Time) ([]link, error) {
	states := []string{"", eventlog.StatusCompleted, eventlog.StatusFailed, eventlog.StatusCancelled, eventlog.StatusOpen}
	var tabs []link
	for _, status := range states {
		one := sel.at(0)
		one.status = status
		o := one.options(now)
		o.Limit = 1
		found, err := v.Runs(ctx, o)
		if err != nil {
			return nil, err
		}
		name := status
		if name == "" {
			name = "all"
		}
		tabs = append(tabs, link{name, s.listPath(one), display.Digits(uint64(found.TotalMatching)), sel.status == status})
	}
	return tabs, nil
}

// chips switch the other narrowings on and off.
func (s *Server) chips(sel selection) []link {
	var chips []link
	for _, since := range sinces {
		one := sel.at(0)
		one.since = since.key
		if sel.since == since.key {
			one.since = ""
		}
		chips = append(chips, link{since.name, s.listPath(one), "", sel.since == since.key})
	}
	one := sel.at(0)
	one.calls = !sel.calls
	return append(chips, link{"with tool calls", s.listPath(one), "", sel.calls})
}

// hidden returns the parts of a selection that the search form keeps.
func hidden(sel selection) []field {
	var fields []field
	for _, name := range []string{"status", "since", "calls", "per_page"} {
		if value := sel.parameters().Get(name); value != "" {
			fields = append(fields, field{name, value})
		}
	}
	return fields
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
