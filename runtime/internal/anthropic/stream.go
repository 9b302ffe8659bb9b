package anthropic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// reader implements [converse.Reader].
type reader struct {
	stopped bool // message_stop has come
	counts  counts
}

// counts are the counts so far. The API counts input without the cached part.
type counts struct {
	Input       int64 `json:"input_tokens"`
	Output      int64 `json:"output_tokens"`
	CacheRead   int64 `json:"cache_read_input_tokens"`
	CacheCreate int64 `json:"cache_creation_input_tokens"`
}

// event is any event of the API.
type event struct {
	Type    string `json:"type"`
	Index   *int64 `json:"index"`
	Message struct {
		Usage json.RawMessage `json:"usage"`
	} `json:"message"`
	Usage json.RawMessage `json:"usage"`
	Block struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
	} `json:"content_block"`
	Delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
}

// Complete implements [converse.Reader]. A stream that breaks after message_stop is complete.
func (r *reader) Complete(bool) bool { return r.stopped }

// Event implements [converse.Reader].
func (r *reader) Event(m *converse.Message, ev converse.ServerEvent) error {
	switch {
	case ev.Name == "", ev.Name == "ping", len(ev.Data) == 0:
		return nil
	case ev.Name == "error" && r.stopped:
		return nil
	case ev.Name == "error":
		f := cmp.Or(fault(0, nil, ev.Data), &converse.Fault{Message: string(ev.Data)})
		f.Status = cmp.Or(statuses[f.Title], http.StatusInternalServerError)
		return f
	case r.stopped:
		return converse.Malformed("an event after message_stop")
	}
	var e event
	if err := converse.Decode(ev.Data, &e); err != nil {
		return err
	}
	switch e.Type {
	case "message_start":
		return r.count(m, e.Message.Usage)
	case "message_delta":
		m.StopReason = e.Delta.StopReason
		return r.count(m, e.Usage)
	case "message_stop":
		r.stopped = true
	case "content_block_start", "content_block_delta", "content_block_stop":
		switch {
		case e.Index == nil:
			return converse.Malformed("%s without an index", e.Type)
		case e.Type == "content_block_start":
			return start(m, *e.Index, &e)
		case e.Type == "content_block_delta":
			return delta(m, *e.Index, &e)
		}
		return m.Close(*e.Index)
	}
	return nil
}

// count takes the counts of an event into account. Missing and null counts stay
// as before.
func (r *reader) count(m *converse.Message, usage json.RawMessage) error {
	if len(usage) == 0 {
		return nil
	}
	if err := converse.Decode(usage, &r.counts); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	m.Usage(provider.Usage{
		InputTokens:  r.counts.Input + r.counts.CacheRead + r.counts.CacheCreate,
		OutputTokens: r.counts.Output, CacheReadTokens: r.counts.CacheRead, CacheCreateTokens: r.counts.CacheCreate,
	})
	return nil
}

// start opens a block with its initial content.
func start(m *converse.Message, index int64, e *event) error {
	kind, text := provider.ChunkText, e.Block.Text
	switch e.Block.Type {
	case "text":
	case "thinking":
		kind, text = provider.ChunkReasoning, e.Block.Thinking
	case "redacted_thinking":
		kind, text = provider.ChunkRedactedThinking, e.Block.Data
	case "tool_use":
		return m.OpenToolUse(index, e.Block.ID, e.Block.Name, string(e.Block.Input))
	default:
		return fmt.Errorf("a block of the type %q has no place in a Request, so it cannot be received", e.Block.Type)
	}
	if err := m.Open(index, kind); err != nil {
		return err
	}
	if err := m.Delta(index, kind, text); err != nil || kind != provider.ChunkReasoning {
		return err
	}
	return m.Sign(index, e.Block.Signature)
}

func delta(m *converse.Message, index int64, e *event) error {
	switch e.Delta.Type {
	case "text_delta":
		return m.Delta(index, provider.ChunkText, e.Delta.Text)
	case "thinking_delta":
		return m.Delta(index, provider.ChunkReasoning, e.Delta.Thinking)
	case "signature_delta":
		return m.Sign(index, e.Delta.Signature)
	case "input_json_delta":
		return m.Delta(index, provider.ChunkToolUseStart, e.Delta.PartialJSON)
	}
	return fmt.Errorf("a delta of the type %q has no place in a Request, so it cannot be received", e.Delta.Type)
}

// statuses maps the API's error types to their documented statuses. In a stream
// the status of the response is always 200.
var statuses = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"billing_error":         http.StatusPaymentRequired,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"rate_limit_error":      http.StatusTooManyRequests,
	"api_error":             http.StatusInternalServerError,
	"timeout_error":         http.StatusGatewayTimeout,
	"overloaded_error":      529,
}

// fault reads an error document. The status of a response is more specific than its type.
func fault(status int, _ http.Header, body []byte) *converse.Fault {
	var said struct {
		Error struct{ Type, Message string }
	}
	if json.Unmarshal(body, &said) != nil || said.Error.Message == "" {
		return nil
	}
	return &converse.Fault{Status: status, Title: said.Error.Type, Message: said.Error.Message}
}
