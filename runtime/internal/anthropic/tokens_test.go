package anthropic

import (
	"encoding/json"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
)

// TestMaxTokensWithoutAWish: the API requires a number, and the answer ends there.
func TestMaxTokensWithoutAWish(t *testing.T) {
	for _, c := range []struct {
		model    string
		wish     int
		thoughts int64
		want     int64
	}{
		{"claude-opus-4-1", 0, 0, 32000}, {"claude-sonnet-4-5", 0, 10000, 32000}, {"claude-sonnet-4-5", 0, 50000, 54096}, {"claude-3-7-sonnet-latest", 0, 0, 32000},
		{"claude-3-5-haiku-latest", 0, 0, 8192}, {"claude-3-opus-20240229", 0, 0, 4096}, {"claude-2.1", 0, 0, 4096}, {"another", 0, 0, 4096}, {"claude-haiku-4-5", 7, 0, 7},
	} {
		req := &provider.Request{Model: c.model, MaxOutputTokens: c.wish, Messages: []provider.Message{{Role: provider.RoleUser, Content: "hi"}}}
		if c.thoughts > 0 {
			var err error
			if req.Params, err = canon.Marshal(map[string]any{"thinking": map[string]any{"type": "enabled", "budget_tokens": c.thoughts}}); err != nil {
				t.Fatal(err)
			}
		}
		text, _, err := translate(req)
		var body struct {
			MaxTokens int64 `json:"max_tokens"`
		}
		if err != nil || json.Unmarshal(text, &body) != nil || body.MaxTokens != c.want {
			t.Errorf("%s: max_tokens is %d (%v), want %d", c.model, body.MaxTokens, err, c.want)
		}
	}
}
