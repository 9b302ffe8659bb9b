package mcpsrv_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// waiting is a tool that waits until its call is cancelled or released.
type waiting struct {
	began   chan string // the arguments of a call
	release chan struct{}
	ended   chan error // with which the call's context has ended, nil if it has not
}

func newWaiting() waiting {
	return waiting{began: make(chan string, 9), release: make(chan struct{}), ended: make(chan error, 9)}
}

func (w waiting) List(context.Context) ([]mcpsrv.Tool, error) {
	return []mcpsrv.Tool{toolNamed("wait")}, nil
}

func (w waiting) Cancel(context.Context, string) error { return nil }

func (w waiting) Call(ctx context.Context, c mcpsrv.Call) (mcpsrv.Result, error) {
	w.began <- string(c.Arguments)
	select {
	case <-ctx.Done():
	case <-w.release:
	}
	w.ended <- ctx.Err()
	return mcpsrv.Result{RunID: "R", Output: json.RawMessage(`"released"`)}, ctx.Err()
}

func waitingServer(t *testing.T, w waiting) http.Handler {
	t.Helper()
	h, err := mcpsrv.NewHandler(mcpsrv.Config{Scope: func(r *http.Request) (mcpsrv.View, error) {
		return mcpsrv.View{Tools: w, Owner: r.Header.Get("Authorization")}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// send has a handler serve one message, and returns the answer.
func send(ctx context.Context, h http.Handler, owner, session, version, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/mcp", strings.NewReader(body))
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": owner,
		"Mcp-Session-Id": session, "Mcp-Protocol-Version": version,
	} {
		if v != "" {
			r.Header.Set(k, v)
		}
	}
	if version >= stateless {
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "wait")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const (
	stateful  = "2025-11-25"
	stateless = "2026-07-28" // the first version in which hanging up cancels
	cancel7   = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"enough"}}`
	wait7     = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait","arguments":{}}}`
)

// later sends a message, and passes the answer on when there is one.
func later(ctx context.Context, h http.Handler, owner, session, version, body string) <-chan *httptest.ResponseRecorder {
	answer := make(chan *httptest.ResponseRecorder, 1)
	go func() { answer <- send(ctx, h, owner, session, version, body) }()
	return answer
}

// TestACancelledRequestStops and has no response. Notifications of others change
// nothing, whatever ids they name.
func TestACancelledRequestStops(t *testing.T) {
	w := newWaiting()
	h := waitingServer(t, w)
	opened := send(t.Context(), h, "alice", "", "", `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"`+stateful+
		`","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	session := opened.Header().Get("Mcp-Session-Id")
	if opened.Code != http.StatusOK || len(session) < 26 {
		t.Fatalf("the session begins with %d, %q", opened.Code, session)
	}
	answer := later(t.Context(), h, "alice", session, stateful, wait7)
	<-w.began
	for _, other := range []struct{ owner, session, body string }{
		{"bob", session, cancel7}, {"alice", "another", cancel7}, {"alice", session, strings.Replace(cancel7, "7", "8", 1)},
		{"alice", session, strings.Replace(cancel7, "7", `"7"`, 1)}, {"alice", session, strings.Replace(cancel7, "7", "null", 1)},
	} {
		if got := send(t.Context(), h, other.owner, other.session, stateful, other.body); got.Code >= 500 {
			t.Errorf("%v: %d %s", other, got.Code, got.Body)
		}
		if len(w.ended) > 0 {
			t.Fatalf("%v has cancelled the call", other)
		}
	}
	if got := send(t.Context(), h, "alice", session, stateful, cancel7); got.Code != http.StatusAccepted {
		t.Errorf("the notification: %d %s", got.Code, got.Body)
	}
	if err := <-w.ended; err != context.Canceled {
		t.Errorf("the call ended with %v", err)
	}
	if got := <-answer; got.Code != http.StatusAccepted || got.Body.Len() != 0 {
		t.Errorf("the cancelled request: %d %s", got.Code, got.Body)
	}
}

// TestMCPCancelWithEqualRequestIDs sends two requests with one id and no session,
// and cancels one.
func TestMCPCancelWithEqualRequestIDs(t *testing.T) {
	w := newWaiting()
	h := waitingServer(t, w)
	first := later(t.Context(), h, "alice", "", stateful, wait7)
	<-w.began
	second := later(t.Context(), h, "alice", "", stateful, wait7)
	<-w.began
	send(t.Context(), h, "alice", "", stateful, cancel7)
	w.release <- struct{}{}
	if err := <-w.ended; err != nil {
		t.Errorf("one of two was cancelled: %v", err)
	}
	var rest <-chan *httptest.ResponseRecorder
	select {
	case <-first:
		rest = second
	case <-second:
		rest = first
	}
	send(t.Context(), h, "alice", "", stateful, cancel7)
	if err := <-w.ended; err != context.Canceled {
		t.Errorf("the other one ended with %v", err)
	}
	<-rest
}

// TestMCPCancelByHangingUp cancels the request in the newest protocol, and nothing in older ones.
func TestMCPCancelByHangingUp(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + stateless + `","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}},`
	for version, body := range map[string]string{
		stateful: wait7, stateless: strings.Replace(wait7, `"params":{`, `"params":{`+meta, 1),
	} {
		w := newWaiting()
		ctx, hangUp := context.WithCancel(t.Context())
		answer := later(ctx, waitingServer(t, w), "alice", "", version, body)
		select {
		case <-w.began:
		case got := <-answer:
			t.Fatalf("%s: %d %s", version, got.Code, got.Body)
		}
		hangUp()
		want := context.Canceled
		if version == stateful {
			want = nil
			close(w.release)
		}
		if err := <-w.ended; err != want {
			t.Errorf("%s: the call ended with %v, want %v", version, err, want)
		}
		<-answer
	}
}
