//lint:file-ignore SA1019 clients of the versions before still ask for logs

package mcpsrv_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// local are tools of one user: wait waits, and many reports many effects and writes many
// lines.
type local struct {
	waiting
	change chan struct{} // after which there is a further tool
	more   chan struct{} // closed then
}

const effects = 5000

func (l local) List(context.Context) ([]mcpsrv.Tool, error) {
	list := []mcpsrv.Tool{toolNamed("wait"), toolNamed("many")}
	select {
	case <-l.more:
		list = append(list, toolNamed("another"))
	default:
	}
	return list, nil
}

func (l local) Watch(ctx context.Context, changed func(), _ func(string)) {
	select {
	case <-l.change:
		close(l.more)
		changed()
	case <-ctx.Done():
	}
}

func (l local) Settle(context.Context, string) error { return nil }

func (l local) Instructions() string { return "" }

func (l local) Offers(string) bool { return false }

func (l local) Items(context.Context, string) []json.RawMessage { return nil }

func (l local) Greet(mcpsrv.Client) {}

func (l local) Patience() time.Duration { return 0 }

func (l local) Greetings() map[string]mcptool.Greeting { return nil }

func (l local) Request(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return nil, nil
}

func (l local) Notify(context.Context, string, json.RawMessage) {}

func (l local) Close() {}

func (l local) Call(ctx context.Context, c mcpsrv.Call) (mcpsrv.Result, error) {
	if c.Name == "wait" {
		return l.waiting.Call(ctx, c)
	}
	if c.Progress != nil {
		for i := range effects {
			c.Progress(fmt.Sprintf("GET /%d\u202e", i+1))
		}
	}
	return mcpsrv.Result{RunID: "R", Output: json.RawMessage(`1`), Log: "first\x1b\n\n" + strings.Repeat("line\n", 1200)}, nil
}

// TestServeLocal has clients of both forms of the protocol, with and without sessions, told
// of progress, of logs and of a change of the tools. The end of the server cancels a call.
func TestServeLocal(t *testing.T) {
	for _, version := range []string{stateful, stateless} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := local{newWaiting(), make(chan struct{}), make(chan struct{})}
			url, stop := servedLocally(t, l)
			progress, logs, changed := make(chan *mcp.ProgressNotificationParams, effects), make(chan *mcp.LoggingMessageParams, effects), make(chan struct{}, 9)
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
				LoggingMessageHandler:       func(_ context.Context, r *mcp.LoggingMessageRequest) { logs <- r.Params },
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params },
			})
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			if got := session.InitializeResult(); got.ProtocolVersion != version || got.Capabilities.Logging == nil || !got.Capabilities.Tools.ListChanged {
				t.Errorf("the session begins with %+v", got)
			}

			many := &mcp.CallToolParams{Name: "many", Meta: mcp.Meta{"progressToken": "p"}}
			if version == stateless {
				many.Meta["io.modelcontextprotocol/logLevel"] = "info"
			} else {
				if err := session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := session.CallTool(t.Context(), many); err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				if p := next(t, progress); p.Progress != float64(i+1) || p.Total != 0 || p.Message != fmt.Sprintf(`GET /%d\u202e`, i+1) || p.ProgressToken != "p" {
					t.Fatalf("progress %d is %+v", i+1, p)
				}
			}
			if n := len(progress); n > effects/2 {
				t.Errorf("%d further notifications", n)
			}
			if first := next(t, logs); first.Level != "info" || first.Logger != "many" || first.Data != `first\x1b` {
				t.Errorf("the first line is %+v", first)
			}
			for range 999 {
				next(t, logs)
			}

			l.change <- struct{}{}
			next(t, changed)
			if list, err := session.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 3 {
				t.Errorf("%+v, %v", list, err)
			}

			go func() { _, _ = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "wait"}) }()
			next(t, l.began)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if err := next(t, l.ended); err != context.Canceled {
				t.Errorf("the call ended with %v", err)
			}
			_ = session.Close()
			if len(logs) > 0 {
				t.Errorf("%d further lines", len(logs))
			}
		})
	}
}

// TestServeLocalIsForThisMachine refuses what pages of other sites have browsers send.
func TestServeLocalIsForThisMachine(t *testing.T) {
	url, stop := servedLocally(t, local{waiting: newWaiting()})
	defer func() { _ = stop() }()
	for _, c := range []struct {
		host, origin string
		want         int
	}{
		{"", "", http.StatusOK}, {"", url[:strings.LastIndex(url, "/")], http.StatusOK},
		{"rebound.example", "", http.StatusMisdirectedRequest}, {"", "http://evil.example", http.StatusForbidden}, {"", "null", http.StatusForbidden},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(ping("1")))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if r.Host = c.host; c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != c.want {
			t.Errorf("host %q, origin %q: %s", c.host, c.origin, got.Status)
		}
	}
}

// servedLocally serves tools until stop is called.
func servedLocally(t *testing.T, tools mcpsrv.Tools) (url string, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	origin := "http://" + l.Addr().String()
	go func() {
		ended <- mcpsrv.ServeLocal(ctx, mcpsrv.View{Tools: tools}, mcpsrv.Options{}, []string{origin}, l)
	}()
	return origin + "/mcp", func() error { cancel(); return next(t, ended) }
}

// next returns the next value of a channel, or fails the test if none comes.
func next[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Error("nothing has come")
	}
	return v
}

// TestIdleSessionsMakeRoom opens more sessions than allowed: the least recently used idle
// session ends, and a listening client keeps its session.
func TestIdleSessionsMakeRoom(t *testing.T) {
	url, stop := servedLocally(t, local{newWaiting(), make(chan struct{}), make(chan struct{})})
	defer func() { _ = stop() }()
	listening, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: stateful})
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close()
	post := func(session, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return response
	}
	var ids []string
	for i := range 150 {
		r := post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+stateful+`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		if r.StatusCode != http.StatusOK {
			t.Fatalf("session %d: %s", i, r.Status)
		}
		ids = append(ids, r.Header.Get("Mcp-Session-Id"))
		if used := post(ids[0], ping("2")); used.StatusCode != http.StatusOK { // which keeps it
			t.Fatalf("after %d sessions the one in use has ended: %s", i, used.Status)
		}
	}
	open := 0
	for _, id := range ids {
		if post(id, ping("3")).StatusCode == http.StatusOK {
			open++
		}
	}
	if open != 99 {
		t.Errorf("%d sessions beside the one that listens are open", open)
	}
	if err := listening.Ping(t.Context(), nil); err != nil {
		t.Errorf("the session that listens: %v", err)
	}
}
