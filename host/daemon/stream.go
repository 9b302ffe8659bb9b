package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/logview"
	"github.com/starling-host/starling/host/queue"
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
// The id of an event is its number, so that a client that was cut off goes on
// after the last one that it has, by the header that browsers send. After the
// end of the run such a client is told by 204 to stay away. Of a run that waits it is
// told so, and when the run begins. What ends the stream before the run is told as
// well:
//
//	event: error
//	data: {"type":...}
//
// Neither of the two has an id, so neither changes where the client goes on.
func (d *Daemon) streamRun(w http.ResponseWriter, r *request) error {
	p := r.query
	after := p.number("after", 0, math.MaxInt64)
	if p.err != nil {
		return p.err
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.ParseUint(last, 10, 64)
		if err != nil {
			return badQuery.because("Last-Event-ID is no number of an event").in("Last-Event-ID")
		}
		after = max(after, n)
	}
	s, err := d.find(r)
	if err != nil {
		return err
	}
	if s.TerminalKind != 0 && after >= s.LastSeq {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if r.Method == http.MethodHead { // and not for as long as there are events, which it is not sent
		openStream(w)
		return nil
	}
	leave, err := d.streams.enter(r.tenant.ID, d.config.MaxStreams)
	if err != nil {
		return err
	}
	defer leave()
	return d.stream(w.(*answer), r, s, after)
}

// stream sends what there is of a run, until it ends or the client has gone. What else
// ends it, the client is told.
func (d *Daemon) stream(w *answer, r *request, run eventlog.RunSummary, after uint64) error {
	ctx, stop := d.whileServing(r.Context())
	defer stop()
	events, err := r.view.Stream(ctx, run.RunID)
	if err != nil {
		return err
	}
	openStream(w)
	s := &sender{w: w, flush: http.NewResponseController(w)}
	s.send("", "") // the client learns that it is connected
	err = d.sendAll(ctx, r, s, run, events, after)
	if s.err != nil || r.Context().Err() != nil {
		return nil // there is nobody to tell
	}
	if err != nil {
		s.sendJSON("error", problemOf(err))
	}
	if d.serving.Err() != nil {
		return nil // and of every stream the log need not say so
	}
	return err
}

// sendAll sends the events with numbers above after, and what is beside them. An error
// is why it ends before the run.
func (d *Daemon) sendAll(ctx context.Context, r *request, s *sender, run eventlog.RunSummary, events <-chan event.Event, after uint64) error {
	standing := d.standing(ctx, r, run)
	if standing.Waiting || standing.Job != nil && standing.Job.State == queue.StateSleeping {
		s.sendJSON("status", standing)
	}
	beat := time.NewTicker(d.config.Heartbeat)
	defer beat.Stop()
	for last := uint64(0); s.err == nil; {
		select {
		case ev, more := <-events:
			if !more {
				return d.brokenOff(r, run.RunID, last)
			}
			if last = ev.Seq; standing.Waiting && last > 1 && !ev.Kind.Terminal() {
				standing.Waiting, standing.Position, standing.Job = false, 0, nil
				s.sendJSON("status", standing)
			}
			if ev.Seq > after {
				if err := s.sendEvent(ev); err != nil {
					return err
				}
			}
			if ev.Kind.Terminal() {
				return s.sendDone(ctx, r.view, run.RunID)
			}
		case <-beat.C:
			if err := d.unwelcome(r); err != nil {
				return err
			}
			s.send(": still here\n\n", "")
		}
	}
	return nil
}

// standingDocument is where a run stands that waits, or that has begun.
type standingDocument struct {
	RunID    string `json:"run_id"`
	Status   string `json:"status"`
	Waiting  bool   `json:"waiting"`
	Position int    `json:"position,omitempty"` // as in runDocument

	Job *queue.Standing `json:"job,omitempty"`
}

// standing returns where a run stands. Whether it has a place in the line is not worth
// an error: its events come all the same.
func (d *Daemon) standing(ctx context.Context, r *request, run eventlog.RunSummary) standingDocument {
	doc := &runDocument{runLine: newRunLine(run)}
	if err := d.place(ctx, r.tenant.ID, doc); err != nil {
		d.logger.WarnContext(ctx, "a run's place is not known", "run_id", fullID(r.tenant.ID, run.RunID), "error", err.Error())
	}
	return standingDocument{RunID: doc.RunID, Status: doc.Status, Waiting: doc.Waiting, Position: doc.Position, Job: doc.Job}
}

// brokenOff returns why there are no more events of a run that has not ended.
func (d *Daemon) brokenOff(r *request, id string, last uint64) error {
	if d.serving.Err() != nil {
		return d.takesWork() // the next host goes on
	}
	if err := d.unwelcome(r); err != nil {
		return err
	}
	for _, err := range r.view.Events(r.Context(), id, last) {
		if err != nil {
			return err
		}
		break
	}
	return unavailable.plain() // what was wrong has passed
}

func openStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that collect before they pass on
	w.WriteHeader(http.StatusOK)
}

// unwelcome returns why the request would be refused if it came now: the run was
// removed, or the key is not taken any more. No event will tell of either.
func (d *Daemon) unwelcome(r *request) error {
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
		return removed.because("run %s is not there any more", r.PathValue("id"))
	}
	return nil // or the database does not answer, which passes
}

// sender writes to a client until that has gone.
type sender struct {
	w     *answer
	flush *http.ResponseController
	err   error
}

// send writes one message: its lines, and its data, which has no line feeds.
func (s *sender) send(lines, data string) {
	if s.err != nil {
		return
	}
	var b bytes.Buffer
	b.WriteString(lines)
	if data != "" {
		fmt.Fprintf(&b, "data: %s\n\n", data)
	}
	s.w.extend()
	if _, s.err = s.w.Write(b.Bytes()); s.err == nil {
		s.err = s.flush.Flush()
	}
}

// sendEvent returns an error of an event that is in the log, and not what a log takes.
func (s *sender) sendEvent(ev event.Event) error {
	line, err := event.ToJSON(ev)
	if err == nil {
		s.send("id: "+strconv.FormatUint(ev.Seq, 10)+"\nevent: event\n", string(line))
	}
	return err
}

func (s *sender) sendDone(ctx context.Context, view logview.View, id string) error {
	doc, err := describeRun(ctx, view, id)
	if err == nil {
		s.sendJSON("done", doc)
	}
	return err
}

// sendJSON sends a document under the name of its kind.
func (s *sender) sendJSON(name string, doc any) {
	line, err := json.Marshal(doc)
	if err != nil {
		s.err = err
		return
	}
	s.send("event: "+name+"\n", string(line))
}

// seats bound the requests of each tenant that stay for long.
type seats struct {
	mu    sync.Mutex     // guards taken
	taken map[string]int // by tenant
}

// enter takes one of most seats, which leave gives back. Less than zero seats are
// any number.
func (s *seats) enter(id string, most int) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[id] >= most && most >= 0 {
		return nil, rateLimited.because("%d requests of the tenant are at it already", most).retry(time.Second)
	}
	s.taken[id]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.taken[id]--; s.taken[id] == 0 {
			delete(s.taken, id)
		}
	}, nil
}
