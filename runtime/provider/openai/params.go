package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
)

// standard are the fields of a request that OpenAI has and [provider.Request] has
// no place for.
var standard = []string{
	"frequency_penalty", "logit_bias", "metadata", "parallel_tool_calls", "prediction", "presence_penalty", "prompt_cache_key",
	"prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "store",
	"temperature", "top_p", "user", "verbosity", "web_search_options",
}

// extras are fields of other servers: Groq, Together, OpenRouter, vLLM, DeepSeek
// and those that copy them.
var extras = []string{
	"add_generation_prompt", "allowed_token_ids", "bad_words", "cache_salt", "chat_template_kwargs", "citation_options",
	"compound_custom", "context_length_exceeded_behavior", "continue_final_message", "disable_tool_validation", "documents",
	"enable_thinking", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "ignore_eos", "include_reasoning",
	"length_penalty", "min_p", "min_tokens", "models", "plugins", "priority", "provider", "reasoning", "reasoning_format",
	"repetition_penalty", "route", "safety_model", "search_settings", "session_id", "skip_special_tokens", "stop_token_ids",
	"structured_outputs", "thinking", "top_a", "transforms", "truncate_prompt_tokens", "usage",
}

// elsewhere are fields that the adapter sets, and what it sets them from.
var elsewhere = map[string]string{
	"model": "Request.Model", "messages": "Request.Messages", "tools": "Request.Tools", "tool_choice": "Request.ToolChoice",
	"stop": "Request.StopSequences", "top_k": "Request.TopK", "max_tokens": "Request.MaxOutputTokens",
	"max_completion_tokens": "Request.MaxOutputTokens",
}

// field is a member of the body.
type field struct {
	name  string
	value json.RawMessage
}

// params returns the fields whose names depend on the server, and then the
// options of the request in the order of their names.
func (c *client) params(req *provider.Request) ([]field, error) {
	var list []field
	if req.MaxOutputTokens < 0 {
		return nil, fmt.Errorf("Request.MaxOutputTokens is %d", req.MaxOutputTokens)
	}
	if req.MaxOutputTokens > 0 {
		list = append(list, field{c.dialect.maxTokens, strconv.AppendInt(nil, int64(req.MaxOutputTokens), 10)})
	}
	if len(req.Params) == 0 {
		return list, nil
	}
	var options map[string]canon.Raw
	if err := canon.Unmarshal(req.Params, &options); err != nil {
		return nil, fmt.Errorf("Request.Params is not a CBOR map of options: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if err := c.dialect.knows(name); err != nil {
			return nil, err
		}
		value, err := canon.ToJSON(options[name])
		if err != nil {
			return nil, fmt.Errorf("the option %q: %w", name, err)
		}
		list = append(list, field{name, value})
	}
	return list, nil
}

// knows returns an error for an option that the server has no use for.
func (d dialect) knows(name string) error {
	known := standard
	if d.extras {
		known = slices.Sorted(slices.Values(slices.Concat(standard, extras)))
	}
	if slices.Contains(known, name) {
		return nil
	}
	if place, ok := elsewhere[name]; ok {
		return fmt.Errorf("the option %q is set by %s", name, place)
	}
	return fmt.Errorf("no option %q: there are %s", name, strings.Join(known, ", "))
}
