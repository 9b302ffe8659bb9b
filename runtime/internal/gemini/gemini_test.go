package gemini_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/gemini"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

// exchange answers one request with an event stream and returns the request and
// the parsed response.
func exchange(t *testing.T, req *provider.Request, body string, config ...converse.Config) (path string, sent map[string]any, got []provider.StreamChunk, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.RequestURI()
		dec := json.NewDecoder(r.Body)
		dec.UseNumber()
		if err := dec.Decode(&sent); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, body)
	}))
	defer server.Close()
	c := converse.Config{}
	if len(config) > 0 {
		c = config[0]
	}
	c.APIKey, c.BaseURL = "a-key", server.URL
	p, err := gemini.New(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err = providertest.Chunks(t.Context(), p, req)
	return path, sent, got, err
}

func user(text string) provider.Message {
	return provider.Message{Role: provider.RoleUser, Content: text}
}

func question() *provider.Request {
	return &provider.Request{Model: "m", Messages: []provider.Message{user("Hello?")}}
}

func TestNew(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "from the environment")
	t.Setenv("GOOGLE_GENAI_USE_VERTEXAI", "1")
	for _, c := range []struct {
		name   string
		config converse.Config
		want   string
	}{
		{"no key", converse.Config{}, "gemini: no API key"},
		{"a base URL that is none", converse.Config{APIKey: "k", BaseURL: "localhost:80"}, "gemini: the base URL is not an http or https URL"},
		{"a base URL that is none and has a password", converse.Config{APIKey: "k", BaseURL: "ftp://u:geheim@h"}, "gemini: the base URL is not an http or https URL"},
		{"a base URL with a password", converse.Config{APIKey: "k", BaseURL: "https://u:geheim@h"}, "gemini: the base URL has a user or a password in it"},
		{"a base URL with a user", converse.Config{APIKey: "k", BaseURL: "https://geheim@h"}, "gemini: the base URL has a user or a password in it"},
	} {
		if _, err := gemini.New(c.config); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	p, err := gemini.New(converse.Config{APIKey: "k"})
	if want := (provider.Info{ID: "gemini", APIVersion: "v1beta"}); err != nil || p.Info() != want {
		t.Errorf("got %v, %v", p.Info(), err)
	}
}

func TestOptions(t *testing.T) {
	path, _, _, err := exchange(t, question(), finish, converse.Config{APIVersion: "v1"})
	if want := "/v1/models/m:streamGenerateContent?alt=sse"; path != want || err != nil {
		t.Errorf("got %s, %v", path, err)
	}
	p, err := gemini.New(converse.Config{APIKey: "k", ID: "proxy", APIVersion: "v9"})
	if want := (provider.Info{ID: "proxy", APIVersion: "v9"}); err != nil || p.Info() != want {
		t.Errorf("got %v, %v", p.Info(), err)
	}
}

// TestCallsWithoutAnID get an id that is the same for the same request, and
// another one for another request.
func TestCallsWithoutAnID(t *testing.T) {
	body := event(`{"functionCall":{"name":"f","args":{"n":1}}},{"functionCall":{"name":"f","args":{},"id":"a"}},{"functionCall":{"name":"g","id":"a"}}`) + finish
	starts := func(req *provider.Request) (ids []string) {
		_, _, got, err := exchange(t, req, body)
		if err != nil {
			t.Fatal(err)
		}
		for _, chunk := range got {
			if chunk.Kind == provider.ChunkToolUseStart {
				ids = append(ids, chunk.ToolUse.CallID)
			}
		}
		return ids
	}
	first, again := starts(question()), starts(question())
	if diff := cmp.Diff(first, again); diff != "" || len(first) != 3 {
		t.Fatalf("%v\n%s", first, diff)
	}
	if first[1] != "a" || first[0] == first[2] || first[2] == "a" || len(first[0]) > 64 || !strings.HasPrefix(first[0], "call_") {
		t.Errorf("got %v", first)
	}
	later := question()
	later.Messages = append(later.Messages, user("And?"))
	if other := starts(later); other[0] == first[0] || other[1] != "a" {
		t.Errorf("got %v and then %v", first, other)
	}
}

