package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// reader implements [converse.Reader].
type reader struct {
	calls   calls
	finish  string
	refuses bool // the model explains why it does not answer; the finish_reason is still "stop"
	done    bool // "[DONE]" has come
}

// Complete implements [converse.Reader]. A stream that breaks after "[DONE]" is complete. Some
// servers omit it and end with the finish_reason.
func (s *reader) Complete(cleanly bool) bool { return s.done || cleanly && s.finish != "" }

// Event implements [converse.Reader].
func (s *reader) Event(m *converse.Message, data converse.ServerEvent) error {
	if string(bytes.TrimSpace(data.Data)) == "[DONE]" {
		s.done = true
		if s.finish == "" {
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
	ev.Groq.Usage.count(m)
	ev.Usage.count(m)
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
	s.refuses = s.refuses || c.Delta.Refusal != ""
	for _, d := range c.Delta.ToolCalls {
		if s.finish != "" {
			return converse.Malformed("a tool call goes on after the finish_reason")
		}
		if err := s.calls.take(m, d); err != nil {
			return err
		}
	}
	if c.FinishReason != "" && s.finish == "" { // OpenRouter repeats it beside the counts
		s.finish = c.FinishReason
		if m.StopReason = s.finish; s.refuses && s.finish == "stop" {
			m.StopReason = "refusal"
		}
		return s.calls.close(m)
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

// count sends on counts that are new. The counts may be nil.
func (u *usage) count(m *converse.Message) {
	if u == nil {
		return
	}
	m.NewUsage(provider.Usage{
		InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens,
		CacheReadTokens: max(u.PromptDetails.CachedTokens, u.CacheHitTokens), CacheCreateTokens: u.PromptDetails.CacheWriteTokens,
	})
}

// refusal reads the body of an error response, which may have the status 200.
func refusal(status int, _ http.Header, body []byte) *converse.Fault {
	f := parseFault(body)
	switch {
	case f == nil:
		return nil
	case status != http.StatusOK:
		return &converse.Fault{Status: status, Message: f.text()}
	}
	return &converse.Fault{Status: cmp.Or(f.status(), status), Message: f.text()}
}

// fault is the error object of this protocol.
type fault struct {
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Param   string          `json:"param"`
	Code    json.RawMessage `json:"code"` // a word or a number
}

// parseFault returns the error that a body or an event is, or nil. Servers put
// it into a member "error", as an object or as a text; FastAPI has "detail"; older
// versions of vLLM send the object itself.
func parseFault(body []byte) *fault {
	var envelope struct {
		Object string          `json:"object"`
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &envelope) != nil {
		return nil
	}
	inner := envelope.Error
	if isNull(inner) {
		inner = envelope.Detail
	}
	if isNull(inner) && envelope.Object == "error" {
		inner = body
	}
	if isNull(inner) {
		return nil
	}
	var f fault
	if json.Unmarshal(inner, &f) == nil && f.Message != "" {
		return &f
	}
	var text string
	if json.Unmarshal(inner, &text) == nil {
		return &fault{Message: text}
	}
	return &fault{Message: string(inner)}
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// text is the message with the words that the vendor's documentation is sorted
// by.
func (f *fault) text() string {
	notes := slices.DeleteFunc([]string{f.Type, f.code(), f.Param}, func(note string) bool { return note == "" })
	if len(notes) == 0 {
		return f.Message
	}
	return fmt.Sprintf("%s (%s)", f.Message, strings.Join(notes, ", "))
}

func (f *fault) code() string {
	if isNull(f.Code) {
		return ""
	}
	return strings.Trim(string(f.Code), `"`)
}

// status is the HTTP status that an error in a stream would have had, or 0.
func (f *fault) status() int {
	if n, err := strconv.Atoi(f.code()); err == nil && n >= 400 && n <= 599 {
		return n
	}
	for _, word := range []string{f.code(), f.Type} {
		switch word {
		case "rate_limit_exceeded", "rate_limit_error", "insufficient_quota", "tokens", "requests":
			return http.StatusTooManyRequests
		case "invalid_api_key", "authentication_error", "permission_error":
			return http.StatusUnauthorized
		case "server_error", "internal_error", "internal_server_error", "InternalServerError", "overloaded_error", "service_unavailable":
			return http.StatusInternalServerError
		case "invalid_request_error", "BadRequestError":
			return http.StatusBadRequest
		}
	}
	return 0
}

const (
	maxCalls = 1024     // in a response
	maxHeld  = 16 << 20 // bytes of arguments of a call that has no id yet
)

// callDelta is a piece of a tool call.
type callDelta struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
}

// arguments are a text that should be JSON, or the JSON itself, which some
// servers send in its place.
type arguments string

// UnmarshalJSON implements [json.Unmarshaler].
func (a *arguments) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, (*string)(a))
	}
	if string(b) != "null" {
		*a = arguments(b)
	}
	return nil
}

// call is a tool call in progress.
type call struct {
	index  *int
	id     string // the server's, "" until it comes
	name   string
	args   []byte // not yet sent on
	callID string // as it was sent on, "" before that
}

// calls finds the call that a piece belongs to:
//
//   - The protocol names it by its index. A piece with a name and an id of its own
//     begins a call even if the index is that of another: Ollama gives every call
//     index 0. So does a piece with a name when the other call has no id and is
//     complete.
//   - Without an index it is the call with the piece's id. Any other piece with a
//     name begins a call, and a piece without a name continues the last.
//
// A call is sent on once its name and its id are known. At the end, a call without
// an id gets one, and so does a call with another call's id.
type calls struct {
	list []*call
	ids  *converse.IDs
}

// take takes a piece into account.
func (c *calls) take(m *converse.Message, d callDelta) error {
	current := c.find(d)
	if current == nil {
		if len(c.list) == maxCalls {
			return fmt.Errorf("the response has more than %d tool calls", maxCalls)
		}
		current = &call{index: d.Index}
		c.list = append(c.list, current)
	}
	if d.Function.Name != "" && current.name != "" && d.Function.Name != current.name {
		return fmt.Errorf("the tool call %q changes its name from %q to %q", current.id, current.name, d.Function.Name)
	}
	current.name, current.id = cmp.Or(current.name, d.Function.Name), cmp.Or(current.id, d.ID)
	current.args = append(current.args, d.Function.Arguments...)
	if current.id != "" && current.name != "" {
		c.send(m, current)
	}
	if len(current.args) > maxHeld {
		return fmt.Errorf("a tool call without an id or a name has more than %d bytes of arguments", maxHeld)
	}
	return nil
}

// find returns the call that a piece continues, or nil if it begins one.
func (c *calls) find(d callDelta) *call {
	if d.Index == nil {
		return c.findWithoutIndex(d)
	}
	for _, k := range slices.Backward(c.list) {
		if k.index == nil || *k.index != *d.Index {
			continue
		}
		if k.isOver(d) {
			return nil
		}
		return k
	}
	return nil
}

func (c *calls) findWithoutIndex(d callDelta) *call {
	known := slices.IndexFunc(c.list, func(k *call) bool { return d.ID != "" && k.id == d.ID })
	if known >= 0 {
		return c.list[known]
	}
	if len(c.list) == 0 || d.Function.Name != "" {
		return nil
	}
	last := c.list[len(c.list)-1]
	if d.ID != "" && last.id != "" {
		return nil
	}
	return last
}

// isOver reports whether a piece with the index of a call belongs to another call.
func (k *call) isOver(d callDelta) bool {
	switch {
	case d.Function.Name == "" || k.name == "":
		return false
	case d.ID != "" && k.id != "":
		return d.ID != k.id
	}
	return k.id == "" && d.Function.Arguments != "" && json.Valid(k.args)
}

// close ends all calls, in the order in which they began.
func (c *calls) close(m *converse.Message) error {
	for i, k := range c.list {
		if k.name == "" {
			return fmt.Errorf("tool call %d of the response has no name", i+1)
		}
		c.send(m, k)
		push(m, provider.ChunkToolUseEnd, provider.ToolUseChunk{CallID: k.callID})
	}
	return nil
}

// send sends the pieces so far of a call.
func (c *calls) send(m *converse.Message, k *call) {
	if k.callID == "" {
		k.callID = c.ids.Unique(k.id)
		push(m, provider.ChunkToolUseStart, provider.ToolUseChunk{CallID: k.callID, Name: k.name})
	}
	if len(k.args) > 0 {
		push(m, provider.ChunkToolUseDelta, provider.ToolUseChunk{CallID: k.callID, ArgsDelta: string(k.args)})
		k.args = nil
	}
}

func push(m *converse.Message, kind provider.ChunkKind, use provider.ToolUseChunk) {
	m.Push(provider.StreamChunk{Kind: kind, ToolUse: &use})
}
