package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/egress"
)

// TestExplainDecidesAsARunDoes compares explain with what a client does with the same request, for
// policies and requests that are made up.
func TestExplainDecidesAsARunDoes(t *testing.T) {
	t.Setenv("STARLING_SECRET_LONG", "correct-horse-battery")
	t.Setenv("STARLING_SECRET_SHORT", "hush")
	t.Setenv("STARLING_SECRET_WIDE", "pässwörd-pässwörd")
	counts := map[bool]int{}
	check := func(t *rapid.T) {
		pick := func(what string, all ...string) string { return rapid.SampledFrom(all).Draw(t, what) }
		file := func(side string) *policy.Policy {
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
			p, err := policy.Parse(side, []byte(text))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			return p
		}
		operator, tenant := file("operator"), (*policy.Policy)(nil)
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
		ctx := policy.WithAsker(t.Context(), func(context.Context, policy.Question) (string, error) { return policy.Accept, nil })
		live := egress.New(egress.Config{
			Authorize: policy.NewRun(operator, tenant, starling.EnvSecrets{}).Exchange("shop", len(r.Text())),
			Resolve:   func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no network here") },
		})
		_, err := live.Do(ctx, r, "") // nothing answers at port 1
		var refused *egress.Error
		allowed := !errors.As(err, &refused) || refused.Status != abi.StatusDenied && refused.Status != abi.StatusMalformed && refused.Status != abi.StatusTooLarge
		access, err := r.Access()
		if err != nil {
			if allowed {
				t.Fatalf("explain refuses %+v as no request", r)
			}
			return
		}
		doc := newExplanation(t.Context(), operator, tenant, r, access, "shop")
		counts[doc.Allowed]++
		unset := doc.Caution != "" && strings.Contains(doc.Caution, "not set here")
		if doc.Allowed != allowed && !unset {
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
