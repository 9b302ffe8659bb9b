package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/runtime/egress"
)

// listed has the secrets that it lists.
type listed map[string]string

// Secret implements [Secrets].
func (l listed) Secret(_ context.Context, name string) ([]byte, bool, error) {
	value, ok := l[name]
	return []byte(value), ok, nil
}

// TestExplainDecidesAsARunDoes compares explain with what a client does with the same request, for
// policies and requests that are made up.
func TestExplainDecidesAsARunDoes(t *testing.T) {
	keeper := listed{"LONG": "correct-horse-battery", "SHORT": "hush", "WIDE": "pässwörd-pässwörd"}
	counts := map[bool]int{}
	check := func(t *rapid.T) {
		pick := func(what string, all ...string) string { return rapid.SampledFrom(all).Draw(t, what) }
		file := func(side string) *Policy {
			rule := "{host: " + pick("host", "a.test", ".test", "127.0.0.1", "'[::1]'", "'*'", "169.254.169.254")
			for _, key := range []string{"schemes: [http, https]", "ports: [1, 443]", "methods: [GET, POST]", "paths: [/v1/**]", "max_bytes: 300", "max_request: 20", "headers: [X-Plan]"} {
				if rapid.Bool().Draw(t, key) {
					rule += ", " + key
				}
			}
			if !strings.ContainsAny(rule[7:9], ".*") && rapid.Bool().Draw(t, "private") {
				rule += ", private: true"
			}
			rule += pick("ask", "", ", ask: true") + "}"
			text := "version: \"1.0\"\npermissions: {network: {allow: [" + rule + "]}}\n"
			if rapid.Bool().Draw(t, "secrets") {
				text += "secrets:\n"
				for _, name := range []string{"LONG", "SHORT", "WIDE"} {
					text += fmt.Sprintf("  - {name: %s, audience: [%s], %s}\n", name, pick("audience", "a.test", "127.0.0.1", "'127.0.0.1:1'", ".test"), pick("place", "header: X-Key", "query: key", "body: true"))
				}
			}
			p, err := Parse(side, []byte(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			return p
		}
		operator, tenant := file("operator"), (*Policy)(nil)
		if rapid.Bool().Draw(t, "two sides") {
			tenant = file("tenant")
		}
		secret := pick("secret", "x", "{{secret:LONG}}", "{{secret:SHORT}}", "{{secret:WIDE}}", "{{secret:OTHER}}", "a{{secret:LONG}}", "{{secret:long}}")
		r := &egress.Request{Method: pick("method", "GET", "POST", "DELETE"), Header: http.Header{}}
		r.URL = pick("scheme", "http", "https") + "://" + pick("target", "a.test", "b.c.test", "127.0.0.1:1", "[::1]:1", "169.254.169.254") + pick("path", "/v1/a", "/v1/..+/a", "/", "/v1/%2e%2e/a")
		switch pick("where", "header", "query", "body", "path", "nowhere") {
		case "header":
			r.Header[pick("header", "X-Key", "X-Other", "Authorization", "X-Plan")] = []string{secret}
		case "query":
			r.URL += "?key=" + secret
		case "body":
			r.Body = []byte("a=" + secret)
			r.Header["Content-Type"] = []string{pick("type", "text/plain", "application/x-www-form-urlencoded", "application/octet-stream")}
		case "path":
			r.URL += secret
		}
		if pick("odd header", "none", "some") == "some" {
			r.Header["X-Original-Url"] = []string{"/admin"}
		}
		ctx := WithAsker(t.Context(), func(context.Context, Question) (string, error) { return Accept, nil })
		live := egress.New(egress.Config{
			Authorize: NewRun(operator, tenant, keeper).Exchange("shop", len(r.Text())),
			Resolve:   func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no network here") },
		})
		_, err := live.Do(ctx, r, "") // nothing answers at port 1
		var refused *egress.Error
		allowed := !errors.As(err, &refused) || refused.Status != abi.StatusDenied && refused.Status != abi.StatusMalformed && refused.Status != abi.StatusTooLarge
		doc, err := Explain(t.Context(), operator, tenant, keeper, r, "shop")
		if err != nil {
			if allowed {
				t.Fatalf("explain refuses %+v as no request", r)
			}
			return
		}
		counts[doc.Allowed]++
		if doc.Allowed != allowed && len(doc.Missing) == 0 {
			t.Fatalf("explain says %+v; the run: %v, %v", doc, allowed, refused)
		}
		if !doc.Allowed && doc.Address == "" && doc.Refused == "" && doc.Verdicts[len(doc.Verdicts)-1].Allowed {
			t.Fatalf("a denial without a reason: %+v", doc)
		}
	}
	for n := 0; n < 50 && (counts[true] == 0 || counts[false] == 0); n++ { // few requests are allowed
		rapid.Check(t, check)
	}
	if counts[true] == 0 || counts[false] == 0 {
		t.Errorf("of the requests, %v", counts)
	}
}
