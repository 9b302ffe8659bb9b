package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
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

	fields []option.RequestOption // sets those that are passed
}

func parseParams(raw canon.Raw) (*params, error) {
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
		if err := json.Unmarshal(fmt.Appendf(nil, "{%q:%s}", key, value), p); err != nil {
			return nil, fmt.Errorf("params: option %q: %w", key, err)
		}
		if slices.Contains(passed, key) {
			p.fields = append(p.fields, option.WithJSONSet(key, value))
		}
	}
	for _, beta := range p.Betas {
		p.fields = append(p.fields, option.WithHeaderAdd("anthropic-beta", beta))
	}
	return p, nil
}

// cacheMark is a mark for the cache, with the time that it lives.
type cacheMark struct {
	set bool
	ttl sdk.CacheControlEphemeralTTL
}

// UnmarshalJSON implements [json.Unmarshaler].
func (m *cacheMark) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "false", "null":
	case "true":
		m.set = true
	case `"5m"`, `"1h"`:
		m.set, m.ttl = true, sdk.CacheControlEphemeralTTL(text[1:len(text)-1])
	default:
		return fmt.Errorf(`want true, "5m" or "1h", got %s`, text)
	}
	return nil
}

// put sets the mark on a block. There is none to set it on if the block is nil.
func (m cacheMark) put(block *sdk.CacheControlEphemeralParam) {
	if m.set && block != nil {
		*block = sdk.NewCacheControlEphemeralParam()
		block.TTL = m.ttl
	}
}
