package inspect

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/internal/logview"
	"github.com/starling-host/starling/serve/internal/web"
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
	out := web.NewStream(w, writeTimeout)
	out.Write(": following\n\n")
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for out.Err == nil {
		select {
		case ev, open := <-events:
			if !open {
				out.Write("event: end\ndata: {}\n\n")
				return nil
			}
			if ev.Seq <= after {
				continue
			}
			row := s.row(run.RunID, run.StartedAt.UnixNano(), ev)
			if len(ev.Payload) > maxInline {
				row.Payload = ""
			}
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
