package anthropic_test

import (
	"encoding/json"
	"testing"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

// wireRequests are requests with everything that the adapter translates.
func wireRequests() map[string]*provider.Request {
	caps := provider.Capabilities{Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true, CacheControl: true, RequestID: true}
	all := map[string]*provider.Request{
		"a question":                      providertest.Question(nil),
		"everything":                      providertest.RichRequest(caps),
		"no tools":                        providertest.RichRequest(provider.Capabilities{}),
		"a budget for thinking":           providertest.Question(map[string]any{"thinking": map[string]any{"type": "enabled", "budget_tokens": 10000}}),
		"adaptive thinking with effort":   providertest.Question(map[string]any{"thinking": map[string]any{"type": "adaptive"}, "output_config": map[string]any{"effort": "low"}}),
		"numbers as they are":             providertest.Question(map[string]any{"temperature": 0.1, "top_p": 1, "container": "c_1", "inference_geo": "eu", "speed": "fast"}),
		"a beta":                          providertest.Question(map[string]any{"betas": []string{"a-2025-01-01"}, "context_management": map[string]any{"edits": []any{map[string]any{"type": "clear_tool_uses_20250919"}}}}),
		"several betas":                   providertest.Question(map[string]any{"betas": []string{"b-2025-01-01", "a-2025-01-01"}}),
		"marks for the cache":             providertest.Question(map[string]any{"cache_system": true, "cache_messages": "1h", "cache_tools": "5m"}),
		"marks that are off":              providertest.Question(map[string]any{"cache_system": false, "cache_messages": nil}),
		"metadata":                        providertest.Question(map[string]any{"metadata": map[string]any{"user_id": "<u> & é"}, "service_tier": "standard_only"}),
		"one tool use at a time":          providertest.Question(map[string]any{"disable_parallel_tool_use": true}),
		"several tool uses at a time":     providertest.Question(map[string]any{"disable_parallel_tool_use": false}),
		"a system prompt that is cached":  providertest.Question(map[string]any{"cache_system": "1h"}),
		"a tool result that is cached":    providertest.Question(map[string]any{"cache_messages": true}),
		"a tool use that is cached":       providertest.Question(map[string]any{"cache_messages": true}),
		"thoughts of all kinds, and more": providertest.Question(nil),
	}
	for _, choice := range []string{"auto", "any", "none", "ping"} {
		all["the choice "+choice] = providertest.Question(nil)
		all["the choice "+choice].ToolChoice = choice
		all["the choice "+choice].Tools = []provider.ToolDefinition{{Name: "ping"}, {Name: "pong", Description: "Says \"pong\" <b>.", Schema: json.RawMessage(`{"type":"object","z":1,"a":2.50}`)}}
		all["the choice "+choice+", one at a time"] = providertest.Question(map[string]any{"disable_parallel_tool_use": true, "cache_tools": true})
		all["the choice "+choice+", one at a time"].ToolChoice = choice
		all["the choice "+choice+", one at a time"].Tools = all["the choice "+choice].Tools
	}
	all["a system prompt that is cached"].SystemPrompt = "You are brief."
	use := provider.Message{Role: provider.RoleAssistant, ToolUses: []provider.ToolUse{{CallID: "1", Name: "ping", Args: json.RawMessage(`{"big":9007199254740993,"x":1.0}`)}}}
	result := provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "1", Content: "<no>", IsError: true}}
	all["a tool use that is cached"].Messages = append(all["a tool use that is cached"].Messages, use)
	all["a tool result that is cached"].Messages = append(all["a tool result that is cached"].Messages, use, result)
	all["thoughts of all kinds, and more"].Messages = append(all["thoughts of all kinds, and more"].Messages,
		provider.Message{Role: provider.RoleAssistant, Content: "Hm.", Reasoning: []provider.Reasoning{
			{Content: "one", Signature: []byte("c2ln")}, {Content: "b3BhcXVl", Redacted: true}, {Content: "unsigned"}},
			ToolUses: []provider.ToolUse{{CallID: "1", Name: "ping", Args: json.RawMessage(`"{broken"`)}, {CallID: "2", Name: "ping"}}},
		result, provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "2"}},
		provider.Message{Role: provider.RoleAssistant}, provider.Message{Role: provider.RoleUser, Content: "Go on."})
	return all
}

// TestRequestsOnTheWire compares requests with the requests of Anthropic's own SDK.
func TestRequestsOnTheWire(t *testing.T) {
	providertest.Wire(t, "testdata/wire.json", connect, wireRequests())
}
