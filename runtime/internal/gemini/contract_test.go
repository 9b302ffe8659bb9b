package gemini_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/gemini"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

func newProvider(t testing.TB, url string, client *http.Client) provider.Provider {
	p, err := gemini.New(converse.Config{APIKey: providertest.Key, BaseURL: url, HTTP: client})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func signature(s string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkReasoning, Signature: []byte(s)}
}

// call returns the chunks of a whole call.
func call(id, name, args string) []provider.StreamChunk {
	return []provider.StreamChunk{
		{Kind: provider.ChunkToolUseStart, ToolUse: &provider.ToolUseChunk{CallID: id, Name: name}},
		{Kind: provider.ChunkToolUseDelta, ToolUse: &provider.ToolUseChunk{CallID: id, ArgsDelta: args}},
		{Kind: provider.ChunkToolUseEnd, ToolUse: &provider.ToolUseChunk{CallID: id}},
	}
}

func usage(u provider.Usage) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkUsage, Usage: &u}
}

func end(reason, request string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkEnd, StopReason: reason, RequestID: request}
}

func chunks(parts ...any) (all []provider.StreamChunk) {
	for _, part := range parts {
		switch part := part.(type) {
		case provider.StreamChunk:
			all = append(all, part)
		case []provider.StreamChunk:
			all = append(all, part...)
		}
	}
	return all
}

// transcripts are in the form that the API documents.
var transcripts = []providertest.Transcript{
	{
		Name: "text", File: "testdata/text.sse", Terminal: `"finishReason"`,
		Want: chunks(
			providertest.Text("Grüße"), usage(provider.Usage{InputTokens: 7}), providertest.Text(" aus"), providertest.Text(" 東京"), usage(provider.Usage{InputTokens: 7, OutputTokens: 4}),
			providertest.Text("!"), usage(provider.Usage{InputTokens: 7, OutputTokens: 5}), end("STOP", "mZqLaJ7"),
		),
	},
	{
		Name: "thinking", File: "testdata/thinking.sse", Terminal: `"finishReason"`,
		Want: chunks(
			providertest.Reasoning("**Counting**\n\nOne, "), usage(provider.Usage{InputTokens: 2054, OutputTokens: 40, CacheReadTokens: 2048}),
			providertest.Reasoning("two."), usage(provider.Usage{InputTokens: 2054, OutputTokens: 56, CacheReadTokens: 2048}),
			providertest.Text("Two."), usage(provider.Usage{InputTokens: 2054, OutputTokens: 58, CacheReadTokens: 2048}),
			signature("text/\x12\x34\x0a\x32\x01\x0c"), end("STOP", "tHx2"),
		),
	},
	{
		Name: "tools", File: "testdata/tools.sse", Terminal: `"finishReason"`,
		Want: chunks(
			providertest.Reasoning("Both at once."), usage(provider.Usage{InputTokens: 82, OutputTokens: 38}),
			signature("call/0/\x12\xfe\x01\x0a\xfb\x01"), call("yd5v2m1a", "weather", `{"city": "Köln","station": 9007199254740993}`),
			call("k3w9q0zz", "weather", `{"city": "東京"}`), usage(provider.Usage{InputTokens: 82, OutputTokens: 68}),
			call("p1", "ping", "{}"), usage(provider.Usage{InputTokens: 82, OutputTokens: 74}), end("STOP", "c4Ll"),
		),
	},
	{
		Name: "a blocked prompt", File: "testdata/blocked.sse", Terminal: `"promptFeedback"`,
		Want: chunks(usage(provider.Usage{InputTokens: 12559}), end("PROHIBITED_CONTENT", "bL0k")),
	},
	{
		Name: "a filtered text", File: "testdata/safety.sse", Terminal: `"finishReason"`,
		Want: chunks(providertest.Text("First you"), usage(provider.Usage{InputTokens: 9}), usage(provider.Usage{InputTokens: 9, OutputTokens: 3}), end("SAFETY", "")),
	},
}

// event is an event of a stream, with parts of the model's.
func event(parts string) string {
	return `data: {"candidates":[{"content":{"role":"model","parts":[` + parts + `]},"index":0}]}` + "\n\n"
}

