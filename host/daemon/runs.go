package daemon

import (
	"bufio"
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/queue"
)

// Bounds of pages.
const (
	defaultRuns, mostRuns     = 50, 200
	defaultEvents, mostEvents = 200, 1000
)

// list is a page of a listing.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next,omitempty"`  // the cursor of the next page
	Total *int   `json:"total,omitempty"` // on all pages
}

func (d *Daemon) listRuns(w http.ResponseWriter, r *request) error {
	p := r.query
	o := eventlog.RunPageOptions{
		Limit: int(p.number("limit", defaultRuns, mostRuns)),
		Query: p.text("q"), StartedAfter: p.time("since"), Status: p.text("status"),
	}
	if o.Valid() != nil {
		p.fail("status", "status is completed, failed, cancelled or open")
	}
	at, ok := parseCursor(p.text("cursor"), listing(r.view, o))
	if !ok {
		p.fail("cursor", "the cursor is none that a page of this listing had")
	}
	if o.Limit == 0 {
		p.fail("limit", "limit is 1 to %d", mostRuns)
	}
	if p.err != nil {
		return p.err
	}
	runs, next, total, err := at.page(r.Context(), r.view, o)
	if err != nil {
		return err
	}
	page := list[runLine]{Items: make([]runLine, 0, len(runs)), Next: next, Total: &total}
	var open []string
	for _, run := range runs {
		page.Items = append(page.Items, newRunLine(run))
		if run.TerminalKind == 0 {
			open = append(open, run.RunID)
		}
	}
	jobs, err := d.standings(r.Context(), r.tenant.ID, open...)
	if err != nil {
		return err
	}
	for i, run := range page.Items {
		if s, ok := jobs[run.RunID]; ok {
			page.Items[i].Job = &s
		}
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// find returns the run of the tenant that a request names. What is no id of a run
// is not looked for.
func (d *Daemon) find(r *request) (eventlog.RunSummary, error) {
	id := r.PathValue("id")
	if !isULID(id) {
		return eventlog.RunSummary{}, notFound.plain()
	}
	return r.view.Run(r.Context(), id)
}

func (d *Daemon) getRun(w http.ResponseWriter, r *request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	return d.writeRun(w, http.StatusOK, r, s.RunID)
}

// writeRun answers with the document of a run as it is now.
func (d *Daemon) writeRun(w http.ResponseWriter, status int, r *request, id string) error {
	doc, err := describeRun(r.Context(), r.view, id)
	if err == nil {
		err = d.place(r.Context(), r.tenant.ID, doc)
	}
	if err == nil {
		writeJSON(w, status, doc)
	}
	return err
}

// place adds where a run that has not ended stands in the queue, and its place among those
// of the tenant if it waits. Those of other tenants are not counted, so that nobody learns
// how busy they are. It is for those who ask for the run, and not for every answer: to
// count what waits before it takes the longer the more that is.
func (d *Daemon) place(ctx context.Context, tenantID string, doc *runDocument) error {
	if doc.Status != eventlog.StatusOpen {
		return nil
	}
	s, err := d.config.Queue.Find(ctx, fullID(tenantID, doc.RunID))
	if errors.Is(err, queue.ErrNotFound) { // it has ended since
		return nil
	}
	if err != nil {
		return err
	}
	standing := s.Standing()
	if doc.Job = &standing; doc.Waiting && standing.State == queue.StateWaiting {
		doc.Position = s.Position + 1
	}
	return nil
}

// eventsPage is a page of the events of a run, each as event.ToJSON writes it.
type eventsPage struct {
	Items []rawJSON `json:"items"`
	Next  uint64    `json:"next,omitempty"` // the value of "after" for the next page
	Total uint64    `json:"total"`          // events that there are
}

// rawJSON is a document that is encoded already.
type rawJSON []byte

// MarshalJSON returns the document.
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

func (d *Daemon) listEvents(w http.ResponseWriter, r *request) error {
	p := r.query
	after := p.number("after", 0, math.MaxInt64)
	limit := int(p.number("limit", defaultEvents, mostEvents))
	if limit == 0 {
		p.fail("limit", "limit is 1 to %d", mostEvents)
	}
	if p.err != nil {
		return p.err
	}
	s, err := d.find(r)
	if err != nil {
		return err
	}
	page := eventsPage{Items: []rawJSON{}, Total: s.LastSeq}
	size := 0
	for ev, err := range r.view.Events(r.Context(), s.RunID, after) {
		if err != nil {
			return err
		}
		line, err := event.ToJSON(ev)
		if err != nil {
			return err
		}
		page.Items = append(page.Items, line)
		size += len(line)
		if len(page.Items) == limit || size > maxPage {
			page.Next = ev.Seq
			break
		}
	}
	if page.Next == s.LastSeq {
		page.Next = 0
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// maxPage is from how many bytes on a page of events ends before its limit.
const maxPage = 8 << 20

// exportRun writes all events that a run has, as "starling-host export" does.
func (d *Daemon) exportRun(w http.ResponseWriter, r *request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(s.RunID+".ndjson"))
	out := bufio.NewWriterSize(w, 64<<10)
	for ev, err := range r.view.Events(r.Context(), s.RunID, 0) {
		var line []byte
		if err == nil {
			line, err = event.ToJSON(ev)
		}
		if err != nil && w.(*answer).status == 0 {
			return err
		} else if err != nil {
			panic(http.ErrAbortHandler) // the client must not take this for the whole run
		}
		if ev.Seq%64 == 0 {
			w.(*answer).extend()
		}
		_, _ = out.Write(line)
		if out.WriteByte('\n') != nil {
			return nil // the client has gone
		}
	}
	return out.Flush()
}

// cancelRun has a run end. One that nobody works on ends as soon as somebody has
// time to write that down.
func (d *Daemon) cancelRun(w http.ResponseWriter, r *request) error {
	s, err := d.find(r)
	if err != nil {
		return err
	}
	if s.TerminalKind != 0 {
		return alreadyEnded.because("the run is %s", s.Status())
	}
	err = d.config.Queue.Cancel(r.Context(), fullID(r.tenant.ID, s.RunID))
	if errors.Is(err, queue.ErrNotFound) { // it has ended since
		return alreadyEnded.plain()
	}
	if err != nil {
		return err
	}
	return d.writeRun(w, http.StatusAccepted, r, s.RunID)
}
