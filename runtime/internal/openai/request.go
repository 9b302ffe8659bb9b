package openai

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// object is a JSON object.
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

// translate implements [converse.API].
func (c *client) translate(req *provider.Request) (*converse.Call, error) {
	body, err := c.encode(req)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Accept": {"text/event-stream"}}
	switch {
	case c.APIKey == "":
	case c.dialect.azure:
		header.Set("Api-Key", c.APIKey)
	default:
		header.Set("Authorization", "Bearer "+c.APIKey)
	}
	for name, value := range c.Headers {
		if value != "" {
			header.Set(name, value)
		}
	}
	address := &c.endpoint
	if address.RawQuery != "" {
		address = address.JoinPath("deployments", url.PathEscape(req.Model), "chat/completions")
	}
	ids, err := converse.NewIDs(req)
	return &converse.Call{URL: address.String(), Header: header, Body: body, Reader: &reader{calls: calls{ids: ids}}}, err
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
	return display.JSON(body, "")
}

func (c *client) messages(req *provider.Request) ([]any, error) {
	list, pictures := []any{}, []object(nil)
	if req.SystemPrompt != "" {
		list = append(list, chatMessage{Role: "system", Content: &req.SystemPrompt})
	}
	for i := range req.Messages {
		m, err := c.message(&req.Messages[i])
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		list = append(list, m)
		// A result of a tool is a text here, so images come from the user, after all results.
		if result := req.Messages[i].ToolResult; result != nil && c.dialect.images {
			for n, image := range result.Images {
				url := "data:" + image.Type + ";base64," + base64.StdEncoding.EncodeToString(image.Data)
				pictures = append(pictures, object{"type": "text", "text": fmt.Sprintf("Image %d of the result of the call %s:", n+1, result.CallID)},
					object{"type": "image_url", "image_url": object{"url": url}})
			}
		}
		if last := i == len(req.Messages)-1 || req.Messages[i+1].Role != provider.RoleTool; last && len(pictures) > 0 {
			list, pictures = append(list, object{"role": provider.RoleUser, "content": pictures}), nil
		}
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
			chat.ReasoningContent = new(string) // DeepSeek requires it beside calls, even if empty
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

// setTools sets the tools, and the tool choice in this protocol's words, which must
// be absent without tools.
func setTools(req *provider.Request, body object) error {
	functions, err := converse.Declare(req.Tools, "parameters", nil)
	if err != nil {
		return err
	}
	tools := lists.Map(functions, func(function object) object { return object{"type": "function", "function": function} })
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

// standard are the fields of a request that OpenAI has and [provider.Request] has
// no place for.
var standard = []string{
	"frequency_penalty", "logit_bias", "metadata", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key",
	"prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "store",
	"temperature", "top_p", "user", "verbosity", "web_search_options",
}

// extras are fields of other servers: Groq, Together, OpenRouter, vLLM, DeepSeek
// and their copies.
var extras = []string{
	"add_generation_prompt", "allowed_token_ids", "bad_words", "cache_salt", "chat_template_kwargs", "citation_options",
	"compound_custom", "context_length_exceeded_behavior", "continue_final_message", "disable_tool_validation", "documents",
	"enable_thinking", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "ignore_eos", "include_reasoning",
	"length_penalty", "min_p", "min_tokens", "models", "plugins", "priority", "provider", "reasoning", "reasoning_format",
	"repetition_penalty", "route", "safety_model", "search_settings", "session_id", "skip_special_tokens", "stop_token_ids",
	"structured_outputs", "thinking", "top_a", "transforms", "truncate_prompt_tokens", "usage",
}

// elsewhere maps fields that the adapter sets to their sources.
var elsewhere = map[string]string{
	"model": "Request.Model", "messages": "Request.Messages", "tools": "Request.Tools", "tool_choice": "Request.ToolChoice",
	"stop": "Request.StopSequences", "top_k": "Request.TopK", "max_tokens": "Request.MaxOutputTokens",
	"max_completion_tokens": "Request.MaxOutputTokens",
}

// setParams sets the options of a request.
func (d dialect) setParams(raw canon.Raw, body object) error {
	known := standard
	if d.extras {
		known = slices.Sorted(slices.Values(slices.Concat(standard, extras)))
	}
	var misplaced error
	err := converse.Params(raw, slices.Concat(known, slices.Sorted(maps.Keys(elsewhere))), nil, false, func(name string, value json.RawMessage) {
		if place, ok := elsewhere[name]; ok {
			misplaced = cmp.Or(misplaced, fmt.Errorf("the option %q is set by %s", name, place))
		}
		body[name] = value
	})
	return cmp.Or(err, misplaced)
}
