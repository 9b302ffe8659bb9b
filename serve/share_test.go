package serve

import (
	"net/http"
	"strings"
	"testing"

	"github.com/starling-host/starling/serve/tenant"
)

// TestPagesOfTheWebViewAreRequests: the web view obeys requests_per_second, as the API does,
// and says so; another tenant does not notice.
func TestPagesOfTheWebViewAreRequests(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.browser("alice"), w.browser("bob")
	if err := w.config.Tenants.Change(t.Context(), "alice", func(t *tenant.Tenant) { t.Limits.RequestsPerSecond = 1 }); err != nil {
		t.Fatal(err)
	}
	answers := map[int]int{}
	for range 20 {
		code, page := alice.load(http.MethodGet, "/inspect/", nil)
		answers[code]++
		if code == http.StatusTooManyRequests && !strings.Contains(page, "Too many requests") {
			t.Errorf("a page that is refused says %s", page)
		}
	}
	if answers[http.StatusTooManyRequests] == 0 || answers[http.StatusOK] == 0 {
		t.Errorf("20 pages at once: %v", answers)
	}
	if code, _ := bob.load(http.MethodGet, "/inspect/", nil); code != http.StatusOK {
		t.Errorf("another tenant: %d", code)
	}
}

// TestMCPBodiesAreBounded: a message over MCP has a mebibyte at most, as every body of JSON.
func TestMCPBodiesAreBounded(t *testing.T) {
	w := newWorld(t)
	for size, want := range map[int]int{1 << 10: http.StatusOK, 2 << 20: http.StatusRequestEntityTooLarge} {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"x":"` + strings.Repeat("x", size) + `"}}}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+w.keys["alice"])
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Expect", "100-continue") // or the answer may be lost behind the body
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a message of %d bytes: %d, want %d", size, resp.StatusCode, want)
		}
	}
}
