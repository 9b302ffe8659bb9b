package inspect_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
)

// TestWhatAHostilePageCanSend is a table of requests that a hostile page can make
// a browser send, and of some that must get through.
func TestWhatAHostilePageCanSend(t *testing.T) {
	reached := false
	scope := inspect.Only(eventview.View{Log: store.Memory()}, "tok")
	s, err := inspect.New(inspect.Config{
		Scope: func(r *http.Request) (eventview.View, error) {
			v, err := scope(r)
			reached = err == nil
			return v, err
		},
		Origins: []string{"http://127.0.0.1:8300", "http://localhost:8300", "http://[::1]:8300"},
	})
	if err != nil {
		t.Fatal(err)
	}
	session := signedIn(t, s)
	const own = "127.0.0.1:8300"
	for _, c := range []struct {
		name, method, host string
		header             map[string]string
		cookie, pass       bool
	}{
		{"the user's own page", "GET", own, map[string]string{"Sec-Fetch-Site": "same-origin"}, true, true},
		{"typed address", "GET", "localhost:8300", map[string]string{"Sec-Fetch-Site": "none"}, true, true},
		{"a program with a token", "GET", own, map[string]string{"Authorization": "Bearer tok"}, false, true},
		{"own form, whose page has no referrer", "POST", own, map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "null"}, true, true},
		{"own form", "POST", own, map[string]string{"Origin": "http://127.0.0.1:8300"}, true, true},
		{"no token", "GET", own, nil, false, false},
		{"wrong token", "GET", own, map[string]string{"Authorization": "Bearer to"}, false, false},
		{"rebinding: attacker's host", "GET", "evil.example:8300", map[string]string{"Sec-Fetch-Site": "same-origin"}, true, false},
		{"rebinding with a port trick", "GET", "127.0.0.1.evil.example:8300", nil, true, false},
		{"rebinding: localhost without port", "GET", "localhost", nil, true, false},
		{"rebinding: other loopback name", "GET", "127.0.0.2:8300", nil, true, false},
		{"host 0.0.0.0", "GET", "0.0.0.0:8300", nil, true, false},
		{"form of another site", "POST", own, map[string]string{"Origin": "https://evil.example"}, true, false},
		{"form of another site, said so", "POST", own, map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, true, false},
		{"origin null of a sandboxed frame", "POST", own, map[string]string{"Origin": "null"}, true, false},
		{"origin null, cross-site", "POST", own, map[string]string{"Origin": "null", "Sec-Fetch-Site": "cross-site"}, true, false},
		{"other port of the same host", "POST", own, map[string]string{"Origin": "http://127.0.0.1:9999"}, true, false},
		{"https origin of the same host", "POST", own, map[string]string{"Origin": "https://127.0.0.1:8300"}, true, false},
		{"our other name as origin", "POST", own, map[string]string{"Origin": "http://localhost:8300"}, true, false},
		{"picture or script of another site", "GET", own, map[string]string{"Sec-Fetch-Site": "cross-site"}, true, false},
		{"page of another port", "GET", own, map[string]string{"Sec-Fetch-Site": "same-site"}, true, false},
		{"reading with another origin", "GET", own, map[string]string{"Origin": "https://evil.example"}, true, false},
		{"method that there is not", "PUT", own, nil, true, false},
		{"preflight", "OPTIONS", own, map[string]string{"Origin": "https://evil.example", "Access-Control-Request-Private-Network": "true"}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := "/"
			if c.method == http.MethodPost {
				path = "/runs/R/validate"
			}
			r := httptest.NewRequest(c.method, "http://"+c.host+path, nil)
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			if c.cookie {
				r.AddCookie(session)
			}
			reached = false
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if reached != c.pass {
				t.Errorf("reached: %t, want %t; status %d", reached, c.pass, w.Code)
			}
			checkHeaders(t, w.Header())
		})
	}
}

// checkHeaders checks what every answer has, whatever it says.
func checkHeaders(t *testing.T, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cross-Origin-Opener-Policy": "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "", "Cache-Control": "no-store",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := h.Get("Referrer-Policy"); got != "no-referrer" && got != "same-origin" {
		t.Errorf("Referrer-Policy: %q", got)
	}
	policy := h.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy has no %s: %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "data:") {
		t.Errorf("the policy is loose: %s", policy)
	}
}

// signedIn returns the cookie of a session.
func signedIn(t *testing.T, s http.Handler) *http.Cookie {
	t.Helper()
	form := url.Values{"token": {"tok"}}
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8300/sign-in", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if c.Name == "starling_inspect_8300" {
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
				t.Errorf("the session's cookie is open: %v", c)
			}
			return c
		}
	}
	t.Fatalf("not signed in: %d", w.Code)
	return nil
}
