package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/internal/anthropic"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

func TestNew(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "from the environment")
	for name, tc := range map[string]struct {
		config converse.Config
		want   string
	}{
		"no key":              {converse.Config{}, "no API key"},
		"no host":             {converse.Config{APIKey: "k", BaseURL: "https://"}, "base URL"},
		"another scheme":      {converse.Config{APIKey: "k", BaseURL: "ftp://host"}, "base URL"},
		"no URL":              {converse.Config{APIKey: "k", BaseURL: "a host\x7f"}, "base URL"},
		"a password":          {converse.Config{APIKey: "k", BaseURL: "https://u:geheim@host"}, "anthropic: the base URL has a user or a password in it"},
		"everything is right": {converse.Config{APIKey: "k"}, ""},
	} {
		p, err := anthropic.New(tc.config)
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "geheim") || p != nil) {
			t.Errorf("%s: got %v, %v, want %q", name, p, err, tc.want)
		}
	}
}

func TestInfo(t *testing.T) {
	for name, tc := range map[string]struct {
		config converse.Config
		want   provider.Info
	}{
		"defaults": {converse.Config{}, provider.Info{ID: "anthropic", APIVersion: "2023-06-01"}},
		"named":    {converse.Config{ID: "proxy", APIVersion: "2024-01-01"}, provider.Info{ID: "proxy", APIVersion: "2024-01-01"}},
	} {
		tc.config.APIKey = "k"
		p, err := anthropic.New(tc.config)
		if err != nil {
			t.Fatal(err)
		}
		if p.Info() != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, p.Info(), tc.want)
		}
	}
}

func sent(t *testing.T, req *provider.Request, path, version string) (*http.Request, map[string]any, error) {
	t.Helper()
	return providertest.Sent(t, req, "text/event-stream", begun+event("message_stop", `{"type":"message_stop"}`), func(url string) (provider.Provider, error) {
		return anthropic.New(converse.Config{APIKey: "k", BaseURL: url + path, APIVersion: version})
	})
}

func TestAddressAndHeaders(t *testing.T) {
	r, _, err := sent(t, providertest.Question(nil), "/gateway", "2024-01-01")
	if err != nil {
		t.Fatal(err)
	}
	if r.URL.Path != "/gateway/v1/messages" || r.Header.Get("X-Api-Key") != "k" || r.Header.Get("Anthropic-Version") != "2024-01-01" {
		t.Errorf("got %s, %v", r.URL.Path, r.Header)
	}
}

func TestMaxTokens(t *testing.T) {
	thinking := map[string]any{"thinking": map[string]any{"type": "enabled", "budget_tokens": 10000}}
	for name, tc := range map[string]struct {
		set    int
		params map[string]any
		want   float64
	}{
		"not set":                           {0, nil, 4096},
		"set":                               {7, nil, 7},
		"not set, with a budget":            {0, thinking, 14096},
		"set, with a budget":                {12000, thinking, 12000},
		"not set, thinking without budget":  {0, map[string]any{"thinking": map[string]any{"type": "adaptive"}}, 4096},
		"not set, thinking is switched off": {0, map[string]any{"thinking": map[string]any{"type": "disabled"}}, 4096},
	} {
		req := providertest.Question(tc.params)
		req.MaxOutputTokens = tc.set
		if _, body, err := sent(t, req, "", ""); err != nil || body["max_tokens"] != tc.want {
			t.Errorf("%s: got %v, %v, want %v", name, body["max_tokens"], err, tc.want)
		}
	}
}

