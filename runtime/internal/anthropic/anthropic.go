package anthropic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// New returns the provider. It fails without a key, or with a base URL that is
// not one.
func New(c converse.Config) (provider.Provider, error) {
	c, _, err := c.Complete(converse.Config{ID: "anthropic", BaseURL: "https://api.anthropic.com", APIVersion: "2023-06-01"})
	if err != nil {
		return nil, err
	}
	return &converse.API{
		Config: c, Name: "anthropic", Key: c.APIKey, Caches: true, Fault: fault,
		RequestID: func(h http.Header) string { return h.Get("Request-Id") },
		Translate: func(req *provider.Request) (*converse.Call, error) {
			body, betas, err := translate(req)
			header := http.Header{"Accept": {"application/json"}, "Anthropic-Version": {c.APIVersion}, "X-Api-Key": {c.APIKey}}
			if len(betas) > 0 {
				header["Anthropic-Beta"] = betas
			}
			return &converse.Call{URL: strings.TrimSuffix(c.BaseURL, "/") + "/v1/messages", Header: header, Body: body, Reader: &reader{}}, err
		},
	}, nil
}

// mostTokens replaces a MaxOutputTokens of zero, which the API does not accept: the model's
// maximum, or less. Thoughts are part of it, and their budget must be smaller.
func mostTokens(model string, thoughts int64) int64 {
	most := int64(4096)
	switch {
	case strings.Contains(model, "claude-3-5"):
		most = 8192
	case strings.Contains(model, "claude-3-7"), strings.Contains(model, "claude-") && !regexp.MustCompile(`claude-([123]\b|instant)`).MatchString(model):
		most = 32000
	}
	return max(most, thoughts+4096)
}

// object is a JSON object.
type object = map[string]any

// translate returns the body of a request, and the betas that it needs.
func translate(req *provider.Request) (text []byte, betas []string, err error) {
	if err := converse.Check(req); err != nil {
		return nil, nil, err
	}
	body := object{"model": req.Model, "stream": true}
	var p params
	err = converse.Params(req.Params, known, &p, false, func(name string, value json.RawMessage) {
		if slices.Contains(passed, name) {
			body[name] = value
		}
	})
	if err != nil {
		return nil, nil, err
	}
	messages, last := []object{}, object(nil)
	err = converse.EachTurn(req.Messages, blocks, func(role string, content []object) {
		messages = append(messages, object{"role": role, "content": content})
		last = content[len(content)-1] // no message of a turn is silent
	})
	if err != nil {
		return nil, nil, err
	}
	p.CacheMessages.put(last)
	body["messages"] = messages
	body["max_tokens"] = cmp.Or(int64(req.MaxOutputTokens), mostTokens(req.Model, p.Thinking.BudgetTokens))
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
	tools, err := converse.Declare(req.Tools, "input_schema", object{"type": "object"})
	if err != nil {
		return nil, nil, err
	}
	if n := len(tools); n > 0 {
		p.CacheTools.put(tools[n-1])
		body["tools"] = tools
	}
	if choice := choose(req.ToolChoice, p.SequentialUses); choice != nil {
		body["tool_choice"] = choice
	}
	text, err = display.JSON(body, "")
	return text, p.Betas, err
}

// choose translates a ToolChoice. Parallel use is a part of the choice, so
// restricting it requires one.
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

// blocks returns the blocks of one message, in the order that the API requires. It
// omits empty parts: the API refuses empty text.
func blocks(m provider.Message) (list []object, err error) {
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
		content := []object{}
		if r.Content != "" {
			content = append(content, object{"type": "text", "text": r.Content})
		}
		for _, image := range r.Images {
			source := object{"type": "base64", "media_type": image.Type, "data": image.Data}
			content = append(content, object{"type": "image", "source": source})
		}
		if len(content) > 0 {
			result["content"] = content
		}
		if r.IsError {
			result["is_error"] = true
		}
		list = append(list, result)
	}
	return list, nil
}

// passed are the options that are fields of the API's body.
var passed = []string{
	"container", "context_management", "inference_geo", "metadata", "output_config", "service_tier", "speed",
	"temperature", "thinking", "top_p",
}

// known are all options: those and the ones that the adapter reads.
var known = slices.Sorted(slices.Values(slices.Concat(passed, []string{"betas", "cache_messages", "cache_system", "cache_tools", "disable_parallel_tool_use"})))

// params are the options that the adapter reads.
type params struct {
	Betas          []string
	CacheMessages  cacheMark `json:"cache_messages"`
	CacheSystem    cacheMark `json:"cache_system"`
	CacheTools     cacheMark `json:"cache_tools"`
	SequentialUses *bool     `json:"disable_parallel_tool_use"`
	Thinking       struct {
		BudgetTokens int64 `json:"budget_tokens"`
	}
}

// cacheMark is a mark for the cache, with the time that it lives.
type cacheMark struct {
	set bool
	ttl string
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *cacheMark) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "false", "null":
	case "true":
		m.set = true
	case `"5m"`, `"1h"`:
		m.set, m.ttl = true, string(text[1:len(text)-1])
	default:
		return fmt.Errorf(`want true, "5m" or "1h", got %s`, text)
	}
	return nil
}

// put sets the mark on a block that can have one, which thoughts cannot.
func (m cacheMark) put(block object) {
	if !m.set || block["type"] == "thinking" || block["type"] == "redacted_thinking" {
		return
	}
	control := object{"type": "ephemeral"}
	if m.ttl != "" {
		control["ttl"] = m.ttl
	}
	block["cache_control"] = control
}
