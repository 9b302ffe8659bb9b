package gateway

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// TestToolsFollowTheirFiles changes a module while a client is served: it is told, and
// has the other tools then. A module that does not load changes nothing.
func TestToolsFollowTheirFiles(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	db := starling.Must(starling.Open(ctx, filepath.Join(t.TempDir(), "tools.db"), starling.Options{}))
	defer db.Close()
	file := filepath.Join(t.TempDir(), "tool.wasm")
	write := func(name string) {
		t.Helper()
		b := (&wasmtest.Module{}).Bytes()
		if name != "" {
			m, err := guest.Find(ctx, "../../cmd/starling-host/testdata/tools/"+name)
			if err != nil {
				t.Skipf("SKIPPED: %v", err)
			}
			b = m.Wasm
		}
		if err := os.WriteFile(file+".new", b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("draw")
	warned := make(chan string, 10)
	tools := NewTools(db, starling.ToolOptions{}, func(text string) { warned <- text })
	if err := tools.Add(ctx, file); err != nil {
		t.Fatal(err)
	}
	if err := tools.Add(ctx, file); err == nil || !strings.Contains(err.Error(), `its tool "draw" is also a tool of `) {
		t.Errorf("added twice: %v", err)
	}

	changed := make(chan struct{}, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	})
	toServer, out := io.Pipe()
	in, fromServer := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Service{Tools: tools}.Serve(ctx, toServer, fromServer)
		fromServer.Close()
	}()
	session, err := client.Connect(ctx, &mcp.IOTransport{Reader: in, Writer: out}, nil)
	if err != nil {
		t.Fatal(err)
	}
	names := func() (all string) {
		for tool, err := range session.Tools(ctx, nil) {
			if err != nil {
				t.Fatal(err)
			}
			all += tool.Name + " "
		}
		return all
	}
	call := func() *mcp.CallToolResult {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "draw", Arguments: map[string]any{}})
		if err != nil || result.IsError {
			t.Fatalf("%+v, %v", result, err)
		}
		return result
	}
	if got := names(); got != "draw " {
		t.Fatalf("tools %q", got)
	}
	replayCommand, _ := call().Meta["starling/replay"].(string)
	if words := strings.Fields(replayCommand); len(words) != 4 || words[1] != "replay" {
		t.Errorf("the command to replay is %q", replayCommand)
	} else if v, err := db.Replay(ctx, words[3]); err != nil || !v.Identical() {
		t.Errorf("replay: %v, %v", v, err)
	}

	write("")
	select {
	case text := <-warned:
		if !strings.Contains(text, "has changed and stays as it was") {
			t.Errorf("warned: %s", text)
		}
	case <-ctx.Done():
		t.Fatal("a module that does not load is not told of")
	}
	call()

	write("probe")
	for got := ""; !strings.Contains(got, "strict "); got = names() {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("tools %q after the module has changed", got)
		}
	}
	if got := names(); strings.Contains(got, "draw") {
		t.Errorf("tools %q", got)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	page, err := db.Runs(ctx, eventlog.RunPageOptions{})
	if err != nil || page.TotalMatching != 2 {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestAnAssistantReadsWhyTheLogStoppedAndGoesOnWithIt takes the file of the database away from
// a server of tools, and gives it back: a call then says what is wrong, and a later one of the
// same process is made.
func TestAnAssistantReadsWhyTheLogStoppedAndGoesOnWithIt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: Windows lets nobody take a file that is open")
	}
	path := filepath.Join(t.TempDir(), "starling.db")
	db := starling.Must(starling.Open(t.Context(), path, starling.Options{}))
	defer db.Close()
	tools := NewTools(db, starling.ToolOptions{}, func(string) {})
	file := filepath.Join(t.TempDir(), "say.wasm")
	if err := os.WriteFile(file, wasmtest.Saying("say", "it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tools.Add(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	call := func() error {
		_, err := greeted(tools).Call(t.Context(), mcpsrv.Call{Name: "say", Arguments: []byte("{}")})
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".aside"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := call(); !errors.Is(err, mcpsrv.ErrHost) || !strings.Contains(err.Error(), path) {
			t.Errorf("without the file: %v", err)
		}
	}
	if err := os.Rename(path+".aside", path); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); call() != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the file is back: %v", call())
		}
	}
	runs := starling.Must(db.RunIDs(t.Context()))
	err := db.ValidateAll(t.Context(), runs, func(v starling.Validation) error { return v.Err })
	if err != nil || len(runs) < 2 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}
