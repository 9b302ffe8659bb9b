package gemini_test

import (
	"encoding/json"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

// wireRequests are requests with everything that the adapter translates.
func wireRequests(t *testing.T) map[string]*provider.Request {
	all := map[string]*provider.Request{
		"a question": question(),
		"everything": providertest.RichRequest(provider.Capabilities{Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true}),
		"no tools":   providertest.RichRequest(provider.Capabilities{}),
	}
	type object = map[string]any
	for name, params := range map[string]any{
		"numbers":               object{"temperature": 0.1, "topP": 1, "seed": 2147483647, "presencePenalty": -0.25, "frequencyPenalty": 1.5},
		"thinking":              object{"thinkingConfig": object{"includeThoughts": true, "thinkingLevel": "LOW"}},
		"a thinking budget":     object{"thinkingConfig": object{"thinkingBudget": 0}},
		"JSON":                  object{"responseMimeType": "application/json", "responseJsonSchema": object{"type": "object", "properties": object{"b": object{"type": "string"}, "a": object{"const": 5}}}},
		"a schema":              object{"responseSchema": object{"type": "OBJECT", "nullable": true, "title": "T", "minItems": 1, "maxLength": 7, "enum": []any{"a"}, "required": []any{"x"}, "anyOf": []any{object{"type": "STRING", "format": "date"}}, "properties": object{"x": object{"type": "ARRAY", "items": object{"type": "INTEGER", "minimum": 1.5}}}, "propertyOrdering": []any{"x"}, "default": 1, "example": object{"x": 1}, "description": "d", "pattern": "p"}},
		"safety":                object{"safetySettings": []any{object{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}, object{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "OFF"}}},
		"resolution":            object{"mediaResolution": "MEDIA_RESOLUTION_LOW"},
		"a cache":               object{"cachedContent": "cachedContents/abc"},
		"a tier":                object{"serviceTier": "flex"},
		"store":                 object{"store": true},
		"no store":              object{"store": false},
		"options that are 0":    object{"temperature": 0, "seed": 0, "thinkingConfig": object{}},
		"options that are null": object{"temperature": nil, "safetySettings": nil, "responseSchema": nil},
	} {
		raw, err := canon.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = question()
		all[name].Params = raw
	}
	for _, choice := range []string{"auto", "any", "none", "ping"} {
		req := question()
		req.ToolChoice = choice
		req.Tools = []provider.ToolDefinition{{Name: "ping"}, {Name: "pong", Description: "Says \"pong\" <b>.", Schema: json.RawMessage(`{"type":"object","z":1,"a":2.50}`)}, {Name: "any", Schema: json.RawMessage("true")}}
		all["the choice "+choice] = req
	}
	for name, model := range map[string]string{"a path": "models/m", "a tuned model": "tunedModels/m", "a name to escape": "m é", "a project": "projects/p/m"} {
		all["a model that is "+name] = question()
		all["a model that is "+name].Model = model
	}
	history := question()
	history.SystemPrompt = "You are <brief> & \"kind\"."
	history.Messages = append(history.Messages,
		provider.Message{Role: provider.RoleAssistant, Content: "Hm.", Reasoning: []provider.Reasoning{
			{Content: "one", Signature: []byte("sig")}, {Content: "b3BhcXVl", Redacted: true}, {Content: "unsigned"},
			{Signature: []byte("text/T")}, {Signature: []byte("call/1/C")}},
			ToolUses: []provider.ToolUse{{CallID: "1", Name: "ping", Args: json.RawMessage(`"{broken"`)}, {CallID: "2", Name: "ping", Args: json.RawMessage(`{"big":9007199254740993}`)}}},
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "1", Content: "<no>", IsError: true}},
		provider.Message{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "2", Content: `{"id":18446744073709551615}`}},
		provider.Message{Role: provider.RoleAssistant}, provider.Message{Role: provider.RoleUser, Content: "Go on."})
	all["a history"] = history
	return all
}

// TestRequestsOnTheWire compares requests with the requests of Google's own SDK.
func TestRequestsOnTheWire(t *testing.T) {
	providertest.Wire(t, "testdata/wire.json", newProvider, wireRequests(t))
}
