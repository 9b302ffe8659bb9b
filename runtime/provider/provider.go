package provider

import (
	"context"
	"strings"

	"github.com/starling-host/starling/eventlog/event"
)

// Provider is a model behind an API. Implementations must be safe for concurrent
// use.
type Provider interface {
	// Info names the provider in the log.
	Info() Info

	// Stream sends the request and returns when the response has begun. Errors
	// wrap a class of this package where one applies. The stream ends with ctx.
	Stream(ctx context.Context, req *Request) (EventStream, error)
}

// Info identifies a provider. A run is replayed with the same one.
type Info struct {
	ID         string // such as "openai"
	APIVersion string // such as "v1"
}

// Capabler is a Provider that reports what it supports.
type Capabler interface {
	Provider

	Capabilities() Capabilities
}

// Capabilities are the features that not every provider has.
type Capabilities struct {
	Tools         bool
	ToolChoice    bool // Request.ToolChoice other than "" and "auto"
	Reasoning     bool // emits ChunkReasoning
	StopSequences bool
	CacheControl  bool // caches prompts at marks that the request sets
	RequestID     bool // ChunkEnd has a RequestID
}

// EventStream is a response in progress. It is used from one goroutine, except
// for Close.
type EventStream interface {
	// Next returns the next chunk. After ChunkEnd it returns io.EOF. Any other
	// error ends the stream and wraps a class of this package where one applies.
	Next(ctx context.Context) (StreamChunk, error)

	// Close ends the response. It may be called more than once.
	Close() error
}

// ChunkKind is the type of a StreamChunk.
type ChunkKind uint8

// The kinds of chunks. A tool use is one start, any number of deltas and one
// end; several may be open at a time.
const (
	ChunkText             ChunkKind = iota + 1 // Text
	ChunkReasoning                             // Text; Signature with the last piece of a block, if it is signed
	ChunkRedactedThinking                      // Text: opaque to everyone but the provider
	ChunkToolUseStart                          // ToolUse.CallID and Name
	ChunkToolUseDelta                          // ToolUse.CallID and ArgsDelta
	ChunkToolUseEnd                            // ToolUse.CallID
	ChunkUsage                                 // Usage: the counts of the response so far
	ChunkEnd                                   // StopReason, RawResponseHash, RequestID
)

var chunkNames = [...]string{"", "text", "reasoning", "redacted thinking", "tool use start", "tool use delta", "tool use end", "usage", "end"}

// String returns the kind in words.
func (k ChunkKind) String() string {
	if int(k) < len(chunkNames) && k > 0 {
		return chunkNames[k]
	}
	return "unknown"
}

// StreamChunk is one piece of a response. Which fields count depends on Kind.
type StreamChunk struct {
	Kind      ChunkKind
	Text      string
	Signature []byte
	ToolUse   *ToolUseChunk
	Usage     *Usage

	// StopReason is the reason in the provider's own word.
	StopReason string
	// RawResponseHash is the BLAKE3-256 of the body of the response as it came
	// over the wire, see [HashBodies]; nil if the provider does not know it.
	RawResponseHash []byte
	// RequestID is the provider's name for the exchange, for asking its support.
	RequestID string
}

// ToolUseChunk is a piece of a tool use.
type ToolUseChunk struct {
	CallID    string // the provider's, unique in the response
	Name      string
	ArgsDelta string // the pieces together are a JSON document, if the model kept to it
}

// Usage counts tokens of a response so far. A later one replaces an earlier one.
type Usage struct {
	InputTokens       int64 // including tokens read from and written to a cache
	OutputTokens      int64
	CacheReadTokens   int64
	CacheCreateTokens int64
}

// Response is an answer that is complete.
type Response struct {
	TurnID          string // of the log
	Text            string
	Reasoning       []Reasoning
	ToolUses        []ToolUse
	StopReason      string // in the provider's own word
	Outcome         string // its meaning, see event.AssistantMessageCompleted; empty for a whole answer
	Usage           Usage
	CostUSD         float64 // zero if the model has no known price
	RawResponseHash []byte  // see StreamChunk
	RequestID       string
}

// AnswerBroken is the outcome of an answer that the provider could not finish, or could not
// read. No log has such an answer.
const AnswerBroken = "broken"

// outcomes maps the stop reasons of Anthropic, Bedrock, Gemini and servers with
// OpenAI's protocol that mean an incomplete answer.
var outcomes = map[string]string{
	"pause_turn": event.AnswerPaused,

	"max_tokens": event.ErrorCut, "model_context_window_exceeded": event.ErrorCut, "length": event.ErrorCut,
	"model_length": event.ErrorCut, "MAX_TOKENS": event.ErrorCut,

	"refusal": event.ErrorRefused, "content_filter": event.ErrorRefused, "content_filtered": event.ErrorRefused,
	"guardrail_intervened": event.ErrorRefused,

	"error": AnswerBroken, "abort": AnswerBroken, "insufficient_system_resource": AnswerBroken,
	"malformed_model_output": AnswerBroken, "malformed_tool_use": AnswerBroken,
	"MALFORMED_FUNCTION_CALL": AnswerBroken, "MALFORMED_RESPONSE": AnswerBroken, "UNEXPECTED_TOOL_CALL": AnswerBroken,
	"TOO_MANY_TOOL_CALLS": AnswerBroken, "MISSING_THOUGHT_SIGNATURE": AnswerBroken, "OTHER": AnswerBroken,

	"STOP": "", "COMPLETE": "",
}

// OutcomeOf returns the outcome of an answer with a [StreamChunk.StopReason], which is empty for a
// complete one. An unknown reason means a complete answer, unless it is in capitals: then it is
// Gemini's, whose list of reasons to withhold an answer keeps growing.
func OutcomeOf(reason string) string {
	outcome, known := outcomes[reason]
	if !known && strings.ContainsAny(reason, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") && strings.ToUpper(reason) == reason {
		return event.ErrorRefused
	}
	return outcome
}

// Message returns the response as the next entry of the conversation.
func (r *Response) Message() Message {
	return Message{Role: RoleAssistant, Content: r.Text, ToolUses: r.ToolUses, Reasoning: r.Reasoning}
}
