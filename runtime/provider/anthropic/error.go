package anthropic

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// statuses are those that the API documents for the types of errors. In a stream
// the status of the response is 200, whatever comes after it.
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

// fault reads an error document. The status of a response says more than its type.
func fault(status int, body []byte) *converse.Fault {
	var said struct {
		Error struct{ Type, Message string }
	}
	if json.Unmarshal(body, &said) != nil || said.Error.Message == "" {
		return nil
	}
	return &converse.Fault{Status: status, Title: said.Error.Type, Message: said.Error.Message}
}

// faultInStream reads the data of an error event.
func faultInStream(data []byte) *converse.Fault {
	f := fault(0, data)
	if f == nil {
		f = &converse.Fault{Message: string(data)}
	}
	f.Status = cmp.Or(statuses[f.Title], http.StatusInternalServerError)
	return f
}
