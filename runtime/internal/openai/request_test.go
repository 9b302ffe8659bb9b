package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/openai"
	"github.com/starling-host/starling/runtime/provider"
)

func params(t *testing.T, options any) canon.Raw {
	t.Helper()
	raw, err := canon.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestToolChoice(t *testing.T) {
	f := []provider.ToolDefinition{{Name: "f", Schema: json.RawMessage(`{"type":"object"}`)}}
	for _, tc := range []struct {
		choice string
		tools  []provider.ToolDefinition
		want   any
	}{
		{"", f, nil}, {"auto", f, "auto"}, {"none", f, "none"}, {"any", f, "required"},
		{"f", f, map[string]any{"type": "function", "function": map[string]any{"name": "f"}}},
		{"auto", nil, nil}, {"none", nil, nil},
	} {
		req := hello("m")
		req.Tools, req.ToolChoice = tc.tools, tc.choice
		_, body, _ := ask(t, req, openai.Ollama, converse.Config{})
		expect(t, body["tool_choice"], tc.want)
	}
}

// TestReasoningOfEarlierTurns checks that it goes to the servers that require it.
func TestReasoningOfEarlierTurns(t *testing.T) {
	calls := []provider.ToolUse{{CallID: "a", Name: "f", Args: json.RawMessage(`"{broken"`)}}
	thoughts := []provider.Reasoning{{Content: "Hm"}, {Content: "secret", Redacted: true}, {Content: "."}}
	call := []any{map[string]any{"id": "a", "type": "function", "function": map[string]any{"name": "f", "arguments": `{"arguments":"{broken"}`}}}
	for _, tc := range []struct {
		name    string
		server  openai.Server
		base    string
		message provider.Message
		want    map[string]any
	}{
		{"ollama", openai.Ollama, "", provider.Message{ToolUses: calls, Reasoning: thoughts}, map[string]any{"content": nil, "tool_calls": call}},
		{"vllm", openai.VLLM, "http://h", provider.Message{ToolUses: calls, Reasoning: thoughts}, map[string]any{"content": nil, "tool_calls": call, "reasoning": "Hm."}},
		{"openrouter", openai.OpenAI, "https://openrouter.ai/api/v1", provider.Message{Content: "x", Reasoning: thoughts}, map[string]any{"content": "x", "reasoning": "Hm."}},
		{"deepseek", openai.OpenAI, "https://api.deepseek.com", provider.Message{ToolUses: calls, Reasoning: thoughts}, map[string]any{"content": nil, "tool_calls": call, "reasoning_content": "Hm."}},
		{"deepseek without any", openai.OpenAI, "https://api.deepseek.com", provider.Message{ToolUses: calls}, map[string]any{"content": nil, "tool_calls": call, "reasoning_content": ""}},
		{"deepseek without calls", openai.OpenAI, "https://api.deepseek.com", provider.Message{}, map[string]any{"content": ""}},
	} {
		req := hello("m")
		tc.message.Role = provider.RoleAssistant
		tc.want["role"] = "assistant"
		req.Messages = append(req.Messages, tc.message)
		_, body, _ := ask(t, req, tc.server, converse.Config{APIKey: "k", BaseURL: tc.base})
		t.Run(tc.name, func(t *testing.T) { expect(t, body["messages"].([]any)[1], any(tc.want)) })
	}
}

func TestRequestsThatCannotBe(t *testing.T) {
	forty := 40
	openAI := converse.Config{APIKey: "k"}
	local := converse.Config{BaseURL: "http://h/v1"}
	for _, tc := range []struct {
		name, want string
		config     converse.Config
		change     func(*provider.Request)
	}{
		{"no model", "no model", local, func(r *provider.Request) { r.Model = "" }},
		{"a role", `message 0: the role is "system"`, local, func(r *provider.Request) { r.Messages[0].Role = "system" }},
		{"a tool without a result", "message 0: it has the role tool", local, func(r *provider.Request) { r.Messages[0].Role = "tool" }},
		{"a schema", `schema of the tool "f"`, local, func(r *provider.Request) {
			r.Tools = []provider.ToolDefinition{{Name: "f", Schema: json.RawMessage("{")}}
		}},
		{"a choice of no tool", `"g"`, local, func(r *provider.Request) { r.ToolChoice = "g" }},
		{"any of no tools", `"any"`, local, func(r *provider.Request) { r.ToolChoice = "any" }},
		{"a limit", "-1", local, func(r *provider.Request) { r.MaxOutputTokens = -1 }},
		{"top_k for OpenAI", "no top_k", openAI, func(r *provider.Request) { r.TopK = &forty }},
		{"an unknown option", `unknown option "temprature", known are add_generation_prompt, `, local, func(r *provider.Request) {
			r.Params = params(t, map[string]any{"temprature": 1})
		}},
		{"an option of other servers", `unknown option "min_p", known are frequency_penalty, `, openAI, func(r *provider.Request) {
			r.Params = params(t, map[string]any{"min_p": 0.1})
		}},
		{"an option with a place of its own", `"max_tokens" is set by Request.MaxOutputTokens`, local, func(r *provider.Request) {
			r.Params = params(t, map[string]any{"max_tokens": 1})
		}},
		{"options with other keys", "params: ", local, func(r *provider.Request) { r.Params = params(t, map[int]int{1: 1}) }},
		{"options that are cut", "params: ", local, func(r *provider.Request) { r.Params = canon.Raw{0xa1, 0x61} }},
		{"an option that JSON lacks", "a byte string", local, func(r *provider.Request) {
			r.Params = params(t, map[string]any{"logit_bias": []byte{1}})
		}},
	} {
		req := hello("m")
		tc.change(req)
		sent, _, err := ask(t, req, openai.OpenAI, tc.config)
		if err == nil || !strings.Contains(err.Error(), tc.want) || sent != nil || provider.Transient(err) {
			t.Errorf("%s: got %v, want %q in it and nothing sent", tc.name, err, tc.want)
		}
	}
}

func TestRequestWithAlmostNothing(t *testing.T) {
	server := &provider.Request{Model: "m", Tools: []provider.ToolDefinition{{Name: "f"}}, Params: params(t, map[string]any{})}
	_, body, _ := ask(t, server, openai.Ollama, converse.Config{})
	expect(t, body, map[string]any{
		"model": "m", "messages": []any{}, "stream": true, "stream_options": map[string]any{"include_usage": true},
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": "f"}}},
	})
}
