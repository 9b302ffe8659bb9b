package bedrock

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

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

// nameless is what the SDK calls an exception that the response does not name.
const nameless = "UnknownError"

// explain gives an error its class and its words.
func explain(err error) error {
	status, text := 0, "bedrock: "+err.Error()
	response, answered := errors.AsType[*awshttp.ResponseError](err)
	if answered {
		status = response.HTTPStatusCode()
		text = fmt.Sprintf("bedrock: status %d: %v", status, response.Err)
	}
	if exception, ok := errors.AsType[smithy.APIError](err); ok && exception.ErrorCode() != nameless {
		code := upper(exception.ErrorCode())
		text = fmt.Sprintf("bedrock: %s: %s", code, exception.ErrorMessage())
		status = cmp.Or(statuses[code], status)
	}
	if answered && response.RequestID != "" {
		text += fmt.Sprintf(" (request %s)", response.RequestID)
	}
	return provider.WrapHTTPStatus(&converse.Error{Text: text, Err: err}, status)
}

// upper returns the code of an exception as it is called. In a stream those that
// the SDK does not expect begin with a small letter.
func upper(code string) string {
	if code == "" {
		return "exception"
	}
	return strings.ToUpper(code[:1]) + code[1:]
}
