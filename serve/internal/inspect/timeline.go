package inspect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/internal/web"
)

// Bounds of a page of events. A longer payload is shown on the page of its event;
// an even longer one is downloaded as a file.
const (
	eventsPerPage   = 200
	maxLine         = 240     // characters of the facts of an event
	maxInline       = 8 << 10 // stored bytes of one payload in a timeline
	maxInlineOfPage = 1 << 20 // bytes of all payloads in a timeline
	maxShown        = 1 << 20 // bytes of one payload on its own page
)

// runHead is the header of the pages about a run.
type runHead struct {
	ID, Goal, Model string
	Status          state
	Started         moment
	Facts           []fact
	RunID           string // as the log has it
	Replays         bool   // it can be replayed here
}

// fact is a figure with its name.
type fact struct{ Name, Value string }

// Hash reports whether the figure is a hash, which people copy.
func (f fact) Hash() bool { return len(f.Value) == hex.EncodedLen(event.HashSize) }

// timelinePage is a page of events.
type timelinePage struct {
	Run                         runHead
	Tabs                        []link
	Events                      []eventRow
	From, To                    string
	Total                       string
	Families                    []link // empty if there is little to narrow
	Narrowed                    bool   // to one family; then there are First and Next alone
	Problem                     string // why the rest cannot be read, or empty
	First, Previous, Next, Last string // paths, or empty
	At                          uint64
	Max                         uint64
	Live                        string // path of the stream that continues from here, or empty
}

// eventRow is one event of a timeline.
type eventRow struct {
	Seq      uint64 `json:"seq"`
	Kind     string `json:"kind"`
	Group    string `json:"group"` // the class that it is drawn with
	Depth    int    `json:"depth"` // how far it is indented
	Since    string `json:"since"` // the beginning of the run
	Time     string `json:"time"`
	Line     string `json:"line"`
	Size     string `json:"size"`
	Hash     string `json:"hash"`
	Previous string `json:"previous"`
	Payload  string `json:"payload"` // indented JSON, or empty where it is too long
	Path     string `json:"path"`
}

// Turns reports whether there are other pages.
func (p timelinePage) Turns() bool { return !p.Narrowed && (p.Previous != "" || p.Next != "") }

// Blank is the template of the script's rows of a run in progress.
func (timelinePage) Blank() eventRow { return eventRow{Payload: "{}"} }

// Short is enough of a hash to recognize it.
func (e eventRow) Short() string { return e.Hash[:min(len(e.Hash), 8)] }

func (s *Server) timeline(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	run, err := v.Run(r.Context(), r.PathValue("run"))
	if err != nil {
		return err
	}
	only := familyOf(r)
	at, _ := strconv.ParseUint(r.URL.Query().Get("at"), 10, 64)
	at = min(max(at, 1), max(run.LastSeq, 1))
	after, from := (at-1)/eventsPerPage*eventsPerPage, at
	if only == "" {
		from = after + 1 // whole pages, except for a family
	}
	head, began := s.runHead(r, v, run)
	rows, next, err := s.rows(r, v, run.RunID, began, only, from)
	if err != nil && !errors.Is(err, eventlog.ErrLogCorrupt) {
		return err
	}
	p := timelinePage{Run: head, Tabs: s.runTabs(run.RunID, "events"), Events: rows, Families: s.familyLinks(run, only), Narrowed: only != "", Max: run.LastSeq}
	if err != nil {
		p.Problem = display.PrintableError(err)
	}
	if p.Narrowed {
		if at > 1 {
			p.First = s.familyPath(run.RunID, only, 1)
		}
		if next > 0 {
			p.Next = s.familyPath(run.RunID, only, next)
		}
	} else {
		p.At = at
		s.turnPages(&p, run, after)
	}
	s.render(w, r, http.StatusOK, "timeline", run.RunID, v, p)
	return nil
}

