package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Bearer returns the key that a request has in its one header Authorization.
func Bearer(r *http.Request) (key string, ok bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, key, found := strings.Cut(values[0], " ")
	return strings.TrimSpace(key), found && strings.EqualFold(scheme, "Bearer")
}

// shutdownTimeout is how long requests in progress have to end.
const shutdownTimeout = 3 * time.Second

// readTimeout is how long a client may take to read each piece of an answer.
const readTimeout = 30 * time.Second

// patient gives the client of an answer time for each piece of it. A timeout of the server would
// begin with the request, and cut answers that take long to make.
type patient struct{ http.ResponseWriter }

func (p patient) extend() {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(readTimeout))
}

func (p patient) Write(piece []byte) (int, error) {
	p.extend()
	return p.ResponseWriter.Write(piece)
}

// Unwrap is for [http.ResponseController].
func (p patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Flush implements [http.Flusher].
func (p patient) Flush() {
	p.extend()
	_ = http.NewResponseController(p.ResponseWriter).Flush()
}

// Serve serves until ctx ends, and then lets requests in progress end. A client that does not read its
// answer is cut off.
func Serve(ctx context.Context, server *http.Server, l net.Listener) error {
	inner := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(patient{w}, r)
		patient{w}.extend() // for what the server still sends
	})
	// Shutdown waits five seconds for a client that has connected and sent nothing, such as the
	// spare connection of a browser.
	var silent sync.Map
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if state != http.StateNew {
			silent.Delete(c)
		} else if silent.Store(c, nil); ctx.Err() != nil {
			_ = c.Close()
		}
	}
	server.RegisterOnShutdown(func() {
		silent.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
	})
	done := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		done <- errors.Join(server.Shutdown(late), server.Close())
	})
	err := server.Serve(l)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-done
}

// Stream writes server-sent events to a client until that has gone.
type Stream struct {
	Err error // the first one; nothing is written after it

	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// NewStream begins a response. The client has so much time to take each message.
func NewStream(w http.ResponseWriter, timeout time.Duration) *Stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that collect before they pass on
	w.WriteHeader(http.StatusOK)
	return &Stream{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// Write sends whole messages, and the beginning of the response.
func (s *Stream) Write(text string) {
	if s.Err != nil {
		return
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // a recorder in a test has none
	if _, s.Err = s.w.Write([]byte(text)); s.Err == nil {
		s.Err = s.control.Flush()
	}
}

// Send sends a document after its header lines.
func (s *Stream) Send(lines string, doc any) {
	data, err := json.Marshal(doc)
	if err != nil {
		s.Err = err
		return
	}
	s.Write(fmt.Sprintf("%sdata: %s\n\n", lines, data))
}
