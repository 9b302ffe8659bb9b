package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/mcptool"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// countingServer is notesServer with tools that count their calls, each with other hints. Another version answers with
// another word, and does not have the tool gone.
func countingServer(t *testing.T, name, word string) (s Server, counts map[string]int) {
	t.Helper()
	counts = map[string]int{}
	server := notesServer(name)
	yes, no := true, false
	for tool, hints := range map[string]*mcp.ToolAnnotations{
		"read": {ReadOnlyHint: true}, "touch": {IdempotentHint: true, DestructiveHint: &no}, "delete": {IdempotentHint: true, DestructiveHint: &yes},
		"overwrite": {IdempotentHint: true}, "bare": nil, "gone": {ReadOnlyHint: true},
	} {
		if tool == "gone" && word != "old" {
			continue
		}
		server.AddTool(&mcp.Tool{Name: tool, Description: word + " <" + tool + ">", InputSchema: map[string]any{"type": "object"}, Annotations: hints}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			counts[tool]++
			return &mcp.CallToolResult{
				Meta: mcp.Meta{"tool": tool, "io.github.starling-host/run_id": fmt.Sprint("inner of ", word, counts[tool])}, StructuredContent: json.RawMessage(fmt.Sprintf(`{"n":%d,"big":9007199254740993,"word":%q}`, counts[tool], word)),
				Content: []mcp.Content{&mcp.ImageContent{Data: []byte("png"), MIMEType: "image/png"}}, IsError: strings.Contains(string(r.Params.Arguments), "fail"),
			}, nil
		})
	}
	at := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(at.Close)
	s, err := ParseServer(name + "=" + at.URL)
	if err != nil {
		t.Fatal(err)
	}
	return s, counts
}

// asked makes a call, and returns all that the client gets of it.
func asked(t *testing.T, s *session, name, arguments string) string {
	t.Helper()
	c := mcpsrv.Call{Name: name, Arguments: []byte(arguments), Through: &mcptool.Call{}}
	if strings.Contains(name, "/") {
		c.Method = name
	}
	result, err := s.Call(t.Context(), c)
	return fmt.Sprintf("%s %s | %s %q %q %v %v", result.Answer, result.Refused, result.Output, result.Error, result.RunID, result.Remote, err)
}

