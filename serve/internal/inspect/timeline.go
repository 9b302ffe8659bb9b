package inspect

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
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

// timeline is a page of the events of a run.
type timeline struct {
	Rows                        []eventRow
	From, To                    string
	Total                       string
	First, Previous, Next, Last string // paths, or empty
	At, Max                     uint64
}

// eventRow is one event of a timeline.
type eventRow struct {
	Seq      uint64 `json:"seq"`
	Kind     string `json:"kind"`
	Group    string `json:"group"` // the class that it is drawn with
	Depth    int    `json:"depth"` // how far it is indented
	Call     string `json:"call"`  // the tool that it belongs to, or empty
	Since    string `json:"since"` // the beginning of the run
	After    string `json:"after"` // the event before
	Time     string `json:"time"`
	Line     string `json:"line"`
	Size     string `json:"size"`
	Hash     string `json:"hash"`
	Previous string `json:"previous"`
	Payload  string `json:"payload"` // indented JSON, or empty where it is too long
	Path     string `json:"path"`
}

// Turns reports whether there are other pages.
func (t timeline) Turns() bool { return t.Previous != "" || t.Next != "" }

// Blank is the template of the script's rows of a run in progress.
func (timeline) Blank() eventRow { return eventRow{Payload: "{}", Call: "-"} }

// events lists a page of the events, with their payloads if those are short. It keeps no more of
// an event than its line shows.
func (b *reader) events(r *http.Request) error {
	run := b.run
	at := min(max(b.selected, 1), max(run.LastSeq, 1))
	from := (at-1)/eventsPerPage*eventsPerPage + 1
	t := &timeline{At: at}
	b.page.Events = t
	var before int64 // the time of the last event
	room := maxInlineOfPage
	take := func(ev event.Event) {
		passed := since(before, ev)
		before = ev.Timestamp
		if ev.Seq < from || len(t.Rows) == eventsPerPage {
			return
		}
		row := b.row(run.RunID, ev, maxInline)
		row.place(&b.spans, ev, passed)
		if len(row.Payload) <= room {
			room -= len(row.Payload)
		} else {
			row.Payload = ""
		}
		t.Rows = append(t.Rows, row)
	}
	if err := b.read(r, take); err != nil {
		return err
	}
	if from > maxDrawn { // these rows have no call
		before = 0
		for ev, err := range b.view.Events(r.Context(), run.RunID, from-1) {
			if err != nil {
				return err
			}
			if take(ev); len(t.Rows) == eventsPerPage {
				break
			}
		}
	}
	b.turnPages(t, from-1)
	return nil
}

// since returns how long after a time an event came, or nothing if the time is not known.
func since(before int64, ev event.Event) string {
	if before == 0 {
		return ""
	}
	return "+" + duration(max(ev.Timestamp-before, 0))
}

// place fills in where in its run an event stands, and how long after the event before.
func (e *eventRow) place(b *span.Builder, ev event.Event, after string) {
	run := b.Run()
	e.Since, e.After = since(run.Began, ev), after
	at := b.At()
	if at == span.None || run.Events != ev.Seq {
		return
	}
	e.Depth = min(run.Spans[at].Depth+1, 4)
	if in := run.CallOf(at); in != span.None {
		e.Call = line(run.Spans[in].CallName())
	}
}

// turnPages fills in where in its run a page stands, and the paths of the other pages.
func (b *reader) turnPages(t *timeline, after uint64) {
	page := func(at uint64) string { return b.path("runs", b.run.RunID, viewEvents) + fmt.Sprintf("?at=%d", at) }
	last := after
	if n := len(t.Rows); n > 0 {
		last = t.Rows[n-1].Seq
		t.From, t.To = display.Digits(t.Rows[0].Seq), display.Digits(last)
	}
	t.Max = max(b.run.LastSeq, last)
	t.Total = display.Digits(t.Max)
	if after > 0 {
		t.First, t.Previous = page(1), page(after-eventsPerPage+1)
	}
	if last < t.Max {
		t.Next, t.Last = page(last+1), page(t.Max)
	}
	if b.run.TerminalKind == 0 && last >= b.run.LastSeq && !b.broken {
		b.page.Live = b.path("runs", b.run.RunID, "live") + fmt.Sprintf("?after=%d", last)
	}
}

// row describes one event, with its payload if its stored size is at most the given number of
// bytes.
func (s *Server) row(id string, ev event.Event, most int) eventRow {
	hash := ev.Hash()
	row := eventRow{
		Seq: ev.Seq, Kind: ev.Kind.Short(), Group: ev.Kind.Family(), Time: newMoment(ev.Timestamp, time.Now()).Date,
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
	Kind           string // in full
	Envelope       string // hexadecimal, the hashed bytes; empty where it is long
	Parts          []part // the texts of the payload, with their line breaks
	Previous, Next uint64 // numbers, or zero
	Back           string // path of the run with the event selected
}

func (s *Server) event(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	run, ev, err := s.find(r, v)
	if err != nil {
		return err
	}
	p := eventPage{Run: s.runHead(r, v, run), Kind: ev.Kind.String(), Event: s.row(run.RunID, ev, maxShown), Previous: ev.Seq - 1, Back: s.runPath(run.RunID, viewWaterfall, ev.Seq)}
	p.Event.Since = since(run.StartedAt.UnixNano(), ev)
	p.Parts = slices.DeleteFunc(parts(ev), func(p part) bool { return p.JSON }) // the payload has these
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
	var b span.Builder
	var before int64
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
			if err := share.Step(r.Context()); err != nil {
				return err
			}
			_ = b.Add(ev) // an unreadable one has its own line
			passed := since(before, ev)
			before = ev.Timestamp
			if ev.Seq <= after {
				continue
			}
			row := s.row(run.RunID, ev, maxInline)
			row.place(&b, ev, passed)
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