// answerOf puts chunks together as package step does: a block of reasoning ends
// with its signature, or with a chunk of another kind.
func answerOf(chunks []provider.StreamChunk) provider.Message {
	answer := provider.Message{Role: provider.RoleAssistant}
	open := false
	for _, chunk := range chunks {
		switch chunk.Kind {
		case provider.ChunkText:
			answer.Content += chunk.Text
		case provider.ChunkReasoning:
			if !open {
				answer.Reasoning = append(answer.Reasoning, provider.Reasoning{})
			}
			last := &answer.Reasoning[len(answer.Reasoning)-1]
			last.Content, last.Signature = last.Content+chunk.Text, append(last.Signature, chunk.Signature...)
		case provider.ChunkToolUseStart:
			answer.ToolUses = append(answer.ToolUses, provider.ToolUse{CallID: chunk.ToolUse.CallID, Name: chunk.ToolUse.Name})
		case provider.ChunkToolUseDelta:
			answer.ToolUses[len(answer.ToolUses)-1].Args = json.RawMessage(chunk.ToolUse.ArgsDelta)
		}
		open = chunk.Kind == provider.ChunkReasoning && len(chunk.Signature) == 0
	}
	return answer
}

// TestSignaturesReturnToTheirPlaces sends back a response's signatures, as
// package step would.
func TestSignaturesReturnToTheirPlaces(t *testing.T) {
	parts := `{"text":"Hm.","thought":true,"thoughtSignature":"AAAA"},{"text":"Well. ","thoughtSignature":"BBBB"},` +
		`{"functionCall":{"name":"f","args":{"n":9007199254740993},"id":"a"}},{"text":"More.","thought":true},{"functionCall":{"name":"f","args":{},"id":"b"},"thoughtSignature":"CCCC"}`
	_, _, got, err := exchange(t, question(), event(parts)+finish)
	if err != nil {
		t.Fatal(err)
	}
	req := question()
	req.Messages = append(req.Messages, answerOf(got),
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "a", Content: `{"id":18446744073709551615}`}},
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "b", Content: `no JSON`}})
	_, sent, _, err := exchange(t, req, finish)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(sent["contents"])
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"parts":[{"text":"Hello?"}],"role":"user"},` +
		`{"parts":[{"text":"Hm.","thought":true,"thoughtSignature":"AAAA"},{"text":"More.","thought":true},{"text":"Well. "},{"text":"","thoughtSignature":"BBBB"},` +
		`{"functionCall":{"args":{"n":9007199254740993},"id":"a","name":"f"}},{"functionCall":{"args":{},"id":"b","name":"f"},"thoughtSignature":"CCCC"}],"role":"model"},` +
		`{"parts":[{"functionResponse":{"id":"a","name":"f","response":{"output":{"id":18446744073709551615}}}},` +
		`{"functionResponse":{"id":"b","name":"f","response":{"output":"no JSON"}}}],"role":"user"}]`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
}

func TestToolChoice(t *testing.T) {
	tools := []provider.ToolDefinition{{Name: "f"}}
	for _, c := range []struct{ choice, want string }{
		{"", `null`},
		{"auto", `{"functionCallingConfig":{"mode":"AUTO"}}`},
		{"any", `{"functionCallingConfig":{"mode":"ANY"}}`},
		{"none", `{"functionCallingConfig":{"mode":"NONE"}}`},
		{"f", `{"functionCallingConfig":{"allowedFunctionNames":["f"],"mode":"ANY"}}`},
	} {
		req := question()
		req.Tools, req.ToolChoice = tools, c.choice
		_, sent, _, err := exchange(t, req, finish)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := json.Marshal(sent["toolConfig"]); string(got) != c.want {
			t.Errorf("%s: got %s", c.choice, got)
		}
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	params := func(v any) func(*provider.Request) {
		raw, err := canon.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return func(r *provider.Request) { r.Params = raw }
	}
	for _, c := range []struct {
		name   string
		change func(*provider.Request)
		want   string
	}{
		{"no model", func(r *provider.Request) { r.Model = "" }, "no model"},
		{"a model that is a query", func(r *provider.Request) { r.Model = "m?key=x" }, "invalid model"},
		{"a limit below zero", func(r *provider.Request) { r.MaxOutputTokens = -1 }, "-1"},
		{"a schema that is not JSON", func(r *provider.Request) { r.Tools = []provider.ToolDefinition{{Name: "f", Schema: []byte("{")}} }, `the schema of the tool "f" is not JSON`},
		{"a tool that there is not", func(r *provider.Request) { r.ToolChoice = "f" }, "f"},
		{"an unknown role", func(r *provider.Request) { r.Messages[0].Role = "system" }, `unknown role "system"`},
		{"a result without a use", func(r *provider.Request) {
			r.Messages = append(r.Messages, provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "c"}})
		}, `the result of "c" has no tool use before it`},
		{"an option of the wrong type", params(map[string]any{"temperature": "hot"}), "temperature"},
		{"an option that a field is for", params(map[string]any{"topK": 3}), `unknown option "topK"`},
		{"an unknown member of an option", params(map[string]any{"thinkingConfig": map[string]any{"budget": 1}}), `unknown field "budget"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := question()
			c.change(req)
			path, _, _, err := exchange(t, req, finish)
			if err == nil || !strings.HasPrefix(err.Error(), "gemini: ") || !strings.Contains(err.Error(), c.want) || provider.Transient(err) || path != "" {
				t.Errorf("got %v after a request to %q", err, path)
			}
		})
	}
}

