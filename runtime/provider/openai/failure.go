package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// requestID returns the server's name for the exchange, or "".
func requestID(h http.Header) string {
	return cmp.Or(h.Get("X-Request-Id"), h.Get("X-Generation-Id")) // the latter is OpenRouter's
}

// refusal reads the body of a response that is an error, also of one with the status
// 200.
func refusal(status int, body []byte) *converse.Fault {
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
	var notes []string
	for _, note := range []string{f.Type, f.code(), f.Param} {
		if note != "" {
			notes = append(notes, note)
		}
	}
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