// TestRecordingsAnswer records the calls of two servers, and asks again without them.
func TestRecordingsAnswer(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	log, err := store.OpenFile(ctx, filepath.Join(dir, "runs.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	db := starling.Over(log, starling.Options{})
	defer db.Close()
	warn := func(text string) { t.Error(text) }
	tools := NewTools(db, starling.ToolOptions{}, func(string) {})
	defer tools.Close()
	for _, name := range []string{"a", "b"} {
		s, _ := countingServer(t, name, "old")
		if err := tools.AddServer(s, Pins{filepath.Join(dir, "pins.json")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewRecording(ctx, log, "runs.db", warn); err == nil || !strings.Contains(err.Error(), "runs.db: it has no recorded calls") {
		t.Errorf("an empty database: %v", err)
	}
	calls := [][2]string{
		{"a_read", `{"x":1}`}, {"a_read", `{"x":1}`}, {"a_read", `{"x":1.0}`}, {"a_read", `{"x":2}`}, {"b_read", `{"x":1}`}, {"a_delete", `{"fail":true}`}, {"a_bare", `{}`}, {"a_touch", `{}`},
		{"a_overwrite", `{}`}, {"a_gone", `{}`}, {"resources/read", `{"uri":"b://note/1"}`}, {"resources/read", `{"uri":"a://note/1"}`}, {"resources/read", `{"uri":"linked://b"}`}, {"resources/read", `{"uri":"b://day/none"}`},
		{"prompts/get", `{"name":"b_greet_all","arguments":{"who":"Bo"}}`}, {"prompts/get", `{"name":"a_greet_all","arguments":{"who":"Bo"}}`}, {"prompts/get", `{"name":"a_none"}`},
	}
	hold := func(s *session) (answers []string) {
		for _, c := range calls {
			answers = append(answers, asked(t, s, c[0], c[1]))
		}
		return answers
	}
	live := greeted(tools)
	if err := live.Settle(ctx, ""); err != nil {
		t.Fatal(err)
	}
	recorded := hold(live)
	recording, err := NewRecording(ctx, log, "runs.db", warn)
	if err != nil {
		t.Fatal(err)
	}
	double := NewTools(starling.Over(nil, starling.Options{}), starling.ToolOptions{}, warn)
	defer double.Close()
	double.Replay(recording)
	for range 2 { // each session begins anew
		s := greeted(double)
		for i, answer := range hold(s) {
			if answer != recorded[i] {
				t.Errorf("%s answers\n%s\nand was recorded with\n%s", calls[i], answer, recorded[i])
			}
		}
		if last := asked(t, s, "a_read", `{"x":1}`); last != recorded[1] {
			t.Errorf("after the last answer there is %s", last)
		}
		for _, c := range [][2]string{{"a_read", `{"x":3}`}, {"resources/read", `{"uri":"c://"}`}, {"prompts/get", `{"name":"b_greet_all"}`}} {
			if answer := asked(t, s, c[0], c[1]); !strings.Contains(answer, "runs.db has no recorded call of ") || !strings.Contains(answer, "with others, such as {") || !strings.Contains(answer, "hint: --live") {
				t.Errorf("%s, which was not recorded: %s", c, answer)
			}
		}
		list, err := s.List(ctx)
		if err != nil || len(list) != 7 || !slices.ContainsFunc(list, func(t mcpsrv.Tool) bool {
			return string(t.Exact) == `{"description":"old \u003cread\u003e","inputSchema":{"type":"object"},"name":"a_read"}`
		}) {
			t.Errorf("%d tools, %v: %s", len(list), err, list[0].Exact)
		}
		if !s.Offers("resources") || !s.Offers("prompts") || s.Offers("tasks") {
			t.Error("it does not offer what was read")
		}
	}

	// Beside a server, what is recorded has its answer, and the server gets the rest.
	both := NewTools(db, starling.ToolOptions{}, func(string) {})
	defer both.Close()
	both.Replay(recording)
	s, counts := countingServer(t, "a", "new")
	if err := both.AddServer(s, Pins{filepath.Join(dir, "others.json")}); err != nil {
		t.Fatal(err)
	}
	session := greeted(both)
	if answer := asked(t, session, "a_read", `{"x":1}`); answer != recorded[0] || counts["read"] != 0 {
		t.Errorf("a recorded call: %s", answer)
	}
	if answer := asked(t, session, "a_read", `{"x":3}`); !strings.Contains(answer, `"word":"new"`) || counts["read"] != 1 {
		t.Errorf("another call: %s", answer)
	}
	if answer := asked(t, session, "resources/read", `{"uri":"a://note/4"}`); !strings.Contains(answer, "a has ") {
		t.Errorf("another resource: %s", answer)
	}
}

// TestVerify sends recorded calls to other versions of a server: only those that do no harm, unless it is told to send all.
func TestVerify(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	log, err := store.OpenFile(ctx, filepath.Join(dir, "runs.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	db := starling.Over(log, starling.Options{})
	defer db.Close()
	tools := NewTools(db, starling.ToolOptions{}, func(string) {})
	defer tools.Close()
	old, _ := countingServer(t, "a", "old")
	if err := tools.AddServer(old, Pins{filepath.Join(dir, "pins.json")}); err != nil {
		t.Fatal(err)
	}
	live := greeted(tools)
	if err := live.Settle(ctx, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a_read", "a_read", "a_touch", "a_delete", "a_overwrite", "a_bare", "a_gone"} {
		asked(t, live, name, `{}`)
	}
	asked(t, live, "resources/read", `{"uri":"a://note/1"}`)
	recording, err := NewRecording(ctx, log, "runs.db", func(text string) { t.Error(text) })
	if err != nil {
		t.Fatal(err)
	}
	verify := func(s Server, all bool) *Verification {
		v, err := recording.Verify(ctx, s, all)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	same, counts := countingServer(t, "a", "old")
	if v := verify(same, false); !v.Same || v.Runs.Same != 5 || v.Runs.Skipped != 3 || len(v.Others) != 0 || !reflect.DeepEqual(counts, map[string]int{"read": 2, "touch": 1, "gone": 1}) {
		t.Errorf("the same version: %+v, called %v", v, counts)
	}
	same, counts = countingServer(t, "a", "old")
	if v := verify(same, true); !v.Same || v.Runs.Same != 8 || v.Runs.Skipped != 0 || len(counts) != 6 {
		t.Errorf("all calls: %+v, called %v", v, counts)
	}
	other, counts := countingServer(t, "a", "new")
	v := verify(other, false)
	if v.Same || v.Runs.Same != 1 || len(v.Runs.Differ) != 3 || v.Runs.Skipped != 4 || counts["delete"]+counts["overwrite"]+counts["bare"] != 0 {
		t.Fatalf("another version: %+v, called %v", v, counts)
	}
	if d := v.Runs.Differ[0].Divergence; d.Field != "structuredContent.word" || d.Expected != "old" || d.Got != "new" || d.Seq != 3 || d.Reason != "another answer to a_read {}" {
		t.Errorf("the first difference is %+v", d)
	}
	changed := map[string]string{}
	for _, c := range v.Changes {
		changed[c.Tool+" "+c.What] = c.Old + "|" + c.New
	}
	if len(changed) != 6 || changed["a_gone removed"] != "old <gone>|" || changed["a_read description"] != "old <read>|new <read>" {
		t.Errorf("the changes are %v", changed)
	}
	if runs, err := log.ListRuns(ctx); err != nil || len(runs) != 8 {
		t.Errorf("%d runs are recorded, %v", len(runs), err)
	}
	if _, err := recording.Verify(ctx, Server{Name: "z", MCP: agentfile.MCP{Command: []string{"false"}}}, false); err == nil || !strings.Contains(err.Error(), "it has no recorded call of a server's tool z_...") {
		t.Errorf("another server: %v", err)
	}
}
