package inspect

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/logview"
	"github.com/starling-host/starling/host/narrate"
)

// families are the groups of kinds that a timeline can be narrowed to.
var families = []struct{ group, name string }{
	{"run", "run"}, {"model", "model"}, {"tool", "tool calls"}, {"effect", "effects"}, {"bad", "failures"},
}

// fewEvents is up to how many events there is nothing to narrow.
const fewEvents = 20

// maxSkipped bounds how many events are passed over for one page.
const maxSkipped = 50_000

// familyLinks lead to the timelines of each family, and to all of it.
func (s *Server) familyLinks(run eventlog.RunSummary, only string) []link {
	if run.LastSeq <= fewEvents {
		return nil
	}
	links := []link{{"all", s.path("runs", run.RunID), "", only == ""}}
	for _, f := range families {
		links = append(links, link{f.name, s.familyPath(run.RunID, f.group, 1), "", only == f.group})
	}
	return links
}

func (s *Server) familyPath(id, group string, at uint64) string {
	path := s.path("runs", id) + "?only=" + group
	if at > 1 {
		path += fmt.Sprintf("&at=%d", at)
	}
	return path
}

// familyOf returns the family that a request asks for, or nothing.
func familyOf(r *http.Request) string {
	for _, f := range families {
		if r.URL.Query().Get("only") == f.group {
			return f.group
		}
	}
	return ""
}

// family is a page of the events of one family, from one number on.
func (s *Server) family(w http.ResponseWriter, r *http.Request, v logview.View, run eventlog.RunSummary, only string) error {
	at, _ := strconv.ParseUint(r.URL.Query().Get("at"), 10, 64)
	at = min(max(at, 1), max(run.LastSeq, 1))
	events, next, err := pick(v, r, run.RunID, only, at)
	if err != nil && !errors.Is(err, eventlog.ErrLogCorrupt) {
		return err
	}
	head, began := s.runHead(r, v, run)
	p := timelinePage{Run: head, Events: s.rows(run.RunID, began, events), Families: s.familyLinks(run, only), Narrowed: true, Max: run.LastSeq}
	if err != nil {
		p.Problem = narrate.Problem(err)
	}
	if at > 1 {
		p.First = s.familyPath(run.RunID, only, 1)
	}
	if next > 0 {
		p.Next = s.familyPath(run.RunID, only, next)
	}
	s.render(w, r, http.StatusOK, "timeline", run.RunID, v, p)
	return nil
}

// pick returns a page of the events of a family with numbers from at on, and the
// number to go on from, zero at the end of the run.
func pick(v logview.View, r *http.Request, id, only string, at uint64) (events []event.Event, next uint64, err error) {
	skipped := 0
	for ev, err := range v.Events(r.Context(), id, at-1) {
		switch {
		case err != nil:
			return events, 0, err
		case len(events) == eventsPerPage, skipped == maxSkipped:
			return events, ev.Seq, nil
		case group(ev.Kind) == only:
			events = append(events, ev)
		default:
			skipped++
		}
	}
	return events, 0, nil
}