func TestMoreTokensThanTheAPICounts(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("SKIPPED: no request can ask for so many on 32 bits")
	}
	req, most := question(), int64(math.MaxInt32)
	req.MaxOutputTokens = int(most + 1)
	if path, _, _, err := exchange(t, req, finish); err == nil || !strings.Contains(err.Error(), "MaxOutputTokens is 2147483648") || path != "" {
		t.Errorf("got %v after a request to %q", err, path)
	}
}

func TestResponsesThatAreNoStream(t *testing.T) {
	const invalidKey = `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}`
	for _, c := range []struct {
		name, media, body string
		status            int
		class             error
		want              string
	}{
		{"a key that is not valid", "application/json", invalidKey, 400, provider.ErrAuth, "INVALID_ARGUMENT: API key not valid."},
		{"a page", "text/html", "<html>", 200, nil, `its type is "text/html"`},
		{"a list", "application/json", "[]", 200, nil, `its type is "application/json"`},
		{"nothing", "text/event-stream", "", 200, provider.ErrNetwork, "before it was complete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.media)
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			defer server.Close()
			p, err := gemini.New(converse.Config{APIKey: "a-key", BaseURL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := providertest.Chunks(t.Context(), p, question()); c.class != nil && !errors.Is(err, c.class) || provider.Transient(err) != (c.class == provider.ErrNetwork) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestErrorBodyWithoutEndIsBounded is read up to the useful length.
func TestErrorBodyWithoutEndIsBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		for piece := []byte(strings.Repeat("no ", 1<<10)); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	p, err := gemini.New(converse.Config{APIKey: "a-key", BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := providertest.Chunks(t.Context(), p, question()); !errors.Is(err, provider.ErrServer) || len(err.Error()) > 4096 {
		t.Errorf("got %v", err)
	}
}

// TestAConnectionThatBreaksAfterTheReason may have taken counts away.
func TestAConnectionThatBreaksAfterTheReason(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Length", "1000")
		io.WriteString(w, finish)
	}))
	defer server.Close()
	p, err := gemini.New(converse.Config{APIKey: "a-key", BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := providertest.Chunks(t.Context(), p, question()); !errors.Is(err, provider.ErrNetwork) {
		t.Errorf("got %v", err)
	}
}

func TestAnEventThatIsTooLong(t *testing.T) {
	_, _, _, err := exchange(t, question(), "data: "+strings.Repeat(" ", 17<<20)+"{}\n\n")
	if err == nil || provider.Transient(err) || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("got %v", err)
	}
}

// TestGeminiContinuesNothing: the API offers to continue a response, which would be
// a second request.
func TestGeminiContinuesNothing(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"candidates":[{"content":{"parts":[{"text":"x"}]},"continuationToken":"AAAA"}]}`+"\n\n")
	}))
	defer server.Close()
	p, err := gemini.New(converse.Config{APIKey: "a-key", BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := providertest.Chunks(t.Context(), p, question()); !errors.Is(err, provider.ErrNetwork) || requests != 1 {
		t.Errorf("got %v after %d requests", err, requests)
	}
}
