package daemon

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/internal/web"
	"github.com/starling-host/starling/serve/queue"
)

// streamRun sends the events of a run as they become durable, as server-sent
// events:
//
//	event: status
//	data: {"run_id":..., "waiting":true, "position":2}
//
//	id: 3
//	event: event
//	data: {"envelope":...}
//
//	event: done
//	data: {"run_id":...}
//
// The id of an event is its number. A client that was cut off continues after the last one that it
// has, through the header that browsers send. After the end of the run it gets 204, and does not
// return. For a waiting run the stream sends a status, and another one when the run begins. An
// error that ends the stream before the run is sent as well:
//
//	event: error
//	data: {"type":...}
//
// A status or an error has no id, so it does not change where the client continues.
func (d *Daemon) streamRun(w http.ResponseWriter, r *request) error {
	p := r.query
	after := p.number("after", 0, math.MaxInt64)
	if p.err != nil {
		return p.err
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseUint(last, 10, 64)
		if err != nil {
			return badQuery.because("Last-Event-ID is not the number of an event").in("Last-Event-ID")
		}
		after = max(after, n)
	}
	run, err := d.find(r)
	if err != nil {
		return err
	}
	if run.TerminalKind != 0 && after >= run.LastSeq {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if r.Method == http.MethodHead { // and not for as long as there are events, which it is not sent
		web.NewStream(w, writeTimeout)
		return nil
	}
	leave, err := enter(r.Context(), d.streams, r.tenant.Tenant, d.config.Requests.Streams)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := d.whileServing(r.Context())
	defer stop()
	if err := r.view.Reserve(ctx, run.RunID); err != nil {
		return err
	}
	events, err := r.view.Stream(ctx, run.RunID)
	if err != nil {
		return err
	}
	s := web.NewStream(w, writeTimeout)
	s.Write("") // the client learns that it is connected
	err = d.sendAll(ctx, r, s, run, events, after)
	if s.Err != nil || r.Context().Err() != nil {
		return nil // the client has gone
	}
	if err != nil {
		s.Send("event: error\n", problemOf(err))
	}
	if d.serving.Err() != nil {
		return nil // which need not be logged for every stream
	}
	return err
}

// sendAll sends the events with numbers above after, and the states beside them. Its error is the
// reason why the stream ends before the run.
func (d *Daemon) sendAll(ctx context.Context, r *request, s *web.Stream, run eventlog.RunSummary, events <-chan event.Event, after uint64) error {
	doc := &eventview.RunDocument{Document: span.Summarize(run)}
	if err := d.place(ctx, r.tenant.ID, doc); err != nil { // the client gets the events all the same
		d.logger.WarnContext(ctx, "a run's place is not known", "run_id", fullID(r.tenant.ID, run.RunID), "error", err.Error())
	}
	status := statusDocument{RunID: doc.RunID, Status: doc.Status, Waiting: doc.Waiting, Position: doc.Position, Job: doc.Job}
	if status.Waiting || status.Job != nil && status.Job.State == queue.Sleeping {
		s.Send("event: status\n", status)
	}
	beat := time.NewTicker(d.config.Heartbeat)
	defer beat.Stop()
	for last := uint64(0); s.Err == nil; {
		share.Of(ctx).Rest()
		select {
		case ev, more := <-events:
			if !more {
				return d.brokenOff(r, run.RunID, last)
			}
			if last = ev.Seq; status.Waiting && last > 1 && !ev.Kind.Terminal() {
				status.Waiting, status.Position, status.Job = false, 0, nil
				s.Send("event: status\n", status)
			}
			if err := d.send(ctx, r, s, run, ev, after); err != nil || ev.Kind.Terminal() {
				return err
			}
		case <-beat.C:
			if err := d.checkAccess(r); err != nil {
				return err
			}
			s.Write(": still here\n\n")
		}
	}
	return nil
}

// send sends an event, and the run after its last one. Events recorded since the request began
// reserve memory of their own.
func (d *Daemon) send(ctx context.Context, r *request, s *web.Stream, run eventlog.RunSummary, ev event.Event, after uint64) error {
	if ev.Seq > run.LastSeq {
		give, err := share.Take(ctx, int64(share.Event*len(ev.Payload)))
		if err != nil {
			return err
		}
		defer give()
	}
	if err := share.Step(ctx); err != nil {
		return err
	}
	if ev.Seq > after {
		line, err := event.ToJSON(ev)
		if err != nil {
			return err
		}
		s.Write(fmt.Sprintf("id: %d\nevent: event\ndata: %s\n\n", ev.Seq, line))
	}
	if !ev.Kind.Terminal() {
		return nil
	}
	doc, err := describeRun(ctx, r.view, run.RunID)
	if err == nil {
		s.Send("event: done\n", doc)
	}
	return err
}

// statusDocument is the status of a run that waits, or that has begun.
type statusDocument struct {
	RunID    string `json:"run_id"`
	Status   string `json:"status"`
	Waiting  bool   `json:"waiting"`
	Position int    `json:"position,omitempty"` // as in eventview.RunDocument

	Job *queue.Progress `json:"job,omitempty"`
}

// brokenOff returns the reason why a run that has not ended has no more events.
func (d *Daemon) brokenOff(r *request, id string, last uint64) error {
	if d.serving.Err() != nil {
		return d.takesWork() // the next host continues
	}
	if err := d.checkAccess(r); err != nil {
		return err
	}
	for _, err := range r.view.Events(r.Context(), id, last) {
		if err != nil {
			return err
		}
		break
	}
	return unavailable.plain() // the failure has passed
}

// checkAccess returns the error with which the same request would be refused now: the run was
// removed, or the key is no longer valid. Events report neither.
func (d *Daemon) checkAccess(r *request) error {
	_, err := d.Authenticate(r.Request)
	if err == nil {
		_, err = d.find(r)
	}
	if err == nil {
		return nil
	}
	switch p := problemOf(err); p.Status {
	case http.StatusUnauthorized:
		return p
	case http.StatusNotFound:
		return removed.because("run %s was removed", r.PathValue("id"))
	}
	return nil // or the database does not answer, which passes
}
