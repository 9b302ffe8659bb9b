package policy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling/runtime/egress"
)

// TestConcurrentExchangesShareTheirBytes settles two exchanges that were allowed at the same time:
// each alone stays within max_bytes, and both together do not.
func TestConcurrentExchangesShareTheirBytes(t *testing.T) {
	for _, side := range []string{Operator, Tenant} {
		limited, open := parse(t, rules("{host: a.test, max_bytes: 100}")), parse(t, rules("{host: a.test}"))
		run := NewRun(limited, open, nil)
		if side == Tenant {
			run = NewRun(open, limited, nil)
		}
		var both [2]*Exchange
		for i := range both {
			both[i] = run.Exchange("shop", 10)
			grant, err := both[i].Authorize(t.Context(), access(t, "GET", "https://a.test/"))
			if err != nil || grant.MaxResponse != int64(90-10*i) {
				t.Fatalf("%s: exchange %d: %+v, %v", side, i, grant, err)
			}
		}
		if err := both[0].Settle(make([]byte, 60)); err != nil {
			t.Errorf("%s: the first response fits: %v", side, err)
		}
		if err := both[1].Settle(make([]byte, 21)); err == nil {
			t.Errorf("%s: 10+60+10+21 bytes were allowed where 100 are", side)
		}
		if err := both[1].Settle(make([]byte, 20)); err != nil {
			t.Errorf("%s: 10+60+10+20 bytes fit exactly: %v", side, err)
		}
	}
}

// store has the values of secrets.
type store map[string]string

func (s store) Secret(_ context.Context, name string) ([]byte, bool, error) {
	value, ok := s[name]
	return []byte(value), ok, nil
}

// TestAudienceIsAskedForPlainResponses sends requests without a placeholder to the audience of a
// secret: their responses must be searchable all the same, whether or not the secret has a value.
func TestAudienceIsAskedForPlainResponses(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	_, port, _ := strings.Cut(address, ":")
	rule := fmt.Sprintf("permissions: {network: {allow: [{host: 127.0.0.1, schemes: [http], ports: [%s], private: true}]}}\n", port)
	with := parse(t, head+rule+fmt.Sprintf("secrets: [{name: K, audience: ['%s'], header: X-Key}]", address))
	without := parse(t, head+rule)
	for name, c := range map[string]struct {
		operator, tenant *Policy
		store            store
		want             string
	}{
		"no secret": {without, without, nil, "gzip"}, "the operator's": {with, without, nil, "identity"}, "the tenant's": {without, with, nil, "identity"},
		"with a value": {with, nil, store{"K": "correct-horse"}, "identity"},
	} {
		client := egress.New(egress.Config{Authorize: NewRun(c.operator, c.tenant, c.store).Exchange("shop", 10)})
		_, err := client.Do(t.Context(), &egress.Request{Method: "GET", URL: server.URL + "/", Header: http.Header{"Accept-Encoding": {"gzip"}}}, "")
		if err != nil || got.Get("Accept-Encoding") != c.want {
			t.Errorf("%s: Accept-Encoding %q, %v; want %q", name, got.Get("Accept-Encoding"), err, c.want)
		}
	}
}

// TestRulesAboutMethodsAndPathsAllowOrdinaryHeaders tries headers that some server takes for another
// method, path or host: known ones, and made ones of the same kind.
func TestRulesAboutMethodsAndPathsAllowOrdinaryHeaders(t *testing.T) {
	names := strings.Fields(`X-HTTP-Method-Override X-Original-URL X-MS-Original-URL X-Envoy-Original-Dst-Host X-CF-Forwarded-Url X-Matched-Path X-Invoke-Path
		X-Now-Route-Matches X-Middleware-Subrequest X-Nextjs-Data X-Forwarded-Host X-Forwarded-Uri X-Envoy-Original-Path X-Original-Method X-Http-Destinationurl
		Base-Url Proxy-Url Uri Url X-Proxy-Url X-Target-Url Target-Url X-Amz-Website-Redirect-Location X-Rewrite-Path X-Apigateway-Event X-Lambda-Http-Path
		X-Real-Path X-Http-Verb X-Http-Verb-Override X-Action Content-Location X-Forwarded-Request-Uri X-Upstream-Host X-Backend-Url X-Route X-Forwarded-Server
		X-Wap-Profile X-Gateway-Host X-Vercel-Forwarded-Path Cf-Access-Host X-Original-Request-Uri X-Forwarded-Original-Url X-Waws-Unencoded-Url
		X-Arr-Original-Url X-Forwarded-Target X-Restli-Method X-Http-Method X_Method_Override Destination Forwarded Path-Info X-Tyk-Path Path :path Host
		X-Dapr-App-Id X-Amz-Target Soapaction X_api_key X-Sendfile X-Script-Name Access-Control-Request-Method`)
	for _, vendor := range []string{"", "X-", "X-Ms-", "X-Envoy-", "Cf-", "X_"} {
		for _, what := range []string{"", "Original-", "Forwarded-", "Rewrite-", "Override-", "Upstream-", "Real-"} {
			for _, part := range []string{"Url", "Uri", "Path", "Host", "Method", "Verb", "Route", "Location", "Dst-Host", "Service", "Endpoint"} {
				names = append(names, vendor+what+part)
			}
		}
	}
	harmless := []string{"Accept", "Authorization", "User-Agent", "X-Api-Key", "X-Shopify-Access-Token", "Anthropic-Version", "X-Github-Api-Version", "Traceparent", "X-Request-Id", "If-None-Match", "Content-Type", "Dd-Api-Key"}
	for _, rule := range []string{"methods: [GET]", "paths: [/v1/**]", "methods: [GET], paths: [/v1/**], headers: [X-Plan]"} {
		p := parse(t, rules("{host: a.test, "+rule+"}")+"\nsecrets: [{name: K, audience: [a.test], header: X-Odd}, {name: K, audience: [b.test], header: X-Odder}]")
		allowed := func(name string) bool {
			r := egress.Request{Method: "GET", URL: "https://a.test/v1/a", Header: http.Header{name: {"1"}}}
			a, err := r.Access()
			return err == nil && Decide(p, nil, Request{Access: a, Tool: "shop"}, nil).Allowed()
		}
		for _, name := range append(names, "X-Odder") {
			if allowed(http.CanonicalHeaderKey(name)) {
				t.Errorf("%s: the header %s is sent", rule, name)
			}
		}
		for _, name := range append(harmless, "X-Odd") {
			if !allowed(name) {
				t.Errorf("%s: the header %s is not sent", rule, name)
			}
		}
		if got, want := allowed("X-Plan"), strings.Contains(rule, "X-Plan"); got != want {
			t.Errorf("%s: the header X-Plan: %v, want %v", rule, got, want)
		}
	}
	open := parse(t, rules("{host: a.test}"))
	if a := access(t, "GET", "https://a.test/"); !Decide(open, nil, Request{Access: a}, nil).Allowed() || slices.Contains(names, "X-Plan") {
		t.Error("a rule about hosts alone refuses a request")
	}
}
