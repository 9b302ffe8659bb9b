package web

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOriginsRefuse has requests that browsers send for pages, and what no page can send. The
// tests of the web view and of the MCP server check that both ask.
func TestOriginsRefuse(t *testing.T) {
	const wrongName, wrongPage = http.StatusMisdirectedRequest, http.StatusForbidden
	own := []string{"http://127.0.0.1:8300", "https://Starling.example"}
	for _, c := range []struct {
		name         string
		origins      []string
		method, host string
		origin, site string
		encrypted    bool
		want         int
	}{
		{"a program", own, "POST", "127.0.0.1:8300", "", "", false, 0},
		{"the name in another case", own, "GET", "starling.EXAMPLE", "https://starling.example", "same-origin", true, 0},
		{"TLS in front of the server", own, "POST", "starling.example", "https://starling.example", "", false, 0},
		{"without TLS", own, "POST", "starling.example", "http://starling.example", "", false, wrongPage},
		{"a bound name", own, "GET", "evil.example", "", "same-origin", false, wrongName},
		{"a bound name, with our port", own, "GET", "evil.example:8300", "http://evil.example:8300", "", false, wrongName},
		{"another origin of ours", own, "POST", "127.0.0.1:8300", "https://starling.example", "", false, wrongPage},
		{"another origin of ours, said so", own, "POST", "127.0.0.1:8300", "https://starling.example", "cross-site", false, wrongPage},
		{"a picture", own, "GET", "127.0.0.1:8300", "", "cross-site", false, wrongPage},
		{"a page of another port", own, "GET", "127.0.0.1:8300", "http://127.0.0.1:8301", "same-site", false, wrongPage},
		{"a form without a referrer", own, "POST", "127.0.0.1:8300", "null", "same-origin", false, 0},
		{"a sandboxed frame", own, "POST", "127.0.0.1:8300", "null", "", false, wrongPage},
		{"any name", nil, "POST", "any.example", "", "", false, 0},
		{"any name, its own page", nil, "POST", "any.example", "https://ANY.example", "same-origin", false, 0},
		{"any name, another page", nil, "POST", "any.example", "https://other.example", "", true, wrongPage},
		{"any name, no page", nil, "POST", "any.example", "null", "", true, wrongPage},
		{"any name, a host alone", nil, "POST", "any.example", "any.example", "", true, wrongPage},
	} {
		o, err := ParseOrigins(c.origins)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(c.method, "http://"+c.host+"/", nil)
		if c.encrypted {
			r.TLS = &tls.ConnectionState{}
		}
		for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if got := o.Refuses(r); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	for _, text := range []string{"", "127.0.0.1", "127.0.0.1:8300", "ftp://a.example", "https://", "https://a.example/", "https://a.example/b", "https://a.example?b", "https://a.example#b", "https://u@a.example", "null"} {
		if o, err := ParseOrigins([]string{text}); err == nil {
			t.Errorf("%q is an origin: %v", text, o)
		}
	}
}
