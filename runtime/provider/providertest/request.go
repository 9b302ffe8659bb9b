package providertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
)

var update = flag.Bool("update", false, "write the golden files of the requests")

// RichRequest returns a request that uses everything that the capabilities allow:
// a history with reasoning, two tool uses in one message, a result and a failure,
// tools, a choice among them, stop sequences and limits.
func RichRequest(caps provider.Capabilities) *provider.Request {
	topK := 40
	req := &provider.Request{
		Model:           "test-model",
		SystemPrompt:    "You are \"brief\".\nAnswer in <one> line.",
		Messages:        []provider.Message{{Role: provider.RoleUser, Content: "How warm are Köln and 東京?", Annotations: map[string]string{"from": "test"}}},
		TopK:            &topK,
		MaxOutputTokens: 512,
	}
	if caps.StopSequences {
		req.StopSequences = []string{"END", "\n\n"}
	}
	if caps.ToolChoice {
		req.ToolChoice = "weather"
	}
	if caps.Tools {
		req.Messages = append(req.Messages, toolTurn(caps)...)
		req.Tools = []provider.ToolDefinition{
			{Name: "weather", Description: "Current weather of a city.", Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["C","F"]}},"required":["city"]}`)},
			{Name: "ping", Description: "Takes nothing.", Schema: json.RawMessage(`{"type":"object","properties":{}}`)},
			{Name: "wc", Description: "Takes any document.", Schema: json.RawMessage(`true`)},
		}
	}
	return req
}

func toolTurn(caps provider.Capabilities) []provider.Message {
	asked := provider.Message{Role: provider.RoleAssistant, Content: "Let me look.", ToolUses: []provider.ToolUse{
		{CallID: "call_1", Name: "weather", Args: json.RawMessage(`{"city":"Köln","unit":"C"}`)},
		{CallID: "call_2", Name: "weather", Args: json.RawMessage(`{"city":"東京"}`)},
	}}
	if caps.Reasoning {
		asked.Reasoning = []provider.Reasoning{{Content: "Two cities, two calls.", Signature: []byte("c2lnbmF0dXJl")}}
	}
	return []provider.Message{
		asked,
		{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "call_1", Content: `{"celsius":18.5}`}},
		{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "call_2", Content: "tool: no such city", IsError: true}},
		{Role: provider.RoleUser, Content: "And now?"},
	}
}

// request compares the adapter's request with the golden file, and checks that
// it refuses unknown options.
func (s *Suite) request(t *testing.T) {
	t.Run("golden", s.golden)
	t.Run("unknown option", func(t *testing.T) { s.refusedParams(t, map[string]any{"no_such_option": 1}, "no_such_option") })
	t.Run("options that are no map", func(t *testing.T) { s.refusedParams(t, []int{1}, "") })
}

// golden sends the rich request several times. All must be the same, for any order of a Go map.
func (s *Suite) golden(t *testing.T) {
	var sent []byte
	for range 8 {
		got := s.capture(t)
		if sent != nil && !bytes.Equal(got, sent) {
			t.Fatalf("two requests differ:\n%s", cmp.Diff(string(sent), string(got)))
		}
		sent = got
	}
	if *update {
		if err := os.WriteFile(s.Golden, sent, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(s.Golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(sent)); diff != "" {
		t.Errorf("wrong request (-want +got), -update writes the file:\n%s", diff)
	}
}

// capture returns the request for [RichRequest]: the method and the target, the
// headers of the suite, and the body, indented but otherwise as it is sent.
func (s *Suite) capture(t *testing.T) []byte {
	t.Helper()
	spy := &spy{headers: s.Headers}
	p := s.New(t, memoryURL, &http.Client{Transport: spy})
	req := RichRequest(capabilities(p))
	if s.Params != nil {
		req.Params = encode(t, s.Params)
	}
	if _, err := Converse(t.Context(), p, req); spy.err != nil || spy.requests != 1 {
		t.Fatalf("%d requests, %v: %v", spy.requests, spy.err, err)
	}
	return spy.seen.Bytes()
}

func encode(t *testing.T, params any) canon.Raw {
	t.Helper()
	raw, err := canon.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// refusedParams checks that options are refused before anything is sent.
func (s *Suite) refusedParams(t *testing.T, params any, want string) {
	t.Helper()
	spy := &spy{}
	req := question("test-model")
	req.Params = encode(t, params)
	_, err := Converse(t.Context(), s.New(t, memoryURL, &http.Client{Transport: spy}), req)
	if !expectClass(t, err, nil) {
		return
	}
	if !strings.Contains(err.Error(), want) || spy.requests != 0 {
		t.Errorf("got the error %q and %d requests, want %q in it and none", err, spy.requests, want)
	}
}

// spy is a server that records the last request and refuses it.
type spy struct {
	headers  []string
	seen     bytes.Buffer
	requests int
	err      error
}

// RoundTrip implements [http.RoundTripper].
func (s *spy) RoundTrip(req *http.Request) (*http.Response, error) {
	s.requests++
	s.err = s.note(req)
	return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

func (s *spy) note(req *http.Request) error {
	s.seen.Reset()
	fmt.Fprintf(&s.seen, "%s %s\n", req.Method, req.URL.RequestURI())
	for _, name := range s.headers {
		fmt.Fprintf(&s.seen, "%s: %s\n", name, strings.Join(req.Header.Values(name), ", "))
	}
	s.seen.WriteByte('\n')
	if req.Body == nil {
		return errors.New("the request has no body")
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	defer s.seen.WriteByte('\n')
	return json.Indent(&s.seen, body, "", "  ")
}
