package narrate

import (
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog/event"
)

// Request returns the request line of a message/http request without its protocol
// version: "GET http://host/path".
func Request(request []byte) string {
	line, _, _ := strings.Cut(string(request), "\r\n")
	return strings.TrimSuffix(line, " HTTP/1.1")
}

// isHTTP reports whether the request of an effect is one over HTTP.
func isHTTP(request []byte) bool {
	line, _, ok := strings.Cut(string(request), "\r\n")
	return ok && strings.HasSuffix(line, " HTTP/1.1")
}

// Exchange says what came back: the status line and the size, or the failure.
func Exchange(v event.Exchange) string {
	if v.Status != 0 {
		return fmt.Sprintf("%s: %s", v.Status, v.Text)
	}
	line, _, _ := strings.Cut(string(v.Response), "\r\n")
	return fmt.Sprintf("%s, %s", strings.TrimPrefix(line, "HTTP/1.1 "), Size(uint64(len(v.Response))))
}
