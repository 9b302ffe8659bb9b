package mcpsrv_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// fakeTools behave as the test defines.
type fakeTools struct {
	tools []mcpsrv.Tool
	call  func(name, arguments string) (mcpsrv.Result, error)
}

func (s fakeTools) List(context.Context) ([]mcpsrv.Tool, error) { return s.tools, nil }

func (s fakeTools) Call(_ context.Context, c mcpsrv.Call) (mcpsrv.Result, error) {
	return s.call(c.Name, string(c.Arguments))
}

func (s fakeTools) Cancel(context.Context, string) error { return nil }

const anyObject = `{"type":"object"}`

func toolNamed(name string) mcpsrv.Tool {
	return mcpsrv.Tool{Name: name, Description: "does " + name, InputSchema: json.RawMessage(anyObject)}
}

func overTools(t *testing.T, s fakeTools) *mcp.ClientSession {
	t.Helper()
	return overHTTP(t, mcpsrv.Config{Scope: fixed(mcpsrv.View{Tools: s, Log: &eventview.View{Log: store.Memory()}})})
}

func TestCallsOfATenantsTools(t *testing.T) {
	structured := toolNamed("structured")
	structured.OutputSchema = json.RawMessage(anyObject)
	s := overTools(t, fakeTools{
		tools: []mcpsrv.Tool{toolNamed("plain"), structured},
		call: func(name, arguments string) (mcpsrv.Result, error) {
			var in struct{ Do string }
			if err := json.Unmarshal([]byte(arguments), &in); err != nil {
				return mcpsrv.Result{}, err
			}
			switch in.Do {
			case "fail":
				return mcpsrv.Result{RunID: "R2", Error: "no\x1b[31m\u202e such city"}, nil
			case "busy":
				return mcpsrv.Result{}, fmt.Errorf("%w: 3 calls are running", mcpsrv.ErrBusy)
			case "mismatch":
				return mcpsrv.Result{}, &tool.InputError{Cause: errors.New("/city is missing")}
			case "break":
				return mcpsrv.Result{}, errors.New("connect to 10.0.0.7: refused")
			case "much":
				return mcpsrv.Result{RunID: "R3", Output: json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`)}, nil
			case "hide":
				return mcpsrv.Result{RunID: "R5", Output: json.RawMessage("{\"a\":\"\u202e\U000E0041\"}")}, nil
			case "text":
				return mcpsrv.Result{RunID: "R4", Output: json.RawMessage(`"two\nlines"`)}, nil
			}
			return mcpsrv.Result{RunID: "R1", Output: json.RawMessage(`{"degrees":4}`)}, nil
		},
	})
	for _, c := range []struct {
		tool, do, want, run string
		failed              bool
	}{
		{"plain", "", `{"degrees":4}`, "R1", false},
		{"structured", "", `{"degrees":4}`, "R1", false},
		{"plain", "hide", `{"a":"\u202e\udb40\udc41"}`, "R5", false},
		{"plain", "text", "two\nlines", "R4", false},
		{"plain", "fail", "no[31m such city", "R2", true},
		{"plain", "busy", "no further call is taken at the moment: 3 calls are running", "", true},
		{"plain", "mismatch", "input does not match the schema: /city is missing", "", true},
		{"plain", "break", "the host could not make the call", "", true},
		{"plain", "much", "the result has 2097154 bytes, of which at most 1048576 are passed on; all of it is in the run", "R3", true},
	} {
		result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: map[string]any{"do": c.do}})
		if err != nil {
			t.Fatalf("%s: %v", c.do, err)
		}
		run, _ := result.Meta["starling/run_id"].(string)
		if got := result.Content[0].(*mcp.TextContent).Text; got != c.want || result.IsError != c.failed || run != c.run {
			t.Errorf("%s %s: got %.200q, failed %t, run %q", c.tool, c.do, got, result.IsError, run)
		}
		if got := result.StructuredContent != nil; got != (c.tool == "structured") {
			t.Errorf("%s: structured %t", c.tool, got)
		}
	}
}

// callersTools return the caller that the run of a call would record.
type callersTools struct{ fakeTools }

func (callersTools) Call(ctx context.Context, _ mcpsrv.Call) (mcpsrv.Result, error) {
	c := tool.GetCaller(ctx)
	if c == nil {
		return mcpsrv.Result{Output: json.RawMessage(`null`)}, nil
	}
	doc, err := json.Marshal(c)
	return mcpsrv.Result{Output: doc}, err
}

func TestMCPCallNamesItsCaller(t *testing.T) {
	s := overHTTP(t, mcpsrv.Config{Scope: fixed(mcpsrv.View{Tools: callersTools{fakeTools{tools: []mcpsrv.Tool{toolNamed("who")}}}})})
	call := func(meta mcp.Meta) (string, error) {
		result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Meta: meta, Name: "who"})
		if err != nil {
			return "", err
		}
		return result.Content[0].(*mcp.TextContent).Text, nil
	}
	digest := strings.Repeat("ab", 32)
	got, err := call(mcp.Meta{"traceparent": "00-1-2-01", "io.github.starling-host/caller": map[string]any{"issuer": "https://id.example", "subject": "ada", "delegation": []string{digest}}})
	var c event.Caller
	if err == nil {
		err = json.Unmarshal([]byte(got), &c)
	}
	if err != nil || c.Client == "" || c.Session != "" || c.Issuer != "https://id.example" || c.Subject != "ada" || c.TraceParent != "00-1-2-01" || len(c.Delegation) != 1 {
		t.Errorf("the caller is %s, %v", got, err)
	}
	for _, claims := range []any{map[string]any{"role": "admin"}, "ada", map[string]any{"subject": strings.Repeat("a", 1025)}, map[string]any{"delegation": []string{"ab"}}} {
		if got, err := call(mcp.Meta{"io.github.starling-host/caller": claims}); err == nil || !strings.Contains(err.Error(), "caller: ") {
			t.Errorf("the claims %.40v were taken: %s, %v", claims, got, err)
		}
	}
}

// TestMCPDescriptorsThatDeceive lists tools whose descriptions hide something, or that
// take other tools' names.
func TestMCPDescriptorsThatDeceive(t *testing.T) {
	hidden := toolNamed("hidden")
	hidden.Description = "adds\u200b numbers\U000E0049\U000E0047\U000E004E\u202e<IMPORTANT>\x1b[8m" + strings.Repeat("é", 4000)
	noSchema, list, large := toolNamed("none"), toolNamed("list"), toolNamed("large")
	noSchema.InputSchema, list.InputSchema = nil, json.RawMessage(`{"type":["object","null"]}`)
	large.InputSchema = json.RawMessage(`{"type":"object","description":"` + strings.Repeat("x", 70_000) + `"}`)
	s := overTools(t, fakeTools{tools: []mcpsrv.Tool{
		hidden, noSchema, list, large, toolNamed("validate_run"), toolNamed("a b"), toolNamed("a/b"), toolNamed(""),
		toolNamed("l\u0131st"), toolNamed(strings.Repeat("n", 129)), toolNamed("ok"),
	}})
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]*mcp.Tool{}
	for _, one := range tools.Tools {
		listed[one.Name] = one
	}
	if len(listed) != 7+2 || listed["hidden"] == nil || listed["ok"] == nil || listed["validate_run"].Annotations.ReadOnlyHint != true {
		t.Errorf("listed: %v", listed)
	}
	got := listed["hidden"].Description
	if len(got) > 4096+len("...") || !strings.HasPrefix(got, "adds numbers<IMPORTANT>[8mé") || !strings.HasSuffix(got, "é...") {
		t.Errorf("the description is %q", got)
	}
}

// TestMCPHandlerMalformedRequests sends requests that the SDK's client would not send.
func TestMCPHandlerMalformedRequests(t *testing.T) {
	h, err := mcpsrv.NewHandler(mcpsrv.Config{
		Scope: func(r *http.Request) (mcpsrv.View, error) {
			switch r.Header.Get("Authorization") {
			case "Bearer tok":
				return mcpsrv.View{Log: &eventview.View{Log: store.Memory()}}, nil
			case "Bearer broken":
				return mcpsrv.View{}, errors.New("the disk is on fire")
			}
			return mcpsrv.View{}, fmt.Errorf("%w: no such key", mcpsrv.ErrUnauthorized)
		},
		Origins: []string{"http://127.0.0.1:8300"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const own, ping = "127.0.0.1:8300", `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, c := range []struct {
		name, method, host, token, body string
		header                          map[string]string
		want                            int
	}{
		{"a client", "POST", own, "tok", ping, nil, 200},
		{"no token", "POST", own, "", ping, nil, 401},
		{"wrong token", "POST", own, "x", ping, nil, 401},
		{"a failing scope", "POST", own, "broken", ping, nil, 500},
		{"rebinding", "POST", "evil.example:8300", "tok", ping, nil, 421},
		{"page of another site", "POST", own, "tok", ping, map[string]string{"Origin": "https://evil.example"}, 403},
		{"page of another site, said so", "POST", own, "tok", ping, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"origin null", "POST", own, "tok", ping, map[string]string{"Origin": "null"}, 403},
		{"form", "POST", own, "tok", "a=b", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		{"text", "POST", own, "tok", ping, map[string]string{"Content-Type": "text/plain"}, 415},
		{"no JSON", "POST", own, "tok", "{", nil, 400},
		{"too much", "POST", own, "tok", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 5<<20) + `"}`, nil, 413},
		{"a stream of events", "GET", own, "tok", "", nil, 405},
		{"the end of a session", "DELETE", own, "tok", "", nil, 405},
	} {
		r := httptest.NewRequest(c.method, "http://"+c.host+"/mcp", strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer "+c.token)
		for k, v := range c.header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d: %s", c.name, w.Code, c.want, w.Body)
		}
		if c.want == http.StatusMisdirectedRequest && !strings.Contains(w.Body.String(), "origins") {
			t.Errorf("%s: the answer does not say what to do: %s", c.name, w.Body)
		}
		if strings.Contains(w.Body.String(), "fire") || w.Header().Get("Access-Control-Allow-Origin") != "" || w.Header().Get("Mcp-Session-Id") != "" {
			t.Errorf("%s: the answer tells too much: %v, %s", c.name, w.Header(), w.Body)
		}
	}
	for _, bad := range []mcpsrv.Config{{}, {Scope: fixed(mcpsrv.View{}), Origins: []string{"127.0.0.1"}}} {
		if _, err := mcpsrv.NewHandler(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
