package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/logview"
)

// Bounds of a stream to a browser.
const (
	heartbeat    = 15 * time.Second // between comments, by which a browser that went away is noticed
	writeTimeout = 10 * time.Second // for one write to a browser that does not read
)

// live sends the events of a run as they come, as server-sent events whose ids are
// the events' numbers, so that a browser that was cut off goes on where it was. The
// last message is "end".
func (s *Server) live(w http.ResponseWriter, r *http.Request, v logview.View) error {
	leave, ok := s.tails.enter(v.Namespace)
	if !ok {
		return &status{http.StatusServiceUnavailable, "As many runs are followed as may be."}
	}
	defer leave()
	run, err := v.Run(r.Context(), r.PathValue("run"))
	if err != nil {
		return err
	}
	events, err := v.Stream(r.Context(), run.RunID)
	if err != nil {
		return err
	}
	after := resumeAfter(r)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := &stream{w: w, control: http.NewResponseController(w)}
	out.write(": following\n\n")
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for out.err == nil {
		select {
		case ev, open := <-events:
			if !open {
				out.write("event: end\ndata: {}\n\n")
				return nil
			}
			if ev.Seq <= after {
				continue
			}
			row := s.row(run.RunID, run.StartedAt.UnixNano(), ev)
			if len(ev.Payload) > maxInline {
				row.Payload = ""
			}
			out.message(row.Seq, row)
		case <-beat.C:
			if _, err := v.Run(r.Context(), run.RunID); errors.Is(err, eventlog.ErrRunNotFound) {
				return nil // it was removed: no event will tell
			}
			out.write(": still here\n\n")
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

// stream writes messages and remembers the first error.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (o *stream) message(id uint64, v any) {
	doc, err := json.Marshal(v)
	if err != nil {
		o.err = err
		return
	}
	o.write(fmt.Sprintf("id: %d\ndata: %s\n\n", id, doc))
}

func (o *stream) write(text string) {
	if o.err != nil {
		return
	}
	_ = o.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder in a test has none
	if _, o.err = o.w.Write([]byte(text)); o.err == nil {
		o.err = o.control.Flush()
	}
}