func TestToolChoice(t *testing.T) {
	yes := map[string]any{"disable_parallel_tool_use": true}
	for name, tc := range map[string]struct {
		choice string
		params map[string]any
		want   any
	}{
		"not said":             {"", nil, nil},
		"auto":                 {"auto", nil, map[string]any{"type": "auto"}},
		"any":                  {"any", nil, map[string]any{"type": "any"}},
		"none":                 {"none", nil, map[string]any{"type": "none"}},
		"a tool":               {"ping", nil, map[string]any{"type": "tool", "name": "ping"}},
		"one at a time":        {"", yes, map[string]any{"type": "auto", "disable_parallel_tool_use": true}},
		"any, one at a time":   {"any", yes, map[string]any{"type": "any", "disable_parallel_tool_use": true}},
		"none, one at a time":  {"none", yes, map[string]any{"type": "none"}},
		"parallel on purpose":  {"", map[string]any{"disable_parallel_tool_use": false}, map[string]any{"type": "auto", "disable_parallel_tool_use": false}},
		"a tool without it":    {"ping", map[string]any{}, map[string]any{"type": "tool", "name": "ping"}},
		"a tool, one use only": {"ping", yes, map[string]any{"type": "tool", "name": "ping", "disable_parallel_tool_use": true}},
	} {
		req := providertest.Question(tc.params)
		req.ToolChoice, req.Tools = tc.choice, []provider.ToolDefinition{{Name: "ping"}}
		_, body, err := sent(t, req, "", "")
		if diff := cmp.Diff(tc.want, body["tool_choice"]); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestHistory covers what the golden request lacks: redacted thinking, arguments
// that are not an object, empty messages.
func TestHistory(t *testing.T) {
	req := providertest.Question(nil)
	req.Messages = append(req.Messages,
		provider.Message{Role: provider.RoleAssistant, Content: "Hm.", Reasoning: []provider.Reasoning{{Content: "b3BhcXVl", Redacted: true}},
			ToolUses: []provider.ToolUse{{CallID: "1", Name: "ping", Args: json.RawMessage(`"{broken"`)}, {CallID: "2", Name: "ping"}}},
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "1", Content: "no", IsError: true}},
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "2"}},
		provider.Message{Role: provider.RoleAssistant},
		provider.Message{Role: provider.RoleUser, Content: "Go on."},
	)
	_, body, err := sent(t, req, "", "")
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	want := []any{
		object{"role": "user", "content": []any{object{"type": "text", "text": "Hello?"}}},
		object{"role": "assistant", "content": []any{
			object{"type": "redacted_thinking", "data": "b3BhcXVl"},
			object{"type": "text", "text": "Hm."},
			object{"type": "tool_use", "id": "1", "name": "ping", "input": object{"arguments": "{broken"}},
			object{"type": "tool_use", "id": "2", "name": "ping", "input": object{}},
		}},
		object{"role": "user", "content": []any{
			object{"type": "tool_result", "tool_use_id": "1", "is_error": true, "content": []any{object{"type": "text", "text": "no"}}},
			object{"type": "tool_result", "tool_use_id": "2"},
			object{"type": "text", "text": "Go on."},
		}},
	}
	if diff := cmp.Diff(want, body["messages"]); diff != "" {
		t.Errorf("wrong messages (-want +got):\n%s", diff)
	}
}

func TestRefusedRequests(t *testing.T) {
	with := func(change func(*provider.Request)) *provider.Request {
		req := providertest.Question(nil)
		change(req)
		return req
	}
	message := func(m provider.Message) *provider.Request {
		return with(func(r *provider.Request) { r.Messages = append(r.Messages, m) })
	}
	for name, tc := range map[string]struct {
		req  *provider.Request
		want string
	}{
		"a misspelt option":          {providertest.Question(map[string]any{"temprature": 1}), `unknown option "temprature", known are betas, cache_messages,`},
		"a mark that is none":        {providertest.Question(map[string]any{"cache_system": "1d"}), `option "cache_system": want true, "5m" or "1h", got "1d"`},
		"betas that are none":        {providertest.Question(map[string]any{"betas": "one"}), `option "betas"`},
		"a budget that is none":      {providertest.Question(map[string]any{"thinking": map[string]any{"budget_tokens": "much"}}), `option "thinking"`},
		"a choice that is not there": {with(func(r *provider.Request) { r.ToolChoice = "pong" }), `no tool of the request is called "pong"`},
		"an unknown role":            {message(provider.Message{Role: "system", Content: "a"}), `message 2: unknown role "system"`},
		"a result without a result":  {message(provider.Message{Role: provider.RoleTool}), "needs a ToolResult"},
		"a result that has text":     {message(provider.Message{Role: provider.RoleTool, Content: "a", ToolResult: &provider.ToolResult{}}), "belongs into its ToolResult"},
		"a result of a user":         {message(provider.Message{Role: provider.RoleUser, ToolResult: &provider.ToolResult{}}), "cannot have a ToolResult"},
		"a user who uses tools":      {message(provider.Message{Role: provider.RoleUser, ToolUses: []provider.ToolUse{{}}}), "cannot have tool uses"},
		"a schema that is not JSON": {with(func(r *provider.Request) {
			r.Tools = []provider.ToolDefinition{{Name: "a", Schema: json.RawMessage("{")}}
		}), "JSON"},
		"arguments that are not JSON": {message(provider.Message{Role: provider.RoleAssistant, ToolUses: []provider.ToolUse{{CallID: "1", Name: "a", Args: json.RawMessage("{")}}}), "JSON"},
	} {
		r, _, err := sent(t, tc.req, "", "")
		if err == nil || !strings.Contains(err.Error(), tc.want) || provider.Transient(err) || r != nil {
			t.Errorf("%s: got %v, sent %v, want %q", name, err, r != nil, tc.want)
		}
	}
}

