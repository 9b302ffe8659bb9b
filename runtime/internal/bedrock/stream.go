package bedrock

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// reader implements [converse.Reader].
type reader struct {
	stopped bool // messageStop has come
	counted bool // metadata has come, which is the last event

	// redacted are the bytes of blocks that are open, by their numbers.
	redacted map[int64][]byte
}

// event is any event of the API.
type event struct {
	Index      *int64 `json:"contentBlockIndex"`
	Start      piece  `json:"start"`
	Delta      piece  `json:"delta"`
	StopReason string `json:"stopReason"`
	Usage      *struct {
		Input       int64 `json:"inputTokens"`
		Output      int64 `json:"outputTokens"`
		CacheRead   int64 `json:"cacheReadInputTokens"`
		CacheCreate int64 `json:"cacheWriteInputTokens"`
	} `json:"usage"`
}

// piece is the beginning of a block, or a delta. It has one member.
type piece struct {
	kind    string // the name of the member
	Text    string `json:"text"`
	ToolUse struct {
		ID    string `json:"toolUseId"`
		Name  string `json:"name"`
		Input string `json:"input"`
	} `json:"toolUse"`
	Reasoning json.RawMessage `json:"reasoningContent"` // a piece as well
	Signature string          `json:"signature"`
	Redacted  []byte          `json:"redactedContent"`
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *piece) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(members)) {
		if string(members[kind]) != "null" {
			p.kind = kind
		}
	}
	type plain piece
	return json.Unmarshal(text, (*plain)(p))
}

// Complete implements [converse.Reader]. A stream that breaks after the metadata is complete.
func (r *reader) Complete(bool) bool { return r.stopped && r.counted }

// Event implements [converse.Reader].
func (r *reader) Event(m *converse.Message, ev converse.ServerEvent) error {
	if r.stopped && r.counted {
		return converse.Malformed("an event after the metadata")
	}
	var e event
	switch ev.Name {
	case "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata":
		if err := converse.Decode(ev.Data, &e); err != nil {
			return err
		}
	default:
		return nil
	}
	switch {
	case ev.Name == "messageStop":
		r.stopped = true
		m.StopReason = e.StopReason
	case ev.Name == "metadata":
		r.counted = true
		if u := e.Usage; u != nil { // input counts exclude the cached part
			m.Usage(provider.Usage{
				InputTokens:  u.Input + u.CacheRead + u.CacheCreate,
				OutputTokens: u.Output, CacheReadTokens: u.CacheRead, CacheCreateTokens: u.CacheCreate,
			})
		}
	case e.Index == nil:
		return converse.Malformed("a block without an index")
	case ev.Name == "contentBlockStart":
		// Blocks of text and of reasoning begin with their first delta.
		if e.Start.kind != "toolUse" {
			return unsupported(e.Start.kind)
		}
		return m.OpenToolUse(*e.Index, e.Start.ToolUse.ID, e.Start.ToolUse.Name, "")
	case ev.Name == "contentBlockDelta":
		return r.delta(m, *e.Index, &e.Delta)
	default:
		return r.stop(m, *e.Index)
	}
	return nil
}

func (r *reader) delta(m *converse.Message, index int64, delta *piece) error {
	switch delta.kind {
	case "text":
		return m.Extend(index, provider.ChunkText, delta.Text)
	case "toolUse":
		return m.Delta(index, provider.ChunkToolUseStart, delta.ToolUse.Input)
	case "reasoningContent":
		var reasoning piece
		if err := converse.Decode(delta.Reasoning, &reasoning); err != nil {
			return err
		}
		return r.reasoning(m, index, &reasoning)
	}
	return unsupported(delta.kind)
}

func (r *reader) reasoning(m *converse.Message, index int64, delta *piece) error {
	switch delta.kind {
	case "text":
		return m.Extend(index, provider.ChunkReasoning, delta.Text)
	case "signature":
		if err := m.Extend(index, provider.ChunkReasoning, ""); err != nil {
			return err
		}
		return m.Sign(index, delta.Signature)
	case "redactedContent":
		if r.redacted == nil {
			r.redacted = map[int64][]byte{}
		}
		r.redacted[index] = append(r.redacted[index], delta.Redacted...)
		return m.Extend(index, provider.ChunkRedactedThinking, "")
	}
	return unsupported(delta.kind)
}

// stop closes a block. A block of text that stays empty is closed without ever
// being there. Bytes are encoded as a whole, because the pieces of base64 do not
// join.
func (r *reader) stop(m *converse.Message, index int64) error {
	if !m.IsOpen(index) {
		return nil
	}
	if opaque, ok := r.redacted[index]; ok {
		delete(r.redacted, index)
		if err := m.Delta(index, provider.ChunkRedactedThinking, base64.StdEncoding.EncodeToString(opaque)); err != nil {
			return err
		}
	}
	return m.Close(index)
}

func unsupported(kind string) error {
	return fmt.Errorf("a piece of the kind %.60q has no place in a Request, so it cannot be received", upper(kind))
}

// statuses say the class of exceptions. They go before the status of a response:
// an exception in a stream has none, and some come with one, such as 424 when the
// model failed, that tells less than their name.
var statuses = map[string]int{
	"AccessDeniedException":         http.StatusForbidden,
	"InternalServerException":       http.StatusInternalServerError,
	"ModelErrorException":           http.StatusInternalServerError,
	"ModelNotReadyException":        http.StatusTooManyRequests,
	"ModelStreamErrorException":     http.StatusInternalServerError,
	"ModelTimeoutException":         http.StatusGatewayTimeout,
	"ServiceQuotaExceededException": http.StatusTooManyRequests,
	"ServiceUnavailableException":   http.StatusServiceUnavailable,
	"ThrottlingException":           http.StatusTooManyRequests,
	"ValidationException":           http.StatusBadRequest,
}

// fault reads an exception: a response, or a frame of one, which has no status.
func fault(status int, h http.Header, body []byte) *converse.Fault {
	var said struct {
		Type    string `json:"__type"`
		Code    any    `json:"code"`
		Message string `json:"message"`
	}
	if len(body) > 0 && json.Unmarshal(body, &said) != nil {
		return nil
	}
	code, _ := said.Code.(string)
	name := cmp.Or(h.Get("X-Amzn-Errortype"), said.Type, code)
	if name == "" && said.Message == "" {
		return nil
	}
	name, _, _ = strings.Cut(name, ":") // before a URL
	if _, after, ok := strings.Cut(name, "#"); ok {
		name = after // behind a namespace
	}
	return named(status, name, said.Message)
}

// named returns a fault whose name gives it a class, or else its status.
func named(status int, name, message string) *converse.Fault {
	name = upper(name)
	return &converse.Fault{Status: cmp.Or(statuses[name], status), Title: name, Message: message}
}

// upper returns the name with a capital letter, as the API's own documents have it. In
// a stream exceptions begin with a small one.
func upper(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}
