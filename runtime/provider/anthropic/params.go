package anthropic

import (
	"fmt"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// passed are the options that are fields of the API's body.
var passed = []string{
	"container", "context_management", "inference_geo", "metadata", "output_config", "service_tier", "speed",
	"temperature", "thinking", "top_p",
}

// hints are the options that are not.
var hints = []string{"betas", "cache_messages", "cache_system", "cache_tools", "disable_parallel_tool_use"}

// params are the options of a request.
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

// parseParams returns the options that the adapter reads, and sets those that are
// passed on in the body.
func parseParams(raw canon.Raw, body object) (*params, error) {
	known := slices.Sorted(slices.Values(slices.Concat(passed, hints)))
	values, err := converse.Params(raw, known)
	if err != nil {
		return nil, err
	}
	p := &params{}
	for _, key := range known {
		value, ok := values[key]
		if !ok {
			continue
		}
		if err := converse.Option(key, value, p, false); err != nil {
			return nil, err
		}
		if slices.Contains(passed, key) {
			body[key] = value
		}
	}
	return p, nil
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
