package starlinghttp

import "net/http"

// Message returns what the host gets of a request.
func Message(r *http.Request) []byte {
	m, _ := message(r)
	return m
}
