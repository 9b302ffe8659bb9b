package inspect

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/internal/web"
	"github.com/starling-host/starling/serve/queue"
)

// Bounds of a stream to a browser.
const (
	lookEvery    = 2 * time.Second
	heartbeat    = 15 * time.Second // between comments, which reveal a browser that went away
	writeTimeout = 10 * time.Second // for one write to a browser that does not read
)

// follow returns a handler that tells a browser, by server-sent events, when something about a page
// has changed. The browser then reads the page again. The look returns a mark that changes with the
// page, and [io.EOF] beside the last one.
func follow(look func(*http.Request, eventview.View) (mark string, err error)) page {
	return func(_ *Server, w http.ResponseWriter, r *http.Request, v eventview.View) error {
		mark, err := look(r, v)
		last := cmp.Or(r.URL.Query().Get("seen"), mark)
		if err == io.EOF && mark == last {
			w.WriteHeader(http.StatusNoContent) // the browser does not ask again
			return nil
		}
		if err != nil && err != io.EOF {
			return err
		}
		if v.Follow != nil {
			leave, err := v.Follow(r.Context())
			if err != nil {
				return err
			}
			defer leave()
		}
		out, beat := web.NewStream(w, writeTimeout), time.Now()
		out.Write(": following\n\n")
		ticker := time.Tick(lookEvery)
		for out.Err == nil {
			if mark != last {
				last, beat = mark, time.Now()
				out.Write("data: changed\n\n")
			} else if time.Since(beat) > heartbeat {
				beat = time.Now()
				out.Write(": still here\n\n")
			}
			if err != nil { // nothing changes any more, or the run was removed
				return nil
			}
			share.Of(r.Context()).Rest()
			select {
			case <-r.Context().Done():
				return nil
			case <-ticker:
			}
			if mark, err = look(r, v); err != nil && err != io.EOF {
				return nil
			}
		}
		return nil
	}
}

func markOf(seen any) string {
	text, _ := json.Marshal(seen)
	return canon.Sum(text).String()
}

// newestRuns is what the list of runs changes with.
func newestRuns(r *http.Request, v eventview.View) (string, error) {
	runs, err := v.Runs(r.Context(), eventlog.RunPageOptions{})
	return markOf(runs), err
}

// newestEvent is what the page of a run changes with.
func newestEvent(r *http.Request, v eventview.View) (string, error) {
	run, err := v.Run(r.Context(), r.PathValue("run"))
	if err == nil && run.TerminalKind != 0 {
		err = io.EOF
	}
	return strconv.FormatUint(run.LastSeq, 10), err
}

// queueNow is what the page of the queue changes with.
func queueNow(r *http.Request, v eventview.View) (string, error) {
	if v.Operator == nil {
		return "", eventlog.ErrRunNotFound
	}
	doc, err := v.Operator.Queue.Overview(r.Context(), queue.Filter{Limit: perPage})
	if err != nil {
		return "", err
	}
	hosts, err := v.Operator.Queue.HostList(r.Context())
	for i := range hosts.Items {
		hosts.Items[i].Seen = hosts.Items[i].Seen.Truncate(heartbeat) // a lease is renewed every few seconds
	}
	return markOf([]any{doc, hosts}), err
}
