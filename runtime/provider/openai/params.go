package openai

import (
	"fmt"
	"maps"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
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

// setParams sets the options of a request.
func (d dialect) setParams(raw canon.Raw, body object) error {
	known := standard
	if d.extras {
		known = slices.Sorted(slices.Values(slices.Concat(standard, extras)))
	}
	values, err := converse.Params(raw, slices.Concat(known, slices.Sorted(maps.Keys(elsewhere))))
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if place, ok := elsewhere[name]; ok {
			return fmt.Errorf("the option %q is set by %s", name, place)
		}
		body[name] = values[name]
	}
	return nil
}
