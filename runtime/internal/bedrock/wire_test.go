package bedrock_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

// wireRequests are requests with everything that the adapter translates.
func wireRequests() map[string]*provider.Request {
	caps := provider.Capabilities{Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true, RequestID: true}
	type object = map[string]any
	fields := func(fields any) *provider.Request {
		return providertest.Question(object{"additionalModelRequestFields": fields})
	}
	ten := 10
	all := map[string]*provider.Request{
		"a question":                  providertest.Question(nil),
		"everything":                  providertest.RichRequest(caps),
		"no tools":                    providertest.RichRequest(provider.Capabilities{}),
		"no messages":                 {Model: "m"},
		"an inference profile":        providertest.Question(nil),
		"a prompt":                    providertest.Question(nil),
		"a model with a strange name": providertest.Question(nil),
		"numbers":                     providertest.Question(object{"temperature": 0.1, "top_p": 1}),
		"numbers that are long":       providertest.Question(object{"temperature": 0.123456789012, "top_p": 1e-7}),
		"zeros":                       providertest.Question(object{"temperature": 0, "top_p": 0.0}),
		"nulls": providertest.Question(object{"additionalModelRequestFields": nil, "additionalModelResponseFieldPaths": nil,
			"requestMetadata": nil, "performanceConfig": nil, "serviceTier": nil, "guardrailConfig": nil}),
		"fields":           fields(object{"thinking": object{"type": "enabled", "budget_tokens": int64(9007199254740993)}, "a": []any{1.0, 1e30, "<b> & é"}, "": nil}),
		"no fields":        fields(object{}),
		"fields and top_k": fields(object{"z": 1, "a": 2}),
		"paths":            providertest.Question(object{"additionalModelResponseFieldPaths": []string{"/delta/stop_sequence", "/a"}}),
		"no paths":         providertest.Question(object{"additionalModelResponseFieldPaths": []string{}}),
		"metadata":         providertest.Question(object{"requestMetadata": object{"b": "<1> & é", "a": ""}}),
		"performance":      providertest.Question(object{"performanceConfig": object{"latency": "optimized"}}),
		"other cases":      providertest.Question(object{"performanceConfig": object{"Latency": "optimized"}, "serviceTier": object{"TYPE": "flex"}}),
		"a tier":           providertest.Question(object{"serviceTier": object{"type": "priority"}}),
		"variables":        providertest.Question(object{"promptVariables": object{"name": object{"text": "Ada"}, "empty": object{"text": ""}}}),
		"no variables":     providertest.Question(object{"promptVariables": object{}}),
		"a guardrail":      providertest.Question(object{"guardrailConfig": object{"guardrailIdentifier": "g", "guardrailVersion": "DRAFT"}}),
		"all of a guardrail": providertest.Question(object{"guardrailConfig": object{"guardrailIdentifier": "g", "guardrailVersion": "1",
			"trace": "enabled_full", "streamProcessingMode": "async"}}),
		"an effort": providertest.Question(object{"outputConfig": object{"effort": "low"}}),
		"a schema": providertest.Question(object{"outputConfig": object{"textFormat": object{"type": "json_schema",
			"structure": object{"jsonSchema": object{"schema": `{"type":"object"}`, "name": "n", "description": "d"}}}}}),
		"thoughts of all kinds, and more": providertest.Question(nil),
	}
	all["an inference profile"].Model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
	all["a prompt"].Model = "arn:aws:bedrock:us-east-1:123456789012:prompt/PROMPT12345:1"
	all["a model with a strange name"].Model = `a b+c/ü?x=1&y#%41$@!'()*,;~_-.`
	all["fields and top_k"].TopK = &ten
	for _, choice := range []string{"auto", "any", "ping"} {
		all["the choice "+choice] = providertest.Question(nil)
		all["the choice "+choice].ToolChoice = choice
		all["the choice "+choice].Tools = []provider.ToolDefinition{{Name: "ping"}, {Name: "pong", Description: "Says \"pong\" <b>.", Schema: json.RawMessage(`{"type":"object","z":1,"a":2.50}`)}}
	}
	more := all["thoughts of all kinds, and more"]
	more.SystemPrompt, more.MaxOutputTokens, more.StopSequences = "You are <brief>.", 7, []string{"\n"}
	more.Messages = append(more.Messages,
		provider.Message{Role: provider.RoleAssistant, Content: "Hm.", Reasoning: []provider.Reasoning{
			{Content: "one", Signature: []byte("c2ln")}, {Content: "b3BhcXVl", Redacted: true}, {Content: "unsigned"}, {}},
			ToolUses: []provider.ToolUse{{CallID: "1", Name: "ping", Args: json.RawMessage(`"{broken"`)}, {CallID: "2", Name: "ping"},
				{CallID: "3", Name: "pong", Args: json.RawMessage(`{"":9007199254740993,"x":1.0}`)}}},
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "1", Content: "<no>", IsError: true}},
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "2"}},
		provider.Message{Role: provider.RoleAssistant}, provider.Message{Role: provider.RoleUser, Content: "Go on."})
	return all
}

// unsigned is a transport that takes off the signature, which another test is about.
type unsigned struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (u unsigned) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	r.Header.Del("X-Amz-Date")
	return u.RoundTripper.RoundTrip(r)
}

// TestRequestsOnTheWire compares requests with the requests of AWS's own SDK.
func TestRequestsOnTheWire(t *testing.T) {
	providertest.Wire(t, "testdata/wire.json", func(t testing.TB, url string, client *http.Client) provider.Provider {
		return connect(t, url, &http.Client{Transport: unsigned{client.Transport}})
	}, wireRequests())
}
