package anthropic

import (
	"cmp"
	"encoding/json"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// defaultMaxTokens stands in for a MaxOutputTokens of zero.
const defaultMaxTokens = 4096

// object is one of JSON.
type object = map[string]any

// translate returns the body of a request, and the betas that it needs.
func translate(req *provider.Request) (text []byte, betas []string, err error) {
	if err := converse.Check(req); err != nil {
		return nil, nil, err
	}
	body := object{"model": req.Model, "stream": true}
	p, err := parseParams(req.Params, body)
	if err != nil {
		return nil, nil, err
	}
	messages, last, err := conversation(req.Messages)
	if err != nil {
		return nil, nil, err
	}
	p.CacheMessages.put(last)
	body["messages"] = messages
	body["max_tokens"] = cmp.Or(int64(req.MaxOutputTokens), defaultMaxTokens+p.Thinking.BudgetTokens)
	if req.SystemPrompt != "" {
		system := object{"type": "text", "text": req.SystemPrompt}
		p.CacheSystem.put(system)
		body["system"] = []object{system}
	}
	if len(req.StopSequences) > 0 {
		body["stop_sequences"] = req.StopSequences
	}
	if req.TopK != nil {
		body["top_k"] = *req.TopK
	}
	var tools []object
	for _, t := range req.Tools {
		definition := object{"name": t.Name, "input_schema": json.RawMessage(`{"type":"object"}`)}
		if schema := provider.ObjectSchema(t.Schema); len(schema) > 0 {
			definition["input_schema"] = schema
		}
		if t.Description != "" {
			definition["description"] = t.Description
		}
		tools = append(tools, definition)
	}
	if n := len(tools); n > 0 {
		p.CacheTools.put(tools[n-1])
		body["tools"] = tools
	}
	if choice := choose(req.ToolChoice, p.SequentialUses); choice != nil {
		body["tool_choice"] = choice
	}
	text, err = converse.Encode(body)
	return text, p.Betas, err
}

// choose translates a ToolChoice. Whether tools may be used in parallel is a part
// of it, so that needs a choice to be said.
func choose(name string, sequential *bool) object {
	if sequential != nil {
		name = cmp.Or(name, "auto")
	}
	choice := object{"type": name}
	switch name {
	case "":
		return nil
	case "none":
		return choice
	case "auto", "any":
	default:
		choice["type"], choice["name"] = "tool", name
	}
	if sequential != nil {
		choice["disable_parallel_tool_use"] = *sequential
	}
	return choice
}

// conversation returns the turns, and the last block of the last one.
func conversation(messages []provider.Message) (list []object, last object, err error) {
	turns, err := converse.Turns(messages)
	if err != nil {
		return nil, nil, err
	}
	list = []object{}
	for _, turn := range turns {
		role, content := provider.RoleUser, []object{}
		if turn.Assistant {
			role = provider.RoleAssistant
		}
		for _, m := range turn.Messages {
			content = append(content, blocks(m)...)
		}
		last = content[len(content)-1] // no message of a turn is silent
		list = append(list, object{"role": role, "content": content})
	}
	return list, last, nil
}

// blocks returns the blocks of one message, in the order that the API wants. It omits
// what is not there: the API refuses empty text.
func blocks(m provider.Message) []object {
	var list []object
	for _, r := range m.Reasoning {
		if r.Redacted {
			list = append(list, object{"type": "redacted_thinking", "data": r.Content})
		} else {
			list = append(list, object{"type": "thinking", "thinking": r.Content, "signature": string(r.Signature)})
		}
	}
	if m.Content != "" {
		list = append(list, object{"type": "text", "text": m.Content})
	}
	for _, use := range m.ToolUses {
		list = append(list, object{"type": "tool_use", "id": use.CallID, "name": use.Name, "input": use.Object()})
	}
	if r := m.ToolResult; r != nil {
		result := object{"type": "tool_result", "tool_use_id": r.CallID}
		if r.Content != "" {
			result["content"] = []object{{"type": "text", "text": r.Content}}
		}
		if r.IsError {
			result["is_error"] = true
		}
		list = append(list, result)
	}
	return list
}