// turnPages fills in where in its run a page stands, and the paths of the other pages.
func (s *Server) turnPages(p *timelinePage, run eventlog.RunSummary, after uint64) {
	page := func(at uint64) string { return s.path("runs", run.RunID) + fmt.Sprintf("?at=%d", at) }
	last := after
	if n := len(p.Events); n > 0 {
		last = p.Events[n-1].Seq
		p.From, p.To = display.Digits(p.Events[0].Seq), display.Digits(last)
	}
	p.Max = max(run.LastSeq, last)
	p.Total = display.Digits(p.Max)
	if after > 0 {
		p.First, p.Previous = page(1), page(after-eventsPerPage+1)
	}
	if last < p.Max {
		p.Next, p.Last = page(last+1), page(p.Max)
	}
	if run.TerminalKind == 0 && last >= run.LastSeq && p.Problem == "" {
		p.Live = s.path("runs", run.RunID, "live") + fmt.Sprintf("?after=%d", last)
	}
}

// runHead describes a run. Began is the time of its first event.
func (s *Server) runHead(r *http.Request, v eventview.View, run eventlog.RunSummary) (runHead, int64) {
	began := run.StartedAt.UnixNano()
	goal, model := opening(r.Context(), v, run.RunID)
	h := runHead{
		ID: display.Printable(run.RunID), Goal: goal, Model: model, Status: stateOf(run), Started: newMoment(began, time.Now()),
		RunID: run.RunID, Replays: v.CanReplay(),
	}
	if job, ok := v.OpenJobs(r.Context(), run)[run.RunID]; ok {
		h.Status = stateOfJob(job.State)
		h.Facts = append(h.Facts, fact{"in the queue", sentenceOf(job)})
	}
	if duration := took(run); duration != "" {
		h.Facts = append(h.Facts, fact{"duration", duration})
	}
	h.Facts = append(h.Facts, used(run)...)
	return h, began
}

// used returns the totals of one or several runs, without zero ones.
func used(run eventlog.RunSummary) (facts []fact) {
	count := func(n int64) string { return display.Digits(uint64(max(n, 0))) }
	for _, f := range []fact{
		{"events", display.Digits(run.LastSeq)}, {"turns", count(int64(run.TurnCount))}, {"tool calls", count(int64(run.ToolCallCount))},
		{"tokens in", count(run.InputTokens)}, {"tokens out", count(run.OutputTokens)}, {"cost", cost(run.CostUSD)},
	} {
		if f.Value != "" && f.Value != "0" {
			facts = append(facts, f)
		}
	}
	return facts
}

// rows describes a page of the events with numbers from at on, of one family or of all,
// with their payloads if those are short. It returns the number to continue from, zero at
// the end of the run. It keeps no more of an event than its line shows.
func (s *Server) rows(r *http.Request, v eventview.View, id string, began int64, only string, at uint64) (rows []eventRow, next uint64, err error) {
	room, skipped := maxInlineOfPage, 0
	for ev, err := range v.Events(r.Context(), id, at-1) {
		switch {
		case err != nil:
			return rows, 0, err
		case len(rows) == eventsPerPage, skipped == maxSkipped:
			return rows, ev.Seq, nil
		case only != "" && ev.Kind.Family() != only:
			skipped++
			continue
		}
		row := s.row(id, began, ev, maxInline)
		if len(row.Payload) <= room {
			room -= len(row.Payload)
		} else {
			row.Payload = ""
		}
		rows = append(rows, row)
	}
	return rows, 0, nil
}

// row describes one event, with its payload if its stored size is at most the given number of
// bytes.
func (s *Server) row(id string, began int64, ev event.Event, most int) eventRow {
	hash := ev.Hash()
	row := eventRow{
		Seq: ev.Seq, Kind: ev.Kind.Short(), Group: ev.Kind.Family(), Depth: ev.Kind.Depth(),
		Since: fmt.Sprintf("%+.3fs", time.Duration(ev.Timestamp-began).Seconds()), Time: newMoment(ev.Timestamp, time.Now()).Date,
		Line: event.Line(ev, maxLine), Size: display.Size(uint64(len(ev.Payload))), Hash: hash.String(), Previous: hex.EncodeToString(ev.PrevHash),
		Path: s.path("runs", id, "events", strconv.FormatUint(ev.Seq, 10)),
	}
	if len(ev.Payload) <= most {
		row.Payload = event.Indented(ev.Payload)
	}
	return row
}

// eventPage is one event.
type eventPage struct {
	Run            runHead
	Event          eventRow
	Kind           string       // in full
	Envelope       string       // hexadecimal, the hashed bytes; empty where it is long
	Texts          []event.Text // the long texts of the payload, with their line breaks
	Previous, Next uint64       // numbers, or zero
}

