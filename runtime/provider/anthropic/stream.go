package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// source implements [converse.Source].
type source struct {
	stream    *ssestream.Stream[sdk.MessageStreamEventUnion]
	requestID string
	stopped   bool // message_stop has come
	counts    counts
}

// counts are those so far. The API counts input without what the cache had.
type counts struct {
	Input       int64 `json:"input_tokens"`
	Output      int64 `json:"output_tokens"`
	CacheRead   int64 `json:"cache_read_input_tokens"`
	CacheCreate int64 `json:"cache_creation_input_tokens"`
}

// Close implements [converse.Source].
func (s *source) Close() error { return s.stream.Close() }

// Read implements [converse.Source].
func (s *source) Read(m *converse.Message) error {
	if s.stream.Next() {
		return s.event(m, s.stream.Current())
	}
	err := s.stream.Err()
	_, said := errors.AsType[*sdk.Error](err)
	switch {
	case s.stopped: // what breaks now takes nothing away
		m.RequestID = s.requestID
		return io.EOF
	case err == nil:
		return fmt.Errorf("the response ended before message_stop: %w", io.ErrUnexpectedEOF)
	case said || provider.Transient(err):
		return err
	}
	return converse.Malformed("%w", err)
}

func (s *source) event(m *converse.Message, ev sdk.MessageStreamEventUnion) error {
	if s.stopped {
		return converse.Malformed("%s after message_stop", ev.Type)
	}
	switch ev.Type {
	case "message_start":
		return s.count(m, ev.Message.Usage.RawJSON())
	case "content_block_start", "content_block_delta", "content_block_stop":
		if !ev.JSON.Index.Valid() {
			return converse.Malformed("%s without an index", ev.Type)
		}
		return block(m, ev)
	case "message_delta":
		m.StopReason = string(ev.Delta.StopReason)
		return s.count(m, ev.Usage.RawJSON())
	case "message_stop":
		s.stopped = true
	}
	return nil
}

// count takes the counts of an event into account. What it leaves out or sets to
// null is as before.
func (s *source) count(m *converse.Message, text string) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &s.counts); err != nil {
		return converse.Malformed("usage: %w", err)
	}
	m.Usage(provider.Usage{
		InputTokens:  s.counts.Input + s.counts.CacheRead + s.counts.CacheCreate,
		OutputTokens: s.counts.Output, CacheReadTokens: s.counts.CacheRead, CacheCreateTokens: s.counts.CacheCreate,
	})
	return nil
}

func block(m *converse.Message, ev sdk.MessageStreamEventUnion) error {
	switch ev.Type {
	case "content_block_start":
		return start(m, ev.Index, ev.ContentBlock)
	case "content_block_delta":
		return delta(m, ev.Index, ev.Delta)
	default:
		return m.Close(ev.Index)
	}
}

// start opens a block with what it begins with.
func start(m *converse.Message, index int64, b sdk.ContentBlockStartEventContentBlockUnion) error {
	switch b.Type {
	case "text":
		return begin(m, index, provider.ChunkText, b.Text)
	case "thinking":
		if err := begin(m, index, provider.ChunkReasoning, b.Thinking); err != nil {
			return err
		}
		return m.Sign(index, b.Signature)
	case "redacted_thinking":
		return begin(m, index, provider.ChunkRedactedThinking, b.Data)
	case "tool_use":
		return m.OpenToolUse(index, b.ID, b.Name, b.JSON.Input.Raw())
	}
	return fmt.Errorf("a block of the type %q has no place in a Request, so it cannot be received", b.Type)
}

func begin(m *converse.Message, index int64, kind provider.ChunkKind, text string) error {
	if err := m.Open(index, kind); err != nil {
		return err
	}
	return m.Delta(index, kind, text)
}

func delta(m *converse.Message, index int64, d sdk.MessageStreamEventUnionDelta) error {
	switch d.Type {
	case "text_delta":
		return m.Delta(index, provider.ChunkText, d.Text)
	case "thinking_delta":
		return m.Delta(index, provider.ChunkReasoning, d.Thinking)
	case "signature_delta":
		return m.Sign(index, d.Signature)
	case "input_json_delta":
		return m.Delta(index, provider.ChunkToolUseStart, d.PartialJSON)
	}
	return fmt.Errorf("a delta of the type %q has no place in a Request, so it cannot be received", d.Type)
}
