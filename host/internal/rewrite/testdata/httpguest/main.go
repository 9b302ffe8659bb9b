// Command httpguest is a large guest for tests: it links the whole of net/http,
// both as a client and as a server, with TLS and JSON.
package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
)

func main() {}

// run lets a server answer a request without a network.
//
//go:wasmexport run
func run(n int32) int32 {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(map[string]string{"path": r.URL.Path})
	})
	answer := httptest.NewRecorder()
	for range n {
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/tool", nil))
	}
	if n < 0 { // never reached: there is no network; it links the client
		_, err := http.Get("https://example.com/")
		panic(err)
	}
	return int32(answer.Body.Len())
}
