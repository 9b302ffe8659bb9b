package inspect

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// Bounds of what the pages of tools read: of the newest runs.
const (
	maxToolRuns   = 1000
	maxToolEvents = 200_000
	maxCalls      = 20_000 // of one tool, whose latency and fuel are kept
	maxToolNames  = 200
	maxLooked     = 2000 // runs whose first event is read for a comparison
	maxExecuted   = 50   // runs that a comparison executes
)

// toolUse is what recorded runs say of a tool.
type toolUse struct {
	Name                     string
	Calls                    []useOfTool
	Runs, Failed             int
	Versions, Reasons, Hosts map[string]*tally // versions by digest, "" for a tool that is not a module
}

// useOfTool is one attempt of a call.
type useOfTool struct {
	at, took int64
	fuel     uint64
	failed   bool
}

// tally counts the calls of a version, those that failed for a reason, or the requests to a host.
type tally struct {
	Name, Path, Example string
	First, Last         moment
	first, last         int64
	Runs, Calls, Failed int
	Status              [6]int // responses by their class, the first for none
}

// of returns the tally of a name. One beyond the bound is not kept.
func of(tallies map[string]*tally, name string) *tally {
	t := tallies[name]
	if t == nil {
		if t = (&tally{Name: name}); len(tallies) < maxToolNames {
			tallies[name] = t
		}
	}
	return t
}

