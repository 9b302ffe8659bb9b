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
	Seq            uint64
	Kind, Group    string // the group is the class that it is drawn with
	Depth          int    // how far it is indented
	Call           string // the tool that it belongs to, or empty
	Since, After   string // how long since the beginning of the run, and since the event before
	Time           string
	Line, Size     string
	Hash, Previous string
	Payload        string // indented JSON, or empty where it is too long
	Path           string
}

// Turns reports whether there are other pages.
func (t timeline) Turns() bool { return t.Previous != "" || t.Next != "" }

// events lists a page of the events, with their payloads if those are short.
func (b *reader) events(r *http.Request) error {
	run := b.run
	at := min(max(b.selected, 1), max(run.LastSeq, 1))
	from := (at-1)/eventsPerPage*eventsPerPage + 1
	t := &timeline{At: at}
	b.page.Events = t
	if err := b.read(r, nil); err != nil {
		return err
	}
	before, room := int64(0), maxInlineOfPage // the time of the last event, and the bytes left for payloads
	for ev, err := range b.view.Events(r.Context(), run.RunID, from-min(from, 2)) {
		if err != nil && !errors.Is(err, eventlog.ErrLogCorrupt) {
			return err
		}
		if err != nil || len(t.Rows) == eventsPerPage { // an unreadable event was noted
			break
		}
		passed := since(before, ev)
		before = ev.Timestamp
		if ev.Seq < from {
			continue
		}
		row := b.row(run.RunID, ev, min(maxInline, room))
		room -= len(row.Payload)
		row.Since, row.After = since(b.did.Began, ev), passed
		if at := b.did.At(ev.Seq); at != span.None {
			row.Depth = min(b.did.Spans[at].Depth+1, 4)
			row.Call = callName(b.did, at)
		}
		t.Rows = append(t.Rows, row)
	}
	for i := range b.did.Spans {
		b.drawn(b.did.Spans[i].Last, false, b.did.Spans[i].Bad())
	}
	slices.Sort(b.bad)
	last := from - 1
	if n := len(t.Rows); n > 0 {
		last = t.Rows[n-1].Seq
		t.From, t.To = display.Digits(from), display.Digits(last)
	}
	page := func(at uint64) string { return b.path("runs", run.RunID, viewEvents) + fmt.Sprintf("?at=%d", at) }
	t.Max = max(run.LastSeq, last)
	t.Total = display.Digits(t.Max)
	if from > 1 {
		t.First, t.Previous = page(1), page(from-eventsPerPage)
	}
	if last < t.Max {
		t.Next, t.Last = page(last+1), page(t.Max)
	}
	return nil
}

// since returns how long after a time an event came, or nothing if the time is not known.
func since(before int64, ev event.Event) string {
	if before == 0 {
		return ""
	}
	return "+" + duration(max(ev.Timestamp-before, 0))
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
	Kind           string   // in full
	Envelope       string   // hexadecimal, the hashed bytes; empty where it is long
	Parts          []titled // the texts of the payload, with their line breaks
	Previous, Next uint64   // numbers, or zero
	Back           string   // path of the run with the event selected
}

func (s *Server) event(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	run, ev, err := s.find(r, v)
	if err != nil {
		return err
	}
	p := eventPage{Run: s.runHead(r, v, run), Kind: ev.Kind.String(), Event: s.row(run.RunID, ev, maxShown), Previous: ev.Seq - 1, Back: s.runPath(run.RunID, viewWaterfall, ev.Seq)}
	p.Event.Since = since(run.StartedAt.UnixNano(), ev)
	p.Parts = slices.DeleteFunc(parts(ev), func(p titled) bool { return p.JSON }) // the payload has these
	if len(ev.Payload) <= maxInline {
		p.Envelope = hex.EncodeToString(event.AppendEnvelope(nil, ev))
	}
	if ev.Seq < run.LastSeq {
		p.Next = ev.Seq + 1
	}
	return s.render(w, r, http.StatusOK, "event", fmt.Sprintf("event %d of %s", ev.Seq, run.RunID), v, p)
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
	share.Of(r.Context()).Keep(int64(len(doc))) // the event is not needed any more
	write(w, r, http.StatusOK, append(doc, '\n'), false)
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
