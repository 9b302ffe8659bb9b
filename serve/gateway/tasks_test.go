package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// TestATaskNeedsNoConnection asks for the task of a call while the server is still starting, as a client does that was
// started again together with this program: the log has the answer.
func TestATaskNeedsNoConnection(t *testing.T) {
	t.Parallel()
	at := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		server := mcp.NewServer(&mcp.Implementation{Name: "sums", Version: "1"}, nil)
		server.AddTool(&mcp.Tool{Name: "add", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "three"}}}, nil
		})
		return server
	}, nil))
	defer at.Close()
	server, err := ParseServer("sums=" + at.URL)
	if err != nil {
		t.Fatal(err)
	}
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), starling.Options{}))
	defer db.Close()
	all := NewTools(db, starling.ToolOptions{}, func(string) {})
	defer all.Close()
	if err := all.AddServer(server, Pins{filepath.Join(t.TempDir(), "servers.json")}); err != nil {
		t.Fatal(err)
	}
	tools := greeted(all)
	if err := tools.Settle(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	ctx, err := tool.WithCaller(t.Context(), event.Caller{Client: "assistant"})
	if err != nil {
		t.Fatal(err)
	}
	id, err := tools.Begin(ctx, mcpsrv.Call{Name: "sums_add", Arguments: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tools.Outcome(ctx, id, time.Minute); err != nil {
		t.Fatal(err)
	}
	o, err := all.Open().(*session).Outcome(ctx, id, 0)
	if err != nil || o.Status != eventlog.StatusCompleted || !strings.Contains(string(o.End.Answer), `"three"`) {
		t.Errorf("before the server is connected: %+v, %v", o, err)
	}
	other := NewTools(db, starling.ToolOptions{}, func(string) {})
	defer other.Close()
	if _, err := other.Open().(*session).Outcome(ctx, id, 0); !errors.Is(err, mcpsrv.ErrNoTask) {
		t.Errorf("without the server: %v", err)
	}
}

// TestATaskOfAnotherProgramGoesOn asks one program for a task that another one on the same database is making.
func TestATaskOfAnotherProgramGoesOn(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	at := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
		server := mcp.NewServer(&mcp.Implementation{Name: "sums", Version: "1"}, nil)
		server.AddTool(&mcp.Tool{Name: "add", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-answer
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "three"}}}, nil
		})
		return server
	}, nil))
	t.Cleanup(at.Close)
	defer release()
	server, err := ParseServer("sums=" + at.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := tool.WithCaller(t.Context(), event.Caller{Client: "assistant"})
	if err != nil {
		t.Fatal(err)
	}
	path, pins := filepath.Join(t.TempDir(), "runs.db"), Pins{filepath.Join(t.TempDir(), "servers.json")}
	program := func() *session {
		db := starling.Must(starling.Open(t.Context(), path, starling.Options{}))
		t.Cleanup(func() { db.Close() })
		all := NewTools(db, starling.ToolOptions{}, func(string) {})
		t.Cleanup(func() { all.Close() })
		if err := all.AddServer(server, pins); err != nil {
			t.Fatal(err)
		}
		tools := greeted(all)
		if err := tools.Settle(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		return tools
	}
	maker, other := program(), program()
	id, err := maker.Begin(ctx, mcpsrv.Call{Name: "sums_add", Arguments: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if o, err := other.Outcome(ctx, id, 50*time.Millisecond); err != nil || o.Status != eventlog.StatusOpen {
			t.Errorf("while another program makes it: %+v, %v", o, err)
		}
	}
	waited := make(chan mcpsrv.Outcome, 1)
	go func() {
		o, _ := other.Outcome(ctx, id, time.Minute)
		waited <- o
	}()
	if err := other.Stop(ctx, id); err != nil { // which stops the waiting, and not the run
		t.Fatal(err)
	}
	release()
	if o := <-waited; o.Status != eventlog.StatusOpen && o.Status != eventlog.StatusCompleted {
		t.Errorf("after it was stopped where it is not made: %+v", o)
	}
	for _, of := range []*session{maker, other} {
		if o, err := of.Outcome(ctx, id, time.Minute); err != nil || o.Status != eventlog.StatusCompleted || !strings.Contains(string(o.End.Answer), `"three"`) {
			t.Errorf("afterwards: %+v, %v", o, err)
		}
	}
}

// TestChangesThatAreLeftBehind: a run that another program began is said to have changed files if it has, and not
// if it was given some.
func TestChangesThatAreLeftBehind(t *testing.T) {
	t.Parallel()
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), starling.Options{}))
	defer db.Close()
	all := NewTools(db, starling.ToolOptions{}, func(string) {})
	defer all.Close()
	program := starling.Must(db.Load(t.Context(), starling.RunJS, starling.ToolOptions{}))
	files := starling.Must(db.Files(t.Context(), starling.Folder{Path: t.TempDir(), Writable: true}))
	for code, want := range map[string]string{
		`return fs.readdir(".")`: "",
		`await fs.mkdir("a")`:    "the program that was to write its changes back has ended before",
	} {
		run, _ := program.In(files).Call(t.Context(), fmt.Sprintf(`{"code":%q}`, code))
		if run == nil {
			t.Fatalf("%s: no run", code)
		}
		if text, err := all.leftBehind(t.Context(), run); err != nil || (text == "") != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%s: %q, %v", code, text, err)
		}
	}
}
