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

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/logview"
)

// streamRun sends the events of a run as they become durable, as server-sent
// events:
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
// end of the run such a client is told by 204 to stay away.
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
	return d.stream(w.(*answer), r, s.RunID, after)
}

func (d *Daemon) stream(w *answer, r *request, id string, after uint64) error {
	ctx, stop := d.whileServing(r.Context())
	defer stop()
	events, err := r.view.Stream(ctx, id)
	if err != nil {
		return err
	}
	openStream(w)
	s := &sender{w: w, flush: http.NewResponseController(w)}
	beat := time.NewTicker(d.config.Heartbeat)
	defer beat.Stop()
	s.send("", "") // the client learns that it is connected
	for s.err == nil {
		select {
		case ev, more := <-events:
			if !more || ev.Seq > after && !s.sendEvent(ev) {
				return nil
			}
			if ev.Kind.Terminal() {
				return s.sendDone(ctx, r.view, id)
			}
		case <-beat.C:
			if d.unwelcome(r) {
				return nil
			}
			s.send(": still here\n\n", "")
		}
	}
	return nil
}

func openStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that collect before they pass on
	w.WriteHeader(http.StatusOK)
}

// unwelcome reports whether the request would be refused if it came now: the run was
// removed, or the key is not taken any more. No event will tell of either.
func (d *Daemon) unwelcome(r *request) bool {
	_, err := d.Authenticate(r.Request)
	if err == nil {
		_, err = d.find(r)
	}
	if err == nil {
		return false
	}
	status := problemOf(err).Status
	return status == http.StatusUnauthorized || status == http.StatusNotFound
}

// sendEvent reports whether there is a client to go on with.
func (s *sender) sendEvent(ev event.Event) bool {
	line, err := event.ToJSON(ev)
	if err != nil {
		return false // it is in the log, and not what a log takes
	}
	s.send("id: "+strconv.FormatUint(ev.Seq, 10)+"\nevent: event\n", string(line))
	return s.err == nil
}

// sender writes to a client until that has gone.
type sender struct {
	w     *answer
	flush *http.ResponseController
	err   error
}

// send writes one message: its lines, and its data, which has no line feeds.
func (s *sender) send(lines, data string) {
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

func (s *sender) sendDone(ctx context.Context, view logview.View, id string) error {
	doc, err := describeRun(ctx, view, id)
	if err != nil {
		return err
	}
	line, err := json.Marshal(doc)
	if err == nil {
		s.send("event: done\n", string(line))
	}
	return err
}

// seats bound the requests of each tenant that stay for long.
type seats struct {
	mu    sync.Mutex
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
