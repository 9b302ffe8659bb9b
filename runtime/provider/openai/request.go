package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-host/starling/runtime/provider"
)

// chatRequest is the body of a request, but for the fields whose names depend on
// the server and the options of the caller.
type chatRequest struct {
	Model         string         `json:"model"`
	Messages      []chatMessage  `json:"messages"`
	Tools         []chatTool     `json:"tools,omitempty"`
	ToolChoice    any            `json:"tool_choice,omitempty"`
	Stop          []string       `json:"stop,omitempty"`
	TopK          *int           `json:"top_k,omitempty"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

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

type chatTool struct {
	Type     string         `json:"type"`
	Function chatDefinition `json:"function"`
}

type chatDefinition struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// encode returns the body for a request.
func (c *client) encode(req *provider.Request) ([]byte, error) {
	if req.Model == "" {
		return nil, errors.New("the request names no model")
	}
	if req.TopK != nil && !c.dialect.topK {
		return nil, errors.New("this server has no top_k: leave Request.TopK nil")
	}
	chat := chatRequest{Model: req.Model, Stop: req.StopSequences, TopK: req.TopK, Stream: true}
	if !c.dialect.uncounted {
		chat.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	var err error
	if chat.Messages, err = c.messages(req); err != nil {
		return nil, err
	}
	if chat.Tools, err = tools(req.Tools); err != nil {
		return nil, err
	}
	if chat.ToolChoice, err = toolChoice(req); err != nil {
		return nil, err
	}
	fields, err := c.params(req)
	if err != nil {
		return nil, err
	}
	return join(chat, fields)
}

// join appends fields to an object.
func join(object any, fields []field) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(object); err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - len("}\n"))
	for _, f := range fields {
		fmt.Fprintf(&b, ",%q:%s", f.name, f.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
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
		if m.ToolResult.IsError {
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

func tools(definitions []provider.ToolDefinition) ([]chatTool, error) {
	var list []chatTool
	for _, d := range definitions {
		if len(d.Schema) > 0 && !json.Valid(d.Schema) {
			return nil, fmt.Errorf("the schema of the tool %q is not JSON", d.Name)
		}
		list = append(list, chatTool{Type: "function", Function: chatDefinition{d.Name, d.Description, provider.ObjectSchema(d.Schema)}})
	}
	return list, nil
}

// toolChoice returns the choice in the words of this protocol, which wants none
// where there are no tools.
func toolChoice(req *provider.Request) (any, error) {
	switch choice := req.ToolChoice; {
	case choice == "", len(req.Tools) == 0 && (choice == "auto" || choice == "none"):
		return nil, nil
	case len(req.Tools) > 0 && choice == "any":
		return "required", nil
	case choice == "auto", choice == "none":
		return choice, nil
	case slices.ContainsFunc(req.Tools, func(d provider.ToolDefinition) bool { return d.Name == choice }):
		return map[string]any{"type": "function", "function": map[string]string{"name": choice}}, nil
	default:
		return nil, fmt.Errorf("the tool choice is %q, and there is no such tool", choice)
	}
}
