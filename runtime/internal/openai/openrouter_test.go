package openai_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/openai"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

func TestContractOfOpenRouter(t *testing.T) {
	use := func(kind provider.ChunkKind, id, name, args string) provider.StreamChunk {
		return provider.StreamChunk{Kind: kind, ToolUse: &provider.ToolUseChunk{CallID: id, Name: name, ArgsDelta: args}}
	}
	providertest.Run(t, providertest.Suite{
		New: func(t testing.TB, url string, client *http.Client) provider.Provider {
			p, err := openai.OpenRouter.New(converse.Config{
				BaseURL: url + "/api/v1", APIKey: providertest.Key, HTTP: client,
				Headers: map[string]string{"HTTP-Referer": "https://example.com", "X-Title": "Test"},
			})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		ContentType: "text/event-stream",
		Transcripts: []providertest.Transcript{{
			Name: "reasons and calls", File: "testdata/openrouter/tools.sse", Terminal: `"native_finish_reason":"STOP","logprobs":null}]}`,
			Header: http.Header{"X-Generation-Id": {"gen-1"}},
			Want: []provider.StreamChunk{
				{Kind: provider.ChunkReasoning, Text: "Two cities."},
				{Kind: provider.ChunkText, Text: "Let me look."},
				use(provider.ChunkToolUseStart, "tool_0_weather", "weather", ""),
				use(provider.ChunkToolUseDelta, "tool_0_weather", "", `{"city":"Köln"}`),
				use(provider.ChunkToolUseStart, "tool_1_weather", "weather", ""),
				use(provider.ChunkToolUseDelta, "tool_1_weather", "", `{"city":"東京"}`),
				use(provider.ChunkToolUseEnd, "tool_0_weather", "", ""),
				use(provider.ChunkToolUseEnd, "tool_1_weather", "", ""),
				{Kind: provider.ChunkUsage, Usage: &provider.Usage{InputTokens: 70, OutputTokens: 32, CacheReadTokens: 64, CacheCreateTokens: 6}},
				{Kind: provider.ChunkEnd, StopReason: "tool_calls", RequestID: "gen-1"},
			},
		}},
		Empty: empty,
		Failure: providertest.Failure{
			Body: `{"error":{"message":"Insufficient credits","code":402},"user_id":"user_1"}`, Want: "Insufficient credits (402)",
		},
		Broken: []providertest.Broken{{
			Name: "the vendor behind fails", Class: provider.ErrServer, Want: "Provider disconnected",
			Body: `data: {"id":"gen-1","object":"chat.completion.chunk","error":{"code":502,"message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}` + "\n\n",
		}},
		Golden:  "testdata/openrouter/request.golden",
		Headers: []string{"Authorization", "Http-Referer", "X-Title"},
		Params:  map[string]any{"provider": map[string]any{"order": []string{"Fireworks"}}, "reasoning": map[string]any{"effort": "low"}},
	})
}

func TestNewOpenRouter(t *testing.T) {
	if _, err := openai.OpenRouter.New(converse.Config{}); err == nil || !strings.Contains(err.Error(), "openrouter: no API key") {
		t.Errorf("without a key: %v", err)
	}
	p, err := openai.OpenRouter.New(converse.Config{APIKey: "k"})
	if want := (provider.Info{ID: "openrouter", APIVersion: "v1"}); err != nil || p.Info() != want {
		t.Errorf("got %v, %v", p, err)
	}
	p, err = openai.OpenRouter.New(converse.Config{BaseURL: "http://localhost:1/v1", ID: "gateway"})
	if err != nil || p.Info().ID != "gateway" {
		t.Errorf("a gateway without a key: %v, %v", p, err)
	}
}
