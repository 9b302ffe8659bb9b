package mcpsrv_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// newLog returns a log with the runs "acme/1", which completed, "acme/2", which
// failed, and "other/1".
func newLog(t *testing.T) *store.MemoryLog {
	t.Helper()
	log := store.Memory()
	type in struct {
		City string `json:"city"`
	}
	weather := tool.Typed("weather", "The weather of a city.", func(_ context.Context, in in) (string, error) { return "mild in " + in.City, nil })
	for _, run := range []struct{ id, input string }{
		{"acme/1", `{"city":"Oslo"}`}, {"acme/2", `{}`}, {"other/1", `{"city":"Secret"}`},
	} {
		if _, err := (agent.Direct{Log: log, Tool: weather}).RunWithID(t.Context(), run.id, json.RawMessage(run.input)); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

// overHTTP returns a session of the SDK's client with a handler.
func overHTTP(t *testing.T, c mcpsrv.Config) *mcp.ClientSession {
	t.Helper()
	h, err := mcpsrv.NewHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return connect(t, &mcp.StreamableClientTransport{Endpoint: server.URL})
}

// overStdio returns a session with a server behind a pair of pipes.
func overStdio(t *testing.T, v mcpsrv.View) *mcp.ClientSession {
	t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- mcpsrv.ServeStdio(t.Context(), v, mcpsrv.Options{}, toServer, fromServer) }()
	session := connect(t, &mcp.IOTransport{Reader: toClient, Writer: fromClient})
	t.Cleanup(func() {
		_ = session.Close()
		_ = fromClient.Close()
		if err := <-done; err != nil && err != context.Canceled {
			t.Errorf("the server ended with %v", err)
		}
	})
	return session
}

func connect(t *testing.T, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func fixed(v mcpsrv.View) func(*http.Request) (mcpsrv.View, error) {
	return func(*http.Request) (mcpsrv.View, error) { return v, nil }
}

// call calls a tool and decodes its result. The error is the tool's message.
func call(t *testing.T, s *mcp.ClientSession, name, arguments string, out any) (failure string) {
	t.Helper()
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	text := result.Content[0].(*mcp.TextContent).Text
	if result.IsError {
		return text
	}
	if out != nil {
		if err := json.Unmarshal([]byte(text), out); err != nil {
			t.Fatalf("%s: %v in %s", name, err, text)
		}
	}
	return ""
}

func TestBothTransports(t *testing.T) {
	view := mcpsrv.View{Log: &eventview.View{Log: newLog(t), Namespace: "acme"}}
	for name, connect := range map[string]func(*testing.T) *mcp.ClientSession{
		"http":  func(t *testing.T) *mcp.ClientSession { return overHTTP(t, mcpsrv.Config{Scope: fixed(view)}) },
		"stdio": func(t *testing.T) *mcp.ClientSession { return overStdio(t, view) },
	} {
		t.Run(name, func(t *testing.T) {
			session := connect(t)
			tools, err := session.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 7 {
				t.Fatalf("got %v, %v", tools, err)
			}
			if tools.CacheScope != "private" {
				t.Errorf("the list may be kept by whoever has the scope %q", tools.CacheScope)
			}
			var list struct {
				Total int
				Runs  []struct {
					RunID  string `json:"run_id"`
					Status string
				}
			}
			if failure := call(t, session, "list_runs", `{}`, &list); failure != "" {
				t.Fatal(failure)
			}
			if list.Total != 2 || len(list.Runs) != 2 || list.Runs[0].RunID != "2" || list.Runs[0].Status != "failed" {
				t.Errorf("got %+v", list)
			}
		})
	}
}