// sorted returns tallies, the last used and most frequent first.
func sorted(tallies map[string]*tally) []*tally {
	return slices.SortedFunc(maps.Values(tallies), func(a, b *tally) int {
		return cmp.Or(cmp.Compare(b.last, a.last), cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
	})
}

// toolPage is a tool over time.
type toolPage struct {
	Name                     string
	Facts                    []fact
	Notes                    []string
	Versions, Reasons, Hosts []*tally
	Plots                    []plot
	Change                   string // path of the comparison with another version, or empty
	AnyOther                 bool   // the digest of a module without runs may be typed in
}

// gather reads the newest runs. Only the named tool is looked at, unless that is empty.
func gather(ctx context.Context, v eventview.View, only string) (tools map[string]*toolUse, notes []string, err error) {
	tools = map[string]*toolUse{}
	var older bool
	runs, unread, room := 0, 0, uint64(maxToolEvents)
	for run, err := range v.Newest(ctx, eventlog.RunPageOptions{Limit: eventlog.MaxPageLimit}, maxToolRuns, &older) {
		if err != nil {
			return nil, nil, err
		}
		if runs++; room == 0 || runs > maxToolRuns {
			older = true
			break
		}
		var b span.Builder
		versions := map[string]string{}
		for ev, err := range v.Events(ctx, run.RunID, 0) {
			if err == nil {
				err = b.Add(ev)
			}
			if err != nil || room == 0 {
				if ctx.Err() != nil {
					return nil, nil, ctx.Err()
				}
				unread++
				break
			}
			room--
			if started, err := ev.AsRunStarted(); err == nil && ev.Seq == 1 {
				for _, ref := range started.ToolSchemas {
					if ref.Sandbox != nil && len(ref.Sandbox.Module) == event.HashSize {
						versions[ref.Name] = canon.Hash(ref.Sandbox.Module).String()
					}
				}
				if uses := func(ref event.ToolSchemaRef) bool { return ref.Name == only }; only != "" && !slices.ContainsFunc(started.ToolSchemas, uses) {
					break
				}
			}
		}
		add(tools, b.Run(), versions, only)
	}
	if older {
		notes = append(notes, fmt.Sprintf("Older runs are not counted: a page reads the newest %s runs and %s events.", display.Digits(maxToolRuns), display.Digits(maxToolEvents)))
	}
	if unread > 0 {
		notes = append(notes, display.Plural(unread, "run")+" could not be read to the end.")
	}
	return tools, notes, nil
}

// add counts what a run did with tools.
func add(tools map[string]*toolUse, run *span.Run, versions map[string]string, only string) {
	seen := map[string]bool{}
	for i := range run.Spans {
		s := &run.Spans[i]
		name := s.Name
		if s.Kind == span.Effect && s.Parent >= 0 {
			name = run.Spans[s.Parent].Name
		}
		use := tools[name]
		if s.Kind != span.Call && (s.Kind != span.Effect || s.Host == "" || use == nil) || only != "" && name != only {
			continue
		}
		if use == nil {
			if len(tools) >= maxToolNames {
				continue
			}
			use = &toolUse{Name: name, Versions: map[string]*tally{}, Reasons: map[string]*tally{}, Hosts: map[string]*tally{}}
			tools[name] = use
		}
		if s.Kind == span.Effect {
			host, class := of(use.Hosts, s.Host), s.Status/100
			if class < 0 || class >= len(host.Status) {
				class = 0
			}
			host.Calls++
			host.Status[class]++
			continue
		}
		at, version := run.Began+s.Start, of(use.Versions, versions[name])
		if version.Calls++; version.Calls == 1 {
			version.first, version.last = at, at
		}
		version.first, version.last = min(version.first, at), max(version.last, at)
		if !seen[name] {
			seen[name] = true
			use.Runs++
			version.Runs++
		}
		if s.State == span.Failed {
			use.Failed++
			version.Failed++
			reason := of(use.Reasons, s.ErrorType)
			reason.Calls++
			reason.Example = cmp.Or(reason.Example, line(display.OneLine(s.Error)))
		}
		if s.State != span.Open && len(use.Calls) < maxCalls {
			use.Calls = append(use.Calls, useOfTool{at, s.End - s.Start, s.Fuel, s.State == span.Failed})
		}
	}
}

// toolList shows the tools of the newest runs.
func (s *Server) toolList(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	tools, notes, err := gather(r.Context(), v, "")
	if err != nil {
		return err
	}
	p := struct {
		Tools []*toolUse
		Notes []string
	}{slices.SortedFunc(maps.Values(tools), func(a, b *toolUse) int {
		return cmp.Or(cmp.Compare(b.Runs, a.Runs), strings.Compare(a.Name, b.Name))
	}), notes}
	return s.render(w, r, http.StatusOK, "tools", "Tools", v, p)
}

func (s *Server) tool(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	name := r.PathValue("tool")
	tools, notes, err := gather(r.Context(), v, name)
	if err != nil {
		return err
	}
	use := tools[name]
	if use == nil {
		return eventlog.ErrRunNotFound
	}
	p := toolPage{Name: display.Printable(name), Notes: notes, Versions: sorted(use.Versions), Reasons: sorted(use.Reasons), Hosts: sorted(use.Hosts)}
	find := func(field, value string) string {
		return address(s.path(), url.Values{"q": {search.Word("tool", name) + " " + search.Word(field, value)}})
	}
	slices.SortStableFunc(use.Calls, func(a, b useOfTool) int { return cmp.Compare(a.at, b.at) })
	now, modules := time.Now(), 0
	for _, version := range p.Versions {
		version.First, version.Last = newMoment(version.first, now), newMoment(version.last, now)
		if version.Name != "" {
			modules++
		}
	}
	for _, reason := range p.Reasons {
		reason.Path = find("error", reason.Name)
	}
	for _, host := range p.Hosts {
		host.Path = find("host", host.Name)
	}
	if v.Executor != nil && modules > 0 {
		p.Change, p.AnyOther = s.path("tools", name, "change"), v.Namespace == ""
	}
	p.Facts = []fact{{"runs", digits(use.Runs)}, {"calls", digits(len(use.Calls))}, {"failed", fmt.Sprintf("%s, %s", digits(use.Failed), shareOf(uint64(use.Failed), uint64(max(len(use.Calls), 1))))}}
	p.Plots = []plot{
		newPlot("Latency", use.Calls, p.Versions, func(c useOfTool) float64 { return float64(c.took) / 1e6 }, func(x float64) string { return duration(int64(x * 1e6)) }),
		newPlot("Fuel", use.Calls, p.Versions, func(c useOfTool) float64 { return float64(c.fuel) }, func(x float64) string { return display.Fuel(uint64(x)) }),
	}
	return s.render(w, r, http.StatusOK, "tool", name, v, p)
}

// plot shows a figure of calls in their order, and its distribution.
type plot struct {
	Name, Empty  string
	Facts        []fact
	Bars, Counts []rect // of calls in a row, and the distribution
	Low, High    string
	First, Last  string
}

const plotBuckets = 40

// newPlot draws a figure, on a logarithmic scale. Calls are in the order of their beginning.
func newPlot(name string, calls []useOfTool, versions []*tally, of func(useOfTool) float64, text func(float64) string) plot {
	p := plot{Name: name}
	calls = slices.DeleteFunc(slices.Clone(calls), func(c useOfTool) bool { return of(c) <= 0 })
	if len(calls) == 0 {
		p.Empty = "No call has a figure."
		return p
	}
	figures := func(calls []useOfTool) (p50, p90, most float64, values []float64) {
		values = lists.Map(calls, of)
		slices.Sort(values)
		quantile := func(q float64) float64 { // the smallest value that a share of them does not exceed
			return values[max(int(math.Ceil(q*float64(len(values))))-1, 0)]
		}
		return quantile(.5), quantile(.9), values[len(values)-1], values
	}
	p50, p90, high, values := figures(calls)
	low := values[0]
	p.Low, p.High = text(low), text(high)
	p.Facts = []fact{{"p50", text(p50)}, {"p90", text(p90)}, {"max", p.High}}
	at := func(c useOfTool) string { return time.Unix(0, c.at).UTC().Format("2006-01-02 15:04") }
	p.First, p.Last = at(calls[0]), at(calls[len(calls)-1])
	scale := func(x float64) float64 { return math.Log(x/low) / max(math.Log(high/low), 1e-9) }
	bar := func(i, of int, top, bottom float64, class, title string) rect {
		return newRect((float64(i)+.08)/float64(of), (float64(i)+.92)/float64(of), top, bottom, class, title, "")
	}
	var counts [plotBuckets]int
	for _, x := range values {
		counts[min(int(scale(x)*plotBuckets), plotBuckets-1)]++
	}
	for i, n := range counts {
		if n > 0 {
			p.Counts = append(p.Counts, bar(i, plotBuckets, 1-float64(n)/float64(slices.Max(counts[:])), 1, "pl-call", display.Plural(n, "call")))
		}
	}
	began := map[int64]string{}
	for _, version := range versions {
		if version.Name != "" && len(versions) > 1 {
			began[version.first] = version.Name[:12]
		}
	}
	n := min(len(calls), plotBuckets)
	for i := range n {
		some, failed := calls[i*len(calls)/n:(i+1)*len(calls)/n], 0
		for _, c := range some {
			if c.failed {
				failed++
			}
			if began[c.at] != "" {
				p.Bars = append(p.Bars, bar(i, n, 0, 1, "pl-version", "first use of version "+began[c.at]))
				delete(began, c.at)
			}
		}
		p50, p90, top, _ := figures(some)
		title := fmt.Sprintf("%s from %s UTC: p50 %s, p90 %s, max %s, %d failed", display.Plural(len(some), "call"), at(some[0]), text(p50), text(p90), text(top), failed)
		y := func(x float64) float64 { return .02 + .85*(1-scale(x)) }
		p.Bars = append(p.Bars, bar(i, n, y(p90), max(y(p50), y(p90)+.03), "pl-call", title), bar(i, n, y(top), y(top)+.015, "pl-max", title))
		if failed > 0 {
			p.Bars = append(p.Bars, bar(i, n, 1-.08*float64(failed)/float64(len(some)), 1, "pl-failed", title))
		}
	}
	return p
}

// changePage shows what another version of a tool would have changed.
type changePage struct {
	Tool, To string
	Task     taskState
	Facts    []fact
	Notes    []string
	Differ   []changedRun
}

// changedRun is a run that another version would have changed.
type changedRun struct {
	agent.Verdict
	Expected, Got string // around the first difference
}

// change is what was found.
type change struct {
	same, refused int
	reason        string
	differ        []agent.Verdict
}

func (s *Server) change(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	name := r.PathValue("tool")
	digest, err := moduleOf(strings.TrimSpace(cmp.Or(r.FormValue("other"), r.FormValue("to"))))
	if err != nil {
		return &status{http.StatusBadRequest, "Name a version by the 64 characters of its digest."}
	}
	if v.Namespace != "" { // a tenant executes only what its runs have used
		if own, _, err := runsOf(r.Context(), v, "", digest); err != nil || len(own) == 0 {
			return cmp.Or(err, eventlog.ErrRunNotFound)
		}
	}
	if _, err := v.Modules.Module(r.Context(), digest); errors.Is(err, eventlog.ErrModuleNotFound) {
		return &status{http.StatusNotFound, "There is no module with this digest here."}
	}
	used, others, err := runsOf(r.Context(), v, name, digest)
	if err != nil || len(used)+others == 0 {
		return cmp.Or(err, eventlog.ErrRunNotFound)
	}
	page := address(s.path("tools", name, "change"), url.Values{"to": {digest.String()}})
	key := "change " + digest.String() + " " + name
	if r.Method == http.MethodPost {
		return s.command(w, r, v, key, page, func(ctx context.Context, t *task) (any, error) { return changes(ctx, v, digest, used, t) })
	}
	p := changePage{Tool: name, To: digest.String()}
	var result any
	p.Task, result = s.look(w, v, key, page)
	if found, ok := result.(*change); ok && found != nil {
		p.Facts = []fact{{"the same", digits(found.same)}, {"differ", digits(len(found.differ))}}
		if found.refused > 0 {
			p.Notes = append(p.Notes, display.Plural(found.refused, "run")+" could not be executed: "+found.reason)
		}
		if others > 0 {
			p.Notes = append(p.Notes, display.Plural(others, "run")+" with other modules left out.")
		}
		for _, verdict := range found.differ {
			if !slices.Contains(used, verdict.RunID) {
				continue // erased since then
			}
			one, d := changedRun{Verdict: verdict}, verdict.Divergence
			if one.Expected, one.Got, _ = display.AroundDifference(d.Expected, d.Got); d.Kind != d.ExpectedKind {
				one.Expected, one.Got = agent.KindName(d.ExpectedKind), agent.KindName(d.Kind)
			}
			p.Differ = append(p.Differ, one)
		}
	}
	return s.render(w, r, http.StatusOK, "change", "Change of "+name, v, p)
}

// moduleOf returns the digest that an address names.
func moduleOf(text string) (digest canon.Hash, err error) {
	if n, err := hex.Decode(digest[:], []byte(text[:min(len(text), 2*len(digest))])); err != nil || n != len(digest) || len(text) != 2*n {
		return digest, eventlog.ErrRunNotFound
	}
	return digest, nil
}

// runsOf returns the newest runs that use a tool and one module alone, or, if the tool is empty, that
// use the module of a digest. Others are runs that also use other modules.
func runsOf(ctx context.Context, v eventview.View, tool string, digest canon.Hash) (runs []string, others int, err error) {
	for run, err := range v.Newest(ctx, eventlog.RunPageOptions{Limit: eventlog.MaxPageLimit}, maxLooked, new(bool)) {
		if err != nil {
			return nil, 0, err
		}
		started, err := v.Started(ctx, run.RunID)
		if err != nil {
			continue // encrypted or corrupt, which its own page says
		}
		modules := map[string]bool{}
		found := false
		for _, ref := range started.ToolSchemas {
			if ref.Sandbox != nil {
				modules[string(ref.Sandbox.Module)] = true
				found = found || ref.Name == tool
			}
		}
		switch {
		case tool == "" && modules[string(digest[:])], found && len(modules) == 1:
			runs = append(runs, run.RunID)
		case found:
			others++
		}
	}
	return runs, others, nil
}

// changes replays the newest runs of a tool with another version.
func changes(ctx context.Context, v eventview.View, to canon.Hash, used []string, t *task) (*change, error) {
	x, err := v.Execute(ctx, eventview.Execution{Module: to.String()})
	if err != nil {
		return nil, err
	}
	defer x.Close()
	found := &change{}
	runs := used[:min(len(used), maxExecuted)]
	for i, id := range runs {
		t.report(uint64(i), uint64(len(runs)), "runs")
		verdict, err := x.Replay(ctx, id)
		switch {
		case ctx.Err() != nil:
			return found, ctx.Err()
		case err != nil:
			found.refused++
			reason := display.PrintableError(err)
			if _, missing, ok := strings.Cut(reason, "recorded: the module has no tool"); ok {
				reason = "this version has no tool" + missing
			}
			found.reason = cmp.Or(found.reason, reason)
		case verdict.Divergence != nil:
			verdict.RunID = id
			found.differ = append(found.differ, verdict)
		default:
			found.same++
		}
	}
	return found, nil
}
