package artifact

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRedirectInside: a public host leads nobody to an address that is not public. A host that has
// such an address may.
func TestRedirectInside(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://localhost:"+r.Host[strings.LastIndex(r.Host, ":")+1:]+"/", http.StatusFound)
		}
	}))
	defer server.Close()
	if answer, err := client(newBudget(t.Context()), "registry.example.com", true).Get(server.URL); err == nil || !strings.Contains(err.Error(), "is not followed: loopback") {
		t.Errorf("from a public host: %v, %v", answer, err)
	}
	answer, err := client(newBudget(t.Context()), "127.0.0.1", true).Get(server.URL + "/away")
	if err != nil || answer.Request.URL.Hostname() != "localhost" {
		t.Fatalf("from this machine: %v", err)
	}
	answer.Body.Close()
}
