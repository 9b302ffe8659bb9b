package bedrock_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-host/starling/runtime/internal/bedrock"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

// configuration has a region and an access key.
func configuration() converse.Config {
	return converse.Config{Region: "us-east-1", Getenv: func(name string) string {
		return map[string]string{"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": providertest.Key}[name]
	}}
}

func connect(t testing.TB, url string, client *http.Client) provider.Provider {
	t.Helper()
	c := configuration()
	c.BaseURL, c.HTTP = url, client
	p, err := bedrock.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const requestID = "7c1b1f1e-52cb-4b7a-9a61-3ffcd5c3b7c7"

func end(reason string) provider.StreamChunk {
	return provider.StreamChunk{Kind: provider.ChunkEnd, StopReason: reason, RequestID: requestID}
}

func transcript(t testing.TB, name string, want ...provider.StreamChunk) providertest.Transcript {
	return providertest.Transcript{
		Name: name, File: encoded(t, "testdata/"+name+".events"), Terminal: "metadata",
		Header: http.Header{"X-Amzn-Requestid": {requestID}}, Want: want,
	}
}

func transcripts(t testing.TB) []providertest.Transcript {
	const start, delta, stop = provider.ChunkToolUseStart, provider.ChunkToolUseDelta, provider.ChunkToolUseEnd
	const call = "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q"
	return []providertest.Transcript{
		transcript(t, "text", providertest.Text("Hello"), providertest.Text(", Köln ☀!"), providertest.Usage(2193, 15, 2048, 120), end("end_turn")),
		transcript(t, "tools",
			providertest.Text("Let me check."),
			providertest.Use(start, call, "weather", ""), providertest.Use(delta, call, "", `{"city":`), providertest.Use(delta, call, "", ` "Köln"}`), providertest.Use(stop, call, "", ""),
			providertest.Use(start, "tooluse_2", "ping", ""), providertest.Use(delta, "tooluse_2", "", "{}"), providertest.Use(stop, "tooluse_2", "", ""),
			providertest.Usage(472, 89, 0, 0), end("tool_use")),
		transcript(t, "reasoning",
			providertest.Reasoning("27 * 453"), providertest.Reasoning(" = 12,231"),
			provider.StreamChunk{Kind: provider.ChunkReasoning, Signature: []byte("EqQBCgIYAhIM1gbcDa9GJwZA2b3h")},
			provider.StreamChunk{Kind: provider.ChunkRedactedThinking, Text: "/wCAfw=="},
			providertest.Text("12,231"), providertest.Usage(46, 140, 0, 0), end("end_turn")),
	}
}

// broken are the exceptions of the API in the middle of a stream, and streams that
// it would not send.
func broken(t testing.TB) []providertest.Broken {
	const begun = "messageStart {\"role\":\"assistant\"}\n" + `contentBlockDelta {"contentBlockIndex":0,"delta":{"text":"a"}}` + "\n"
	failed := func(name, code string, class error) providertest.Broken {
		return providertest.Broken{Name: name, Body: string(frames(t, begun+"!"+name+` {"message":"out of luck"}`)), Want: code + ": out of luck", Class: class}
	}
	wrong := func(name, want, lines string) providertest.Broken {
		return providertest.Broken{Name: name, Body: string(frames(t, begun+lines)), Want: want}
	}
	tooLong := frame("", strings.Repeat(" ", converse.MaxEvent))
	flipped := bytes.Replace(frames(t, begun), []byte("assistant"), []byte("assistent"), 1)
	const over = `contentBlockStop {"contentBlockIndex":0}` + "\n" + `messageStop {"stopReason":"end_turn"}` + "\n" + "metadata {}\n"
	return []providertest.Broken{
		failed("throttlingException", "ThrottlingException", provider.ErrRateLimit),
		failed("modelStreamErrorException", "ModelStreamErrorException", provider.ErrServer),
		failed("internalServerException", "InternalServerException", provider.ErrServer),
		failed("serviceUnavailableException", "ServiceUnavailableException", provider.ErrServer),
		failed("accessDeniedException", "AccessDeniedException", provider.ErrAuth),
		failed("validationException", "ValidationException", nil),
		failed("someNewException", "SomeNewException", nil),
		{Name: "a checksum that is wrong", Body: string(flipped), Want: "checksum"},
		{Name: "an error", Body: frame(stringHeader(":message-type", "error")+stringHeader(":error-code", "Lost")+stringHeader(":error-message", "out of luck"), ""), Want: "Lost: out of luck"},
		{Name: "no type", Body: frame("", "{}"), Want: "malformed"},
		{Name: "no kind of event", Body: frame(stringHeader(":message-type", "event"), "{}"), Want: "malformed"},
		{Name: "a frame that is too long", Body: tooLong, Want: "a frame of 16777232 bytes"},
		{Name: "no frames", Body: "<html><body>a proxy that says 200</body></html>", Want: "malformed"},
		wrong("not JSON", "malformed", "contentBlockDelta {"),
		wrong("a text that is an object", "malformed", `contentBlockDelta {"contentBlockIndex":0,"delta":{"text":{"a":"said"}}}`),
		wrong("a text that is cut", "malformed", `contentBlockDelta {"contentBlockIndex":0,"delta":{"text":"said`),
		wrong("no index", "without an index", `contentBlockDelta {"delta":{"text":"a"}}`),
		wrong("an index that is no number", "contentBlockIndex cannot be of the type string", `contentBlockDelta {"contentBlockIndex":"zero","delta":{"text":"a"}}`),
		wrong("arguments for no tool use", "block 3 is not open", `contentBlockDelta {"contentBlockIndex":3,"delta":{"toolUse":{"input":"a"}}}`),
		wrong("a delta for another kind", "block 0 is a text", `contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"a"}}}`),
		wrong("a signature for another kind", "block 0 is a text", `contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"a"}}}`),
		wrong("bytes for another kind", "block 0 is a text", `contentBlockDelta {"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"AA=="}}}`),
		wrong("opened twice", "opened twice", `contentBlockStart {"contentBlockIndex":0,"start":{"toolUse":{"name":"a","toolUseId":"b"}}}`),
		wrong("a tool use without a name", "the name", `contentBlockStart {"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"b"}}}`),
		wrong("never closed", "open blocks", `messageStop {"stopReason":"end_turn"}`+"\n"+`metadata {"usage":{}}`),
		wrong("more after the end", "after the metadata", over+`contentBlockStop {"contentBlockIndex":0}`),
		wrong("an image", "Image", `contentBlockStart {"contentBlockIndex":1,"start":{"image":{"format":"png"}}}`),
		wrong("a citation", "Citation", `contentBlockDelta {"contentBlockIndex":0,"delta":{"citation":{"title":"a"}}}`),
		wrong("reasoning that is none", "malformed", `contentBlockDelta {"contentBlockIndex":1,"delta":{"reasoningContent":[]}}`),
		wrong("reasoning and nothing", "kind", `contentBlockDelta {"contentBlockIndex":1,"delta":{"reasoningContent":{"text":"a"},"ReasoningContent":null}}`),
		wrong("no delta", "kind", `contentBlockDelta {"contentBlockIndex":1}`),
		wrong("an exception that is not JSON", "malformed", "!throttlingException {"),
		wrong("a delta of a new kind", "", `contentBlockDelta {"contentBlockIndex":0,"delta":{"hologram":{}}}`),
	}
}

func TestContract(t *testing.T) {
	providertest.Run(t, providertest.Suite{
		New:         connect,
		ContentType: "application/vnd.amazon.eventstream",
		Transcripts: transcripts(t),
		Failure: providertest.Failure{
			Header: http.Header{"X-Amzn-Requestid": {requestID}},
			Body:   `{"message":"The provided model identifier is invalid."}`,
			Want:   "The provided model identifier is invalid.",
		},
		Broken: broken(t),
		Empty: map[string]string{
			"end_turn": string(frames(t, `contentBlockStop {"contentBlockIndex":0}`+"\n"+`messageStop {"stopReason":"end_turn"}`+"\nmetadata {}\n")),
			"tool_use": string(frames(t, `messageStop {"stopReason":"tool_use"}`+"\nmetadata {}\n")),
		},
		Golden:  "testdata/request.golden",
		Headers: []string{"content-type", "accept"},
		Params: map[string]any{
			"temperature": 0.5, "top_p": 0.25,
			"additionalModelRequestFields":      map[string]any{"thinking": map[string]any{"type": "enabled", "budget_tokens": 1024}, "scale": 1.0},
			"additionalModelResponseFieldPaths": []string{"/delta/stop_sequence"},
			"requestMetadata":                   map[string]any{"team": "one"},
			"performanceConfig":                 map[string]any{"latency": "optimized"},
			"serviceTier":                       map[string]any{"type": "priority"},
			"promptVariables":                   map[string]any{"name": map[string]any{"text": "Ada"}},
			"guardrailConfig":                   map[string]any{"guardrailIdentifier": "g", "guardrailVersion": "1", "trace": "enabled", "streamProcessingMode": "sync"},
			"outputConfig": map[string]any{"effort": "low", "textFormat": map[string]any{
				"type": "json_schema", "structure": map[string]any{"jsonSchema": map[string]any{"schema": "{}", "name": "n"}},
			}},
		},
	})
}
