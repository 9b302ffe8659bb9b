package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
)

// answer is a handler that answers everything in the same way.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const ada = `{"name":"Ada","plan":"pro","since":2019}`

func TestLookup(t *testing.T) {
	for _, c := range []struct{ name, input, effect, url string }{
		{"the default API", `{"id":"42"}`, "customer/42", "https://api.example.com/customers/42"},
		{"another API", `{"id":"42","base_url":"http://127.0.0.1:8080"}`, "customer/42", "http://127.0.0.1:8080/customers/42"},
		{"a path and a slash", `{"id":"42","base_url":"https://h/api/v1/"}`, "customer/42", "https://h/api/v1/customers/42"},
		{"an id that looks like a path", `{"id":"a/../b?c#d%"}`, "customer/a/../b?c#d%", "https://api.example.com/customers/a%2F..%2Fb%3Fc%23d%25"},
		{"an id beyond ASCII", `{"id":"é"}`, "customer/é", "https://api.example.com/customers/%C3%A9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := starlingtest.Host{Now: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), HTTP: answer(200, ada)}
			got := host.Call(t, "customer_lookup", c.input)
			if want := `{"name":"Ada","plan":"pro","looked_up_at":"2026-01-02T03:04:05Z"}`; got.Failure != nil || got.Output != want {
				t.Errorf("got %s %v", got.Output, got.Failure)
			}
			want := []starlingtest.Exchange{{Effect: c.effect, Method: "GET", URL: c.url}}
			if !slices.Equal(got.Exchanges, want) {
				t.Errorf("got %v, want %v", got.Exchanges, want)
			}
		})
	}
}

func fail(reason error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { starlingtest.Fail(w, reason, "because") }
}

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		kind    starling.Kind
		message string
	}{
		{"no such customer", answer(404, ""), starling.KindDiscard, `there is no customer with the id "42"`},
		{"no access", answer(403, ""), starling.KindCancel, "status 403"},
		{"too many requests", answer(429, ""), starling.KindTransient, "status 429"},
		{"a broken API", answer(503, "oops"), starling.KindTransient, "status 503"},
		{"a redirect", answer(302, ""), starling.KindTool, "status 302"},
		{"an answer that is not JSON", answer(200, "<html>"), starling.KindTool, "not a customer: invalid character '<'"},
		{"an answer that is cut short", answer(200, `{"name":"A`), starling.KindTool, "not a customer: unexpected end of JSON input"},
		{"a number for a name", answer(200, `{"name":1,"plan":"p"}`), starling.KindTool, "not a customer: json: cannot unmarshal number"},
		{"a customer without a plan", answer(200, `{"name":"A"}`), starling.KindTool, "lacks name or plan"},
		{"denied by policy", fail(starling.ErrDenied), starling.KindCancel, "customer lookup: http: denied: because"},
		{"no network", fail(starling.ErrNetwork), starling.KindTransient, "customer lookup: http: network: because"},
		{"a timeout", fail(starling.ErrTimeout), starling.KindTransient, "customer lookup: http: timeout: because"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := starlingtest.Host{HTTP: c.handler}.Call(t, "customer_lookup", `{"id":"42"}`)
			if got.Failure == nil || got.Failure.Kind != c.kind || !strings.Contains(got.Failure.Error(), c.message) {
				t.Errorf("got %s %+v", got.Output, got.Failure)
			}
		})
	}
}

func TestInputsThatAreNotSent(t *testing.T) {
	for _, c := range []struct{ name, input, message string }{
		{"no id", `{}`, "id has 0 bytes"},
		{"a long id", `{"id":"` + strings.Repeat("x", 129) + `"}`, "id has 129 bytes"},
		{"the folder above", `{"id":".."}`, "is a path and not an id"},
		{"a line break in the id", `{"id":"42\r\nX-Admin: 1"}`, "control characters"},
		{"space after the id", `{"id":"42 "}`, "space at its ends"},
		{"another scheme", `{"id":"42","base_url":"file:///etc"}`, "must be http://HOST/PATH"},
		{"no scheme", `{"id":"42","base_url":"api.example.com"}`, "must be http://HOST/PATH"},
		{"no host", `{"id":"42","base_url":"https:///api"}`, "it has no host"},
		{"slashes alone", `{"id":"42","base_url":"https://"}`, "must be http://HOST/PATH"},
		{"a query", `{"id":"42","base_url":"https://h/?to="}`, "must be http://HOST/PATH"},
		{"a password", `{"id":"42","base_url":"https://u:p@h"}`, "a user or a password"},
		{"a line break in the URL", `{"id":"42","base_url":"https://h\r\nX: y"}`, "must be percent-encoded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := starlingtest.Host{HTTP: answer(200, ada)}.Call(t, "customer_lookup", c.input)
			if got.Failure == nil || got.Failure.Kind != starling.KindDiscard || !strings.Contains(got.Failure.Error(), c.message) {
				t.Errorf("got %s %+v", got.Output, got.Failure)
			}
			if len(got.Exchanges) > 0 {
				t.Errorf("the host saw %v", got.Exchanges)
			}
		})
	}
}

func TestDescription(t *testing.T) {
	d := starlingtest.Describe(t)[0]
	if d.Name != "customer_lookup" || !d.Idempotent || !slices.Equal(d.Effects, []string{"api.example.com"}) {
		t.Errorf("got %+v", d)
	}
}