// TestRefusal checks the words and the class of an answer that is an error.
func TestRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		body   string
		want   string
		class  error
	}{
		"overloaded": {529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, "anthropic: overloaded_error: Overloaded (request req_1)", provider.ErrServer},
		"too large":  {413, `{"type":"error","error":{"type":"request_too_large","message":"Too\nlarge"}}`, "anthropic: request_too_large: Too large (request req_1)", nil},
		"a gateway":  {502, "<html>bad</html>", "anthropic: status 502: <html>bad</html> (request req_1)", provider.ErrServer},
		"nothing":    {400, "", "anthropic: status 400: no message (request req_1)", nil},
	} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Request-Id", "req_1")
			w.Header().Set("X-Should-Retry", "true")
			w.WriteHeader(tc.status)
			io.WriteString(w, tc.body)
		}))
		_, err := connect(t, server.URL, server.Client()).Stream(t.Context(), providertest.Question(nil))
		server.Close()
		if !strings.HasSuffix(err.Error(), tc.want) || provider.Transient(err) != (tc.class != nil) || tc.class != nil && !errors.Is(err, tc.class) {
			t.Errorf("%s: got %v, want %q of the class %v", name, err, tc.want, tc.class)
		}
		if requests != 1 {
			t.Errorf("%s: %d requests", name, requests)
		}
	}
}

// TestAnthropicAnswerOfAProxy makes a proxy answer in place of the API, with every sign of success.
func TestAnthropicAnswerOfAProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, "<html>sign in</html>")
	}))
	defer server.Close()
	_, err := connect(t, server.URL, server.Client()).Stream(t.Context(), providertest.Question(nil))
	if err == nil || !strings.Contains(err.Error(), `anthropic: malformed response: its type is "text/html"`) || provider.Transient(err) {
		t.Errorf("got %v", err)
	}
}

// reply is a response body of the API, after which the connection breaks.
type reply string

// RoundTrip implements [http.RoundTripper].
func (r reply) RoundTrip(req *http.Request) (*http.Response, error) {
	body := io.MultiReader(strings.NewReader(string(r)), iotest.ErrReader(syscall.ECONNRESET))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body), Request: req}, nil
}

// TestAnthropicBlocksThatBeginWhole simulates a gateway that sends whole blocks without
// deltas. The connection breaks after the last one, which is not a failure.
func TestAnthropicBlocksThatBeginWhole(t *testing.T) {
	body := begun
	for i, block := range []string{
		`{"type":"thinking","thinking":"Hm.","signature":"c2ln"}`, `{"type":"text","text":"Hi."}`,
		`{"type":"tool_use","id":"1","name":"ping","input":{"n":1}}`,
	} {
		body += event("content_block_start", fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, i, block))
		body += event("content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, i))
	}
	body += event("message_stop", `{"type":"message_stop"}`)
	stream, err := connect(t, "http://provider.invalid", &http.Client{Transport: reply(body)}).Stream(t.Context(), providertest.Question(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var got []provider.StreamChunk
	for err == nil {
		var c provider.StreamChunk
		if c, err = stream.Next(t.Context()); err == nil {
			got = append(got, c)
		}
	}
	sum := canon.Sum([]byte(body))
	want := []provider.StreamChunk{
		providertest.Usage(1, 1, 0, 0), providertest.Reasoning("Hm."), {Kind: provider.ChunkReasoning, Signature: []byte("c2ln")}, providertest.Text("Hi."),
		providertest.Use(provider.ChunkToolUseStart, "1", "ping", ""), providertest.Use(provider.ChunkToolUseDelta, "1", "", `{"n":1}`), providertest.Use(provider.ChunkToolUseEnd, "1", "", ""),
		{Kind: provider.ChunkEnd, RawResponseHash: sum[:]},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != io.EOF {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
