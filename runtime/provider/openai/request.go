package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// object is one of JSON.
type object = map[string]any

type chatMessage struct {
	Role             string     `json:"role"`
	Content          *string    `json:"content"` // null beside tool calls
	Reasoning        *string    `json:"reasoning,omitempty"`
	ReasoningContent *string    `json:"reasoning_content,omitempty"`
	ToolCalls        []chatCall `json:"tool_calls,omitempty"`
	ToolCallID       string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// encode returns the body for a request.
func (c *client) encode(req *provider.Request) ([]byte, error) {
	if err := converse.Check(req); err != nil {
		return nil, err
	}
	messages, err := c.messages(req)
	if err != nil {
		return nil, err
	}
	body := object{"model": req.Model, "messages": messages, "stream": true}
	if !c.dialect.uncounted {
		body["stream_options"] = object{"include_usage": true}
	}
	if len(req.StopSequences) > 0 {
		body["stop"] = req.StopSequences
	}
	switch {
	case req.TopK != nil && !c.dialect.topK:
		return nil, errors.New("this server has no top_k: leave Request.TopK nil")
	case req.TopK != nil:
		body["top_k"] = *req.TopK
	}
	if req.MaxOutputTokens > 0 {
		body[c.dialect.maxTokens] = req.MaxOutputTokens
	}
	if err := setTools(req, body); err != nil {
		return nil, err
	}
	if err := c.dialect.setParams(req.Params, body); err != nil {
		return nil, err
	}
	return converse.Encode(body)
}

func (c *client) messages(req *provider.Request) ([]chatMessage, error) {
	list := []chatMessage{}
	if req.SystemPrompt != "" {
		list = append(list, chatMessage{Role: "system", Content: &req.SystemPrompt})
	}
	for i := range req.Messages {
		m, err := c.message(&req.Messages[i])
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		list = append(list, m)
	}
	return list, nil
}

func (c *client) message(m *provider.Message) (chatMessage, error) {
	switch m.Role {
	case provider.RoleUser:
		return chatMessage{Role: m.Role, Content: &m.Content}, nil
	case provider.RoleAssistant:
		return c.assistant(m), nil
	case provider.RoleTool:
		if m.ToolResult == nil {
			return chatMessage{}, errors.New("it has the role tool and no ToolResult")
		}
		content := m.ToolResult.Content
		if m.ToolResult.IsError && !strings.HasPrefix(content, "Error") {
			content = "Error: " + content
		}
		return chatMessage{Role: m.Role, Content: &content, ToolCallID: m.ToolResult.CallID}, nil
	}
	return chatMessage{}, fmt.Errorf("the role is %q, want user, assistant or tool", m.Role)
}

func (c *client) assistant(m *provider.Message) chatMessage {
	chat := chatMessage{Role: m.Role, Content: &m.Content}
	if m.Content == "" && len(m.ToolUses) > 0 {
		chat.Content = nil
	}
	for _, use := range m.ToolUses {
		chat.ToolCalls = append(chat.ToolCalls, chatCall{ID: use.CallID, Type: "function", Function: chatFunction{use.Name, string(use.Object())}})
	}
	switch c.dialect.reasoning {
	case "reasoning":
		chat.Reasoning = thoughts(m)
	case "reasoning_content":
		chat.ReasoningContent = thoughts(m)
		if chat.ReasoningContent == nil && len(m.ToolUses) > 0 {
			chat.ReasoningContent = new(string) // DeepSeek wants it beside calls, if only empty
		}
	}
	return chat
}

// thoughts returns the reasoning that can be read, or nil.
func thoughts(m *provider.Message) *string {
	var text *string
	for _, r := range m.Reasoning {
		if r.Redacted {
			continue
		}
		if text == nil {
			text = new(string)
		}
		*text += r.Content
	}
	return text
}

// setTools sets the tools, and the choice among them in the words of this protocol,
// which wants none where there are no tools.
func setTools(req *provider.Request, body object) error {
	var tools []object
	for _, d := range req.Tools {
		if len(d.Schema) > 0 && !json.Valid(d.Schema) {
			return fmt.Errorf("the schema of the tool %q is not JSON", d.Name)
		}
		function := object{"name": d.Name}
		if d.Description != "" {
			function["description"] = d.Description
		}
		if schema := provider.ObjectSchema(d.Schema); len(schema) > 0 {
			function["parameters"] = schema
		}
		tools = append(tools, object{"type": "function", "function": function})
	}
	if len(tools) > 0 {
		body["tools"] = tools
	}
	switch choice := req.ToolChoice; {
	case choice == "", len(tools) == 0:
	case choice == "any":
		body["tool_choice"] = "required"
	case choice == "auto", choice == "none":
		body["tool_choice"] = choice
	default:
		body["tool_choice"] = object{"type": "function", "function": object{"name": choice}}
	}
	return nil
}
