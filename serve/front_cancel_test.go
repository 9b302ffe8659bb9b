package serve

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// spinning is a module whose tool never returns.
func spinning() []byte {
	const describeAt, about = 1 << 10, `{"tools":[{"name":"spin","description":"It turns.","input_schema":{"type":"object"}}]}`
	return (&wasmtest.Module{
		Memory: wasmtest.Pages(32), Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Data: []wasmtest.Data{{Offset: describeAt, Bytes: about}},
		Funcs: []wasmtest.Func{
			{Export: "starling_alloc", Type: wasmtest.Type("i:i"), Code: new(wasm.Asm).I32(64 << 10)},
			{Export: "starling_describe", Type: wasmtest.Type(":I"), Code: new(wasm.Asm).I64(describeAt<<32 | int64(len(about)))},
			{Export: "starling_execute", Type: wasmtest.Type("ii:I"), Code: wasmtest.Forever()},
		},
	}).Bytes()
}

// ask sends a request with a tenant's key, and returns the answer.
func (w *world) ask(ctx context.Context, who, method, path, session, body string) (code int, text string, header http.Header) {
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Error(err)
		return 0, "", nil
	}
	for k, v := range map[string]string{
		"Authorization": "Bearer " + w.keys[who], "Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": session,
	} {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	return resp.StatusCode, string(all), resp.Header
}

var aRun = regexp.MustCompile(`"run_id":"([0-9A-Z]{26})"`)

// until asks alice's API again and again until the answer has a text.
func (w *world) until(path, text string) string {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, got, _ := w.ask(w.t.Context(), "alice", "GET", path, "", ""); strings.Contains(got, text) {
			return got
		}
	}
	w.t.Fatalf("%s never has %s", path, text)
	return ""
}

// What an assistant sends that opens a session, calls the tool, and cancels that.
const (
	opening = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	call    = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"spin","arguments":{}}}`
	cancel  = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`
)

// calling has alice open a session with a host and call the tool in it with this one. It
// returns the session, the run, and what will be answered.
func (w *world) calling(opened *world) (session, run string, answered <-chan string) {
	w.t.Helper()
	_, _, header := opened.ask(w.t.Context(), "alice", "POST", "/mcp", "", opening)
	session = header.Get("Mcp-Session-Id")
	got := make(chan string, 1)
	go func() {
		code, text, _ := w.ask(w.t.Context(), "alice", "POST", "/mcp", session, call)
		got <- http.StatusText(code) + text
	}()
	return session, w.atWork(), got
}

// atWork waits until a call is being made, and returns its run.
func (w *world) atWork() string {
	w.t.Helper()
	return aRun.FindStringSubmatch(w.until("/api/v1/runs?status=open", `"tool_calls":1`))[1]
}

// TestACancelledCallEndsItsRun cancels calls over MCP in the two ways that there are,
// and bob tries to.
func TestACancelledCallEndsItsRun(t *testing.T) {
	w := newWorld(t)
	w.load("alice", "spin", spinning())
	session, run, answered := w.calling(w)
	w.ask(t.Context(), "bob", "POST", "/mcp", session, cancel)
	if _, text, _ := w.ask(t.Context(), "alice", "GET", "/api/v1/runs/"+run, "", ""); !strings.Contains(text, `"status":"open"`) {
		t.Errorf("bob has cancelled the run: %s", text)
	}
	if code, text, _ := w.ask(t.Context(), "alice", "POST", "/mcp", session, cancel); code != http.StatusAccepted {
		t.Errorf("the notification: %d, %s", code, text)
	}
	if got := <-answered; got != "Accepted" {
		t.Errorf("the cancelled call has the answer %q", got)
	}
	w.until("/api/v1/runs/"+run, `"status":"cancelled"`)

	// An assistant of the protocol without sessions hangs up.
	ctx, hangUp := context.WithCancel(t.Context())
	alice := w.assistant("alice")
	go func() { _, _ = alice.CallTool(ctx, &mcp.CallToolParams{Name: "spin"}) }()
	run = w.atWork()
	hangUp()
	w.until("/api/v1/runs/"+run, `"status":"cancelled"`)
	if _, said := asks(t, alice, "validate_run", `{"run_id":"`+run+`"}`); !strings.Contains(said, `"ok":true`) {
		t.Errorf("validate_run: %s", said)
	}
}

// TestACallIsCancelledThroughAnotherHost by its own client, in its own session.
func TestACallIsCancelledThroughAnotherHost(t *testing.T) {
	w := newWorld(t)
	other := w.another()
	w.load("alice", "spin", spinning())
	session, run, answered := w.calling(other)
	for _, attempt := range []struct{ who, session, body string }{
		{"bob", session, cancel}, {"alice", "another", cancel}, {"alice", "", cancel},
		{"alice", session, strings.Replace(cancel, "2}", `"2"}`, 1)}, {"alice", session, strings.Replace(cancel, "2}", "3}", 1)},
	} {
		if code, text, _ := other.ask(t.Context(), attempt.who, "POST", "/mcp", attempt.session, attempt.body); code != http.StatusAccepted {
			t.Errorf("%v: %d, %s", attempt, code, text)
		}
	}
	if _, text, _ := w.ask(t.Context(), "alice", "GET", "/api/v1/runs/"+run, "", ""); !strings.Contains(text, `"status":"open"`) {
		t.Errorf("another one's notification has cancelled the run: %s", text)
	}
	other.ask(t.Context(), "alice", "POST", "/mcp", session, cancel)
	w.until("/api/v1/runs/"+run, `"status":"cancelled"`)
	if got := <-answered; !strings.Contains(got, `"isError":true`) {
		t.Errorf("the call has the answer %q", got)
	}
	if code, text, _ := other.ask(t.Context(), "alice", "POST", "/mcp", session, cancel); code != http.StatusAccepted {
		t.Errorf("a notification that comes too late: %d, %s", code, text)
	}
}
