package openai_test

import (
	"net/http"
	"testing"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/openai"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

func newProvider(t testing.TB, url string, client *http.Client) provider.Provider {
	p, err := openai.OpenAI.New(converse.Config{APIKey: providertest.Key, BaseURL: url, HTTP: client, Headers: map[string]string{"OpenAI-Organization": "org-test"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func start(id, name string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkToolUseStart, ToolUse: &provider.ToolUseChunk{CallID: id, Name: name}}
}

func delta(id, args string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkToolUseDelta, ToolUse: &provider.ToolUseChunk{CallID: id, ArgsDelta: args}}
}

func stop(id string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkToolUseEnd, ToolUse: &provider.ToolUseChunk{CallID: id}}
}

func usage(u provider.Usage) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkUsage, Usage: &u}
}

func end(reason, request string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkEnd, StopReason: reason, RequestID: request}
}

// transcripts are in the forms that the vendors document.
var transcripts = []providertest.Transcript{
	{
		Name: "text", File: "testdata/text.sse", Terminal: `"finish_reason":"`, Header: http.Header{"X-Request-Id": {"req_1"}},
		Want: []provider.StreamChunk{
			providertest.Text("Grüße"), providertest.Text(" aus 東京"), providertest.Text("!"),
			usage(provider.Usage{InputTokens: 19, OutputTokens: 10, CacheReadTokens: 8}), end("stop", "req_1"),
		},
	},
	{
		Name: "tools", File: "testdata/tools.sse", Terminal: `"finish_reason":"`, Header: http.Header{"X-Request-Id": {"req_2"}},
		Want: []provider.StreamChunk{
			start("call_DdmO9pD3xa9XTPNJ32zg2hcA", "weather"), delta("call_DdmO9pD3xa9XTPNJ32zg2hcA", `{"ci`), delta("call_DdmO9pD3xa9XTPNJ32zg2hcA", `ty":"Köln"}`),
			start("call_ABCfXWhqUEGVKYDdVdBnzDXh", "ping"), delta("call_ABCfXWhqUEGVKYDdVdBnzDXh", "{}"),
			stop("call_DdmO9pD3xa9XTPNJ32zg2hcA"), stop("call_ABCfXWhqUEGVKYDdVdBnzDXh"),
			usage(provider.Usage{InputTokens: 82, OutputTokens: 49}), end("tool_calls", "req_2"),
		},
	},
	{
		Name: "deepseek reasons", File: "testdata/deepseek.sse", Terminal: `"finish_reason":"`,
		Want: []provider.StreamChunk{
			providertest.Reasoning("9.11 or"), providertest.Reasoning(" 9.8?"), providertest.Text("9.8."),
			usage(provider.Usage{InputTokens: 17, OutputTokens: 40, CacheReadTokens: 16}), end("stop", ""),
		},
	},
	{
		Name: "openrouter reasons", File: "testdata/openrouter.sse", Terminal: `"finish_reason":"`, Header: http.Header{"X-Generation-Id": {"gen-1741570283-abc"}},
		Want: []provider.StreamChunk{
			providertest.Reasoning("Easy."), providertest.Text("4"),
			usage(provider.Usage{InputTokens: 70, OutputTokens: 12, CacheReadTokens: 64, CacheCreateTokens: 6}), end("stop", "gen-1741570283-abc"),
		},
	},
	{
		Name: "groq sends the counts twice", File: "testdata/groq.sse", Terminal: `"finish_reason":"`, Header: http.Header{"X-Request-Id": {"req_01jbd6g2qdfw2adyrt2az8hz4w"}},
		Want: []provider.StreamChunk{
			providertest.Reasoning("Hm."), start("0g8yrj5r6", "ping"), delta("0g8yrj5r6", "{}"), stop("0g8yrj5r6"),
			usage(provider.Usage{InputTokens: 24, OutputTokens: 32}), end("tool_calls", "req_01jbd6g2qdfw2adyrt2az8hz4w"),
		},
	},
	{
		Name: "ollama gives all calls the same index", File: "testdata/ollama.sse", Terminal: `"finish_reason":"`,
		Want: []provider.StreamChunk{
			start("call_7qfmh1ho", "weather"), delta("call_7qfmh1ho", `{"city":"Köln"}`),
			start("call_ksqn06rf", "weather"), delta("call_ksqn06rf", `{"city":"東京"}`),
			stop("call_7qfmh1ho"), stop("call_ksqn06rf"),
			usage(provider.Usage{InputTokens: 160, OutputTokens: 50}), end("tool_calls", ""),
		},
	},
	{
		Name: "vllm has two calls open and counts all the time", File: "testdata/vllm.sse", Terminal: `"finish_reason":"`,
		Want: []provider.StreamChunk{
			usage(provider.Usage{InputTokens: 20}), providertest.Reasoning("Both."), usage(provider.Usage{InputTokens: 20, OutputTokens: 2}),
			start("chatcmpl-tool-a", "weather"), start("chatcmpl-tool-b", "weather"), usage(provider.Usage{InputTokens: 20, OutputTokens: 9}),
			delta("chatcmpl-tool-b", `{"city": `), delta("chatcmpl-tool-a", `{"city": "Köln"}`), usage(provider.Usage{InputTokens: 20, OutputTokens: 15}),
			delta("chatcmpl-tool-b", `"東京"}`), usage(provider.Usage{InputTokens: 20, OutputTokens: 20}),
			stop("chatcmpl-tool-a"), stop("chatcmpl-tool-b"),
			usage(provider.Usage{InputTokens: 20, OutputTokens: 21}), end("tool_calls", ""),
		},
	},
	{
		Name: "azure refuses", File: "testdata/azure.sse", Terminal: `"finish_reason":"`, Header: http.Header{"X-Request-Id": {"8c7b"}},
		Want: []provider.StreamChunk{
			providertest.Text("I'm sorry, "), providertest.Text("no."), usage(provider.Usage{InputTokens: 11, OutputTokens: 8}), end("refusal", "8c7b"),
		},
	},
}

