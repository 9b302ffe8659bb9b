package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
	"github.com/starling-host/starling/runtime/provider/internal/sse"
)

// Stream implements [provider.Provider].
func (c *client) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	body, err := c.encode(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.info.ID, err)
	}
	ids, err := converse.NewIDs(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.info.ID, err)
	}
	header := http.Header{"Accept": {"text/event-stream"}}
	c.authorise(header)
	return c.api.Ask(ctx, c.target(req.Model), header, body, &reader{calls: calls{ids: ids}})
}

// reader implements [converse.Reader].
type reader struct {
	calls  calls
	usage  provider.Usage // as it was last sent on
	finish string
	done   bool // "[DONE]" has come
}

// Complete implements [converse.Reader]. What breaks after "[DONE]" takes nothing
// away.
func (s *reader) Complete(bool) bool { return s.done }

// Event implements [converse.Reader].
func (s *reader) Event(m *converse.Message, data sse.Event) error {
	if string(bytes.TrimSpace(data.Data)) == "[DONE]" {
		s.done = true
		if m.StopReason = s.finish; s.finish == "" {
			return converse.Malformed("it ends without a finish_reason")
		}
	}
	if s.done {
		return nil
	}
	var ev event
	err := converse.Decode(data.Data, &ev)
	if err != nil || ev.Choices == nil || !isNull(ev.Error) {
		if f := parseFault(data.Data); f != nil {
			return &converse.Fault{Status: f.status(), Title: "the server broke off", Message: f.text()}
		}
	}
	if err != nil {
		return err
	}
	for _, c := range ev.Choices {
		if err := s.choose(m, c); err != nil {
			return err
		}
	}
	s.count(m, ev.Groq.Usage)
	s.count(m, ev.Usage)
	return nil
}

// event is one event of the stream.
type event struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Groq    struct {
		Usage *usage `json:"usage"`
	} `json:"x_groq"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        delta  `json:"delta"`
	FinishReason string `json:"finish_reason"`
}

type delta struct {
	Content          string      `json:"content"`
	Refusal          string      `json:"refusal"`
	ReasoningContent string      `json:"reasoning_content"` // DeepSeek, vLLM
	Reasoning        string      `json:"reasoning"`         // OpenRouter, Groq; some send both
	ToolCalls        []callDelta `json:"tool_calls"`
}

func (s *reader) choose(m *converse.Message, c choice) error {
	if c.Index != 0 {
		return converse.Malformed("it has a choice %d, and one was asked for", c.Index)
	}
	say(m, provider.ChunkReasoning, cmp.Or(c.Delta.ReasoningContent, c.Delta.Reasoning))
	say(m, provider.ChunkText, c.Delta.Content)
	say(m, provider.ChunkText, c.Delta.Refusal)
	for _, d := range c.Delta.ToolCalls {
		if s.finish != "" {
			return converse.Malformed("a tool call goes on after the finish_reason")
		}
		if err := s.calls.take(d); err != nil {
			return err
		}
	}
	if c.FinishReason != "" && s.finish == "" { // OpenRouter says it again beside the counts
		s.finish = c.FinishReason
		if err := s.calls.close(); err != nil {
			return err
		}
	}
	for _, chunk := range s.calls.chunks() {
		m.Push(chunk)
	}
	return nil
}

func say(m *converse.Message, kind provider.ChunkKind, text string) {
	if text != "" {
		m.Push(provider.StreamChunk{Kind: kind, Text: text})
	}
}

// usage are counts of tokens in the words of several vendors.
type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	PromptDetails    struct {
		CachedTokens     int64 `json:"cached_tokens"`
		CacheWriteTokens int64 `json:"cache_write_tokens"` // OpenRouter
	} `json:"prompt_tokens_details"`
	CacheHitTokens int64 `json:"prompt_cache_hit_tokens"` // DeepSeek
}

// count sends on counts that are new. Some servers repeat them with every event.
func (s *reader) count(m *converse.Message, u *usage) {
	if u == nil {
		return
	}
	now := provider.Usage{
		InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens,
		CacheReadTokens: max(u.PromptDetails.CachedTokens, u.CacheHitTokens), CacheCreateTokens: u.PromptDetails.CacheWriteTokens,
	}
	if now != s.usage {
		s.usage = now
		m.Usage(now)
	}
}
