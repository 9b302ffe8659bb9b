package starlinghttp

import "net/http"

// Message returns the host's view of a request.
func Message(r *http.Request) []byte {
	m, _ := message(r)
	return m
}
