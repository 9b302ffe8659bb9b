package gemini

import (
	"encoding/json"
	"net/http"

	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// apiError is how the API says that a request failed, in place of a response or in
// the middle of one.
type apiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []struct {
		Reason string `json:"reason"`
	} `json:"details"`
}

// fault reads an error document.
func fault(status int, body []byte) *converse.Fault {
	var said struct {
		Error *apiError `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error == nil {
		return nil
	}
	return said.Error.fault(status)
}

// fault returns what the API says, with the class of the status.
func (e *apiError) fault(status int) *converse.Fault {
	for _, d := range e.Details {
		if d.Reason == "API_KEY_INVALID" {
			status = http.StatusUnauthorized // the API says 400
		}
	}
	return &converse.Fault{Status: status, Title: e.Status, Message: e.Message}
}
