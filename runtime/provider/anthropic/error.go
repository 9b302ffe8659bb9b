package anthropic

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// statuses are those that the API documents for the types of errors. In a stream
// the status of the response is 200, whatever comes after it.
var statuses = map[sdk.ErrorType]int{
	sdk.ErrorTypeInvalidRequestError: http.StatusBadRequest,
	sdk.ErrorTypeAuthenticationError: http.StatusUnauthorized,
	sdk.ErrorTypeBillingError:        http.StatusPaymentRequired,
	sdk.ErrorTypePermissionError:     http.StatusForbidden,
	sdk.ErrorTypeNotFoundError:       http.StatusNotFound,
	sdk.ErrorTypeRateLimitError:      http.StatusTooManyRequests,
	sdk.ErrorTypeAPIError:            http.StatusInternalServerError,
	sdk.ErrorTypeTimeoutError:        http.StatusGatewayTimeout,
	sdk.ErrorTypeOverloadedError:     529,
}

// explain gives an error its class and its words, in which a server may have
// repeated the key.
func (c *client) explain(err error) error {
	refused, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return fmt.Errorf("anthropic: %w", provider.ClassifyTransport(err))
	}
	status := refused.StatusCode
	if status < http.StatusBadRequest {
		status = cmp.Or(statuses[refused.Type()], http.StatusInternalServerError)
	}
	var body struct {
		Error struct{ Type, Message string }
	}
	if json.Unmarshal([]byte(refused.RawJSON()), &body) != nil || body.Error.Message == "" {
		body.Error.Message = cmp.Or(refused.RawJSON(), "no message")
	}
	text := fmt.Sprintf("anthropic: %s: %s", cmp.Or(body.Error.Type, fmt.Sprint("status ", status)), body.Error.Message)
	if refused.RequestID != "" {
		text += fmt.Sprintf(" (request %s)", refused.RequestID)
	}
	return provider.WrapHTTPStatus(&converse.Error{Text: strings.ReplaceAll(text, c.key, "[key]"), Err: refused}, status)
}