func (s *Server) event(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	run, ev, err := s.find(r, v)
	if err != nil {
		return err
	}
	head, began := s.runHead(r, v, run)
	p := eventPage{Run: head, Kind: ev.Kind.String(), Event: s.row(run.RunID, began, ev, maxShown), Previous: ev.Seq - 1}
	if len(ev.Payload) <= maxShown {
		p.Texts = event.LongTexts(ev.Payload)
	}
	if len(ev.Payload) <= maxInline {
		p.Envelope = hex.EncodeToString(event.AppendEnvelope(nil, ev))
	}
	if ev.Seq < run.LastSeq {
		p.Next = ev.Seq + 1
	}
	s.render(w, r, http.StatusOK, "event", fmt.Sprintf("event %d of %s", ev.Seq, run.RunID), v, p)
	return nil
}

// raw is one event as a line of JSON, the form that export has.
func (s *Server) raw(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	_, ev, err := s.find(r, v)
	if err != nil {
		return err
	}
	doc, err := event.ToJSON(ev)
	if err != nil {
		return &status{http.StatusUnprocessableEntity, "The event cannot be written as JSON."}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="event-%d.json"`, ev.Seq))
	_, _ = w.Write(append(doc, '\n'))
	return nil
}

// find looks up the run and the event that a path names.
func (s *Server) find(r *http.Request, v eventview.View) (eventlog.RunSummary, event.Event, error) {
	run, err := v.Run(r.Context(), r.PathValue("run"))
	if err != nil {
		return run, event.Event{}, err
	}
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil {
		return run, event.Event{}, eventview.ErrEventNotFound
	}
	ev, err := v.Event(context.WithoutCancel(r.Context()), run.RunID, seq)
	return run, ev, err
}

// families are the groups of kinds that a timeline can be narrowed to.
var families = []struct{ group, name string }{
	{"run", "run"}, {"model", "model"}, {"tool", "tool calls"}, {"effect", "effects"}, {"bad", "failures"},
}

// fewEvents is the number of events up to which filters are not shown.
const fewEvents = 20

// maxSkipped bounds how many events are passed over for one page.
const maxSkipped = 50_000

// familyLinks returns links to the timeline of each family, and to the whole timeline.
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
	return address(s.path("runs", id), url.Values{"only": {group}, "at": {unless(1, at)}})
}

// familyOf returns the family in a request, or "".
func familyOf(r *http.Request) string {
	for _, f := range families {
		if r.URL.Query().Get("only") == f.group {
			return f.group
		}
	}
	return ""
}

// Bounds of a stream to a browser.
const (
	heartbeat    = 15 * time.Second // between comments, which reveal a browser that went away
	writeTimeout = 10 * time.Second // for one write to a browser that does not read
)

// live sends the events of a run as they come, as server-sent events whose ids are
// the events' numbers, so that a browser that was cut off continues where it was.
// The last message is "end".
func (s *Server) live(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	run, err := v.Run(r.Context(), r.PathValue("run"))
	if err != nil {
		return err
	}
	if v.Follow != nil {
		leave, err := v.Follow(r.Context())
		if err != nil {
			return err
		}
		defer leave()
	}
	events, err := v.Stream(r.Context(), run.RunID)
	if err != nil {
		return err
	}
	after := resumeAfter(r)
	out := web.NewStream(w, writeTimeout)
	out.Write(": following\n\n")
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for out.Err == nil {
		share.Of(r.Context()).Rest()
		select {
		case ev, open := <-events:
			if !open {
				out.Write("event: end\ndata: {}\n\n")
				return nil
			}
			if ev.Seq <= after {
				continue
			}
			if err := share.Step(r.Context()); err != nil {
				return err
			}
			row := s.row(run.RunID, run.StartedAt.UnixNano(), ev, maxInline)
			out.Send(fmt.Sprintf("id: %d\n", row.Seq), row)
		case <-beat.C:
			if _, err := v.Run(r.Context(), run.RunID); errors.Is(err, eventlog.ErrRunNotFound) {
				return nil // it was removed: no event will tell
			}
			out.Write(": still here\n\n")
		}
	}
	return nil
}

// resumeAfter is the number of the last event that the browser has.
func resumeAfter(r *http.Request) uint64 {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	after, _ := strconv.ParseUint(text, 10, 64)
	return after
}
