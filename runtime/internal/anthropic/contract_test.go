package anthropic_test

import (
	"net/http"
	"testing"

	"github.com/starling-host/starling/runtime/internal/anthropic"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

func connect(t testing.TB, url string, client *http.Client) provider.Provider {
	t.Helper()
	p, err := anthropic.New(converse.Config{APIKey: providertest.Key, BaseURL: url, HTTP: client})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func end(reason string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkEnd, StopReason: reason, RequestID: "req_011CSHoEeqs5C35K2UUqR7Fy"}
}

func transcript(name string, want ...provider.StreamChunk) providertest.Transcript {
	return providertest.Transcript{
		Name: name, File: "testdata/" + name + ".sse", Terminal: "event: message_stop",
		Header: http.Header{"Request-Id": {"req_011CSHoEeqs5C35K2UUqR7Fy"}}, Want: want,
	}
}

// transcripts are responses as the API's documentation of streaming shows them.
func transcripts() []providertest.Transcript {
	const start, delta, stop = provider.ChunkToolUseStart, provider.ChunkToolUseDelta, provider.ChunkToolUseEnd
	return []providertest.Transcript{
		transcript("text", providertest.Usage(2193, 1, 2048, 120), providertest.Text("Hello"), providertest.Text(", Köln ☀!"), providertest.Usage(2193, 15, 2048, 120), end("end_turn")),
		transcript("tools",
			providertest.Usage(472, 2, 0, 0), providertest.Text("Okay, let me check."),
			providertest.Use(start, "toolu_01T1x1", "weather", ""), providertest.Use(delta, "toolu_01T1x1", "", `{"city":`),
			providertest.Use(delta, "toolu_01T1x1", "", ` "San Francisco, CA"}`), providertest.Use(stop, "toolu_01T1x1", "", ""),
			providertest.Use(start, "toolu_01T1x2", "ping", ""), providertest.Use(delta, "toolu_01T1x2", "", "{}"), providertest.Use(stop, "toolu_01T1x2", "", ""),
			providertest.Usage(472, 89, 0, 0), end("tool_use")),
		transcript("thinking",
			providertest.Usage(46, 4, 0, 0), providertest.Reasoning("Let me solve this step by step:\n\n1. 27 * 453"), providertest.Reasoning(" = 12,231"),
			provider.StreamChunk{Kind: provider.ChunkReasoning, Signature: []byte("EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds")},
			provider.StreamChunk{Kind: provider.ChunkRedactedThinking, Text: "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"},
			providertest.Text("27 * 453 = 12,231"), providertest.Usage(46, 140, 0, 0), end("end_turn")),
	}
}

const begun = `event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}

`

func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

// broken are responses that the documentation rules out, and the errors that it
// says may come in the middle of one.
func broken() []providertest.Broken {
	failed := func(kind, message string, class error) providertest.Broken {
		body := begun + event("error", `{"type":"error","error":{"details":null,"type":"`+kind+`","message":"`+message+`"}}`)
		return providertest.Broken{Name: kind, Body: body, Want: kind + ": " + message, Class: class}
	}
	wrong := func(name, want string, events ...string) providertest.Broken {
		body := begun
		for _, e := range events {
			body += e
		}
		return providertest.Broken{Name: name, Body: body, Want: want}
	}
	opened := event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	stop := event("message_stop", `{"type":"message_stop"}`)
	return []providertest.Broken{
		failed("overloaded_error", "Overloaded", provider.ErrServer),
		failed("api_error", "Internal server error", provider.ErrServer),
		failed("rate_limit_error", "Slow down", provider.ErrRateLimit),
		failed("authentication_error", "invalid x-api-key", provider.ErrAuth),
		failed("permission_error", "not yours", provider.ErrAuth),
		failed("timeout_error", "too slow", provider.ErrServer),
		failed("invalid_request_error", "too long", nil),
		failed("some_new_error", "who knows", provider.ErrServer),
		{Name: "an error that is not JSON", Body: begun + event("error", "upstream gone"), Want: "upstream gone", Class: provider.ErrServer},
		wrong("not JSON", "JSON", event("content_block_start", "{")),
		wrong("no index", "without an index", event("content_block_stop", `{"type":"content_block_stop"}`)),
		wrong("an index that is no number", "index cannot be of the type string", event("content_block_stop", `{"type":"content_block_stop","index":"zero"}`)),
		wrong("a delta for no block", "block 1 is not open", opened, event("content_block_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}`)),
		wrong("a delta for another kind", "block 0 is a text", opened, event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}`)),
		wrong("opened twice", "opened twice", opened, opened),
		wrong("closed twice", "not open", opened, event("content_block_stop", `{"type":"content_block_stop","index":0}`), event("content_block_stop", `{"type":"content_block_stop","index":0}`)),
		wrong("never closed", "open blocks", opened, stop),
		wrong("a tool use without an id", "the id", event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"b","input":{}}}`)),
		wrong("more after the end", "after message_stop", stop, opened),
		wrong("counts that are none", "usage", event("message_delta", `{"type":"message_delta","delta":{},"usage":{"output_tokens":"many"}}`)),
		wrong("a tool at the vendor", "server_tool_use", event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"a","name":"b","input":{}}}`)),
		wrong("a citation", "citations_delta", opened, event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}`)),
	}
}

func TestContract(t *testing.T) {
	providertest.Run(t, providertest.Suite{
		New:         connect,
		ContentType: "text/event-stream; charset=utf-8",
		Transcripts: transcripts(),
		Failure: providertest.Failure{
			Header: http.Header{"Request-Id": {"req_1"}},
			Body:   `{"type":"error","error":{"type":"not_found_error","message":"model: test-model for ` + providertest.Key + `"},"request_id":"req_1"}`,
			Want:   "model: test-model for [key]",
		},
		Broken: broken(),
		Empty: map[string]string{
			"end_turn": begun + event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`) + event("message_stop", `{"type":"message_stop"}`),
			"tool_use": begun + event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
				event("content_block_stop", `{"type":"content_block_stop","index":0}`) +
				event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`) + event("message_stop", `{"type":"message_stop"}`),
		},
		Golden:  "testdata/request.golden",
		Headers: []string{"anthropic-version", "anthropic-beta", "x-api-key", "content-type"},
		Params: map[string]any{
			"temperature": 0.5, "top_p": 0.9, "service_tier": "auto",
			"thinking":    map[string]any{"type": "enabled", "budget_tokens": 1024},
			"metadata":    map[string]any{"user_id": "13803d75-b4b5"},
			"betas":       []string{"interleaved-thinking-2025-05-14", "context-1m-2025-08-07"},
			"cache_tools": true, "cache_system": "1h", "cache_messages": "5m", "disable_parallel_tool_use": true,
		},
	})
}
