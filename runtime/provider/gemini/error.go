package gemini

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// explain gives an error its class and its words, without the key: the API names
// it when it refuses one.
func (c *client) explain(t *tap, err error) error {
	status := t.status
	if status == http.StatusOK {
		status = 0
	}
	var said genai.APIError
	var malformed *converse.Error
	switch {
	case errors.As(err, &said):
	case errors.As(err, &malformed):
		return fmt.Errorf("gemini: %w", malformed)
	default:
		return fmt.Errorf("gemini: %w", provider.WrapHTTPStatus(err, status))
	}
	status = cmp.Or(status, said.Code, http.StatusInternalServerError)
	if isInvalidKey(said) {
		status = http.StatusUnauthorized
	}
	text := fmt.Sprintf("gemini: %s: %s", cmp.Or(said.Status, fmt.Sprint("status ", status)), cmp.Or(said.Message, "no message"))
	return provider.WrapHTTPStatus(&converse.Error{Text: strings.ReplaceAll(text, c.key, "[key]"), Err: err}, status)
}

// isInvalidKey reports whether a bad request is one for its key.
func isInvalidKey(said genai.APIError) bool {
	for _, detail := range said.Details {
		if detail["reason"] == "API_KEY_INVALID" {
			return true
		}
	}
	return false
}
