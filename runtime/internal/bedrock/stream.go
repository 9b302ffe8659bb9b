package bedrock

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
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

// frameReader reads a body of the type application/vnd.amazon.eventstream. It is a row of
// frames, with all numbers in big endian:
//
//	length of the frame, length of its headers   4 bytes each
//	CRC32 of these 8 bytes                       4 bytes
//	headers, payload
//	CRC32 of all that is before                  4 bytes
type frameReader struct{ body io.Reader }

const preludeSize, sumSize = 12, 4

// Next implements [converse.Events]. Exceptions are returned as a [converse.Fault].
func (r *frameReader) Next() (converse.ServerEvent, error) {
	headers, payload, err := r.read()
	if err == io.ErrUnexpectedEOF {
		err = io.EOF // a truncated frame is treated as the end: the last event decides
	}
	if err != nil {
		return converse.ServerEvent{}, err
	}
	kind, name := headers[":message-type"], cmp.Or(headers[":event-type"], headers[":exception-type"])
	switch {
	case kind == "event" && name != "":
		return converse.ServerEvent{Name: name, Data: payload}, nil
	case kind == "exception" && name != "":
		if f := fault(0, http.Header{"X-Amzn-Errortype": {name}}, payload); f != nil {
			return converse.ServerEvent{}, f
		}
		return converse.ServerEvent{}, converse.Malformed("an exception that is not JSON")
	case kind == "error":
		return converse.ServerEvent{}, named(0, cmp.Or(headers[":error-code"], kind), headers[":error-message"])
	}
	return converse.ServerEvent{}, converse.Malformed("a frame of the type %q without a name", kind)
}

// read returns the headers and the payload of the next frame.
func (r *frameReader) read() (headers map[string]string, payload []byte, err error) {
	var prelude [preludeSize]byte
	if _, err := io.ReadFull(r.body, prelude[:]); err != nil {
		return nil, nil, err
	}
	if crc32.ChecksumIEEE(prelude[:8]) != binary.BigEndian.Uint32(prelude[8:]) {
		return nil, nil, converse.Malformed("the checksum of a frame's lengths is wrong")
	}
	length, size := int64(binary.BigEndian.Uint32(prelude[:])), int64(binary.BigEndian.Uint32(prelude[4:]))
	if length > converse.MaxEvent || size > length-preludeSize-sumSize {
		return nil, nil, converse.Malformed("a frame of %d bytes with %d bytes of headers", length, size)
	}
	rest := make([]byte, length-preludeSize)
	if _, err := io.ReadFull(r.body, rest); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, nil, err
	}
	rest, sum := rest[:len(rest)-sumSize], rest[len(rest)-sumSize:]
	if crc32.Update(crc32.ChecksumIEEE(prelude[:]), crc32.IEEETable, rest) != binary.BigEndian.Uint32(sum) {
		return nil, nil, converse.Malformed("the checksum of a frame is wrong")
	}
	headers, err = decodeHeaders(rest[:size])
	return headers, rest[size:], err
}

// The types of headers that say their size.
const (
	typeBytes  = 6
	typeString = 7
)

// fixedSizes has the sizes of the other types.
var fixedSizes = map[byte]int{0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}

// decodeHeaders returns the headers that are strings. Each is the length of its name, the
// name, its type and its value.
func decodeHeaders(b []byte) (map[string]string, error) {
	wrong := converse.Malformed("the headers of a frame are cut, or of an unknown type")
	all := map[string]string{}
	for len(b) > 0 {
		end := 1 + int(b[0])
		if end >= len(b) {
			return nil, wrong
		}
		name, kind := string(b[1:end]), b[end]
		b = b[end+1:]
		size, fixed := fixedSizes[kind]
		if !fixed {
			if kind != typeBytes && kind != typeString || len(b) < 2 {
				return nil, wrong
			}
			size, b = int(binary.BigEndian.Uint16(b)), b[2:]
		}
		if size > len(b) {
			return nil, wrong
		}
		if kind == typeString {
			all[name] = string(b[:size])
		}
		b = b[size:]
	}
	return all, nil
}