var empty = map[string]string{
	"stop":       `data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n",
	"tool_calls": `data: {"choices":[{"delta":{"content":null,"tool_calls":[]},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n",
}

func TestContract(t *testing.T) {
	providertest.Run(t, providertest.Suite{
		New:         newProvider,
		ContentType: "text/event-stream; charset=utf-8",
		Transcripts: transcripts,
		Failure: providertest.Failure{
			Header: http.Header{"X-Request-Id": {"req_9"}},
			Body:   `{"error":{"message":"Incorrect API key provided: ` + providertest.Key + `.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`,
			Want:   "Incorrect API key provided: [key]. (invalid_request_error, invalid_api_key) (request req_9)",
		},
		Broken: []providertest.Broken{
			{Name: "not JSON", Body: "data: {\"choices\":[\n\n", Want: "unexpected end of JSON input"},
			{Name: "an array", Body: "data: [1]\n\n", Want: "array"},
			{Name: "text that is a number", Body: `data: {"choices":[{"delta":{"content":7}}]}` + "\n\n", Want: "choices.delta.content"},
			{Name: "a second choice", Body: `data: {"choices":[{"index":1,"delta":{"content":"x"}}]}` + "\n\n", Want: "choice 1"},
			{Name: "no reason", Body: "data: [DONE]\n\n", Want: "finish_reason"},
			{Name: "a call without a name", Body: `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c"}]},"finish_reason":"tool_calls"}]}` + "\n\n", Want: "no name"},
			{Name: "overloaded in the middle", Class: provider.ErrServer, Want: "The server had an error",
				Body: `data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\n" + `data: {"error":{"message":"The server had an error","type":"server_error","code":null}}` + "\n\n"},
			{Name: "limited in the middle, by a number", Class: provider.ErrRateLimit, Want: "Slow down",
				Body: `data: {"id":"gen-1","error":{"code":429,"message":"Slow down"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}` + "\n\n"},
			{Name: "a named error", Body: "event: error\ndata: {\"error\":\"model crashed\"}\n\n", Want: "model crashed"},
			{Name: "an error of vllm", Class: nil, Body: `data: {"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}` + "\n\n", Want: "too long (BadRequestError, 400)"},
		},
		Empty:   empty,
		Golden:  "testdata/request.golden",
		Headers: []string{"Authorization", "Openai-Organization", "Content-Type", "Accept"},
		Params:  map[string]any{"temperature": 0.25, "seed": 7, "parallel_tool_calls": true, "response_format": map[string]any{"type": "json_object"}, "min_p": 0.5},
	})
}