const finish = `data: {"candidates":[{"finishReason":"STOP"}]}` + "\n\n"

func TestContract(t *testing.T) {
	providertest.Run(t, providertest.Suite{
		New:         newProvider,
		ContentType: "text/event-stream",
		Transcripts: transcripts,
		Failure: providertest.Failure{
			Body: `{"error": {"code": 429,"message": "Consumer 'api_key:` + providertest.Key + `' has been suspended.","status": "PERMISSION_DENIED"}}`,
			Want: "gemini: PERMISSION_DENIED: Consumer 'api_key:[key]' has been suspended.",
		},
		Broken: []providertest.Broken{
			{Name: "not JSON", Body: "data: {\"candidates\":[\n\n", Want: "unexpected end of JSON input"},
			{Name: "very long and not JSON", Body: "data: " + strings.Repeat("x", 1<<20) + "\n\n", Want: "malformed response"},
			{Name: "an array", Body: "data: [1]\n\n", Want: "array"},
			{Name: "null", Body: "data: null\n\n", Class: provider.ErrNetwork, Want: "before it was complete"},
			{Name: "candidates that are a number", Body: "data: {\"candidates\":7}\n\n", Want: "malformed response"},
			{Name: "a candidate that is null", Body: "data: {\"candidates\":[null]}\n\n", Want: "malformed response"},
			{Name: "text that is a number", Body: event(`{"text":7}`), Want: "malformed response"},
			{Name: "a part that is null", Body: event(`null`), Want: "malformed response"},
			{Name: "arguments that are a text", Body: event(`{"functionCall":{"name":"f","args":"x"}}`), Want: "malformed response"},
			{Name: "a call without a name", Body: event(`{"functionCall":{"args":{}}}`), Want: `the name ""`},
			{Name: "a call in pieces", Body: event(`{"functionCall":{"name":"f","willContinue":true}}`), Want: "comes in pieces"},
			{Name: "a second candidate", Body: `data: {"candidates":[{"index":1,"content":{"parts":[{"text":"x"}]}}]}` + "\n\n", Want: "another candidate"},
			{Name: "two candidates", Body: `data: {"candidates":[{},{}]}` + "\n\n", Want: "another candidate"},
			{Name: "text after the end", Body: finish + event(`{"text":"x"}`), Want: "after the finish reason"},
			{Name: "an image", Body: event(`{"inlineData":{"mimeType":"image/png","data":"cG5n"}}`), Want: "only text, thoughts and calls can be received"},
			{Name: "code", Body: event(`{"executableCode":{"language":"PYTHON","code":"1"}}`), Want: "only text, thoughts and calls can be received"},
			{Name: "overloaded in the middle", Class: provider.ErrServer, Want: "gemini: UNAVAILABLE: The model is overloaded.",
				Body: event(`{"text":"x"}`) + `data: {"error": {"code": 503,"message": "The model is overloaded.","status": "UNAVAILABLE"}}` + "\n\n"},
			{Name: "limited in the middle", Class: provider.ErrRateLimit, Want: "Quota exceeded",
				Body: `data: {"error": {"code": 429,"message": "Quota exceeded","status": "RESOURCE_EXHAUSTED"}}` + "\n\n"},
			{Name: "an error without a code", Class: provider.ErrServer, Want: "gemini: status 500: no message", Body: `data: {"error": {}}` + "\n\n"},
			{Name: "nothing but comments", Class: provider.ErrNetwork, Want: "before it was complete", Body: ": keep alive\n\n"},
		},
		Empty:   map[string]string{"STOP": event(`{"text":""}`) + finish},
		Golden:  "testdata/request.golden",
		Headers: []string{"X-Goog-Api-Key", "Content-Type"},
		Params: map[string]any{
			"temperature": 0.7, "topP": 0.95, "seed": 7, "responseMimeType": "application/json",
			"responseSchema":     map[string]any{"type": "OBJECT", "properties": map[string]any{"warm": map[string]any{"type": "BOOLEAN"}}},
			"thinkingConfig":     map[string]any{"includeThoughts": true, "thinkingBudget": 1024},
			"safetySettings":     []any{map[string]any{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}},
			"responseJsonSchema": nil,
		},
	})
}
