package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/runtime/egress"
	"pgregory.net/rapid"
)

func parse(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// access is what a request of that URL asks for.
func access(t testing.TB, method, url string) egress.Access {
	t.Helper()
	a, err := (&egress.Request{Method: method, URL: url}).Access()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern string
		match   string
		not     string
	}{
		{"/", "/", "/a //"},
		{"/**", "/ /a /a/ /a/b/c", "/a//b /../a /a/. /a/..;/b"},
		{"/a", "/a /%61", "/ /A /a/ /a/b /ab"},
		{"/a/", "/a/", "/a /a/b /a//"},
		{"/a/*", "/a/b /a/%2A /a/ü /a/b%20c", "/a /a/ /a/b/ /a/b/c /b/a"},
		{"/a/*/c", "/a/b/c", "/a//c /a/c /a/b/b/c /a/b%2Fc /a/b%2fc"},
		{"/a/**", "/a /a/ /a/b /a/b/c/", "/ /b /ab /a%2Fb /A/b"},
		{"/a/*/**", "/a/b /a/b/c", "/a /a/ /a//b"},
		{"/a b", "/a%20b", "/a+b"},
		{"/a%2Ab", "/a*b /a%2ab", "/axb"},
		{"/v1/../admin2/**", "", ""}, // refused, see below
		{"/v1/**", "/v1/%25 /v1/a%20b /v1/中/ü /v1/x.y. /v1/%E4%BD%A0 /v1/a%E2%80%8Cb /v1/%F0%9F%91%A9%E2%80%8D%F0%9F%9A%80 /v1/..x%CC%81 /v1/a+b,c=d:e@f&g /v1/100%25", "/v1/..+/admin /v1/.+ /v1/+../a /v1/..%2B/a /v1/..%252B%2520/a /v1/..:/a /v1/..,/a /v1/..=/a /v1/..@/a /v1/..%22/a /v1/..%3C/a /v1/.+./a /v1/..%E2%80%8B /v1/%E2%80%8B../a /v1/.%E2%81%A0./a /v1/..%C2%AD/a /v1/..%EF%B8%8F/a /v1/..%CD%8F/a /v1/..%CC%81/a /v1/..%E1%85%A0/a /v1/..%F3%A0%80%81/a /v1/..%EF%BF%BE/a /v1/%E2%80%8B/a /v1/%25E2%2580%258B.. " +
			"/v1/%EF%B8%B0/a /v1/%EF%B8%99/a /v1/%EF%BC%852e%EF%BC%852e/a /v1/x%CD%BEy /v1/x%EF%B9%94y /v1/..%C2%A5a /v1/..%E2%82%A9a /v1/x;y=z /v1/;/a /v1/x%3b /v1/..%3f/admin /v1/x%3f /v1/x%23 /v1/x%253f%25zz /v1/..%20/admin /v1/%20 /v1/%20../a /v1/x%20 " +
			"/v1/%c0%ae%c0%ae/admin /v1/%c0%af /v1/%25c0%25ae /v1/%ff /v1/%25u002e%25u002e/a /v1/%EF%BC%8E%EF%BC%8E/a /v1/..%EF%BC%8Fa /v1/%E2%80%A5/a /v1/%C2%85 /v1/%C2%A0 /v1/../admin /v1/%2e%2e/admin /v1/%2E./admin /v1/.%2e /v1/%252e%252e/admin /v1/%25252e%25252e/a /v1/..%2fadmin " +
			`/v1/..%5cadmin /v1/%5c /v1/..;x=y/admin /v1/.;/a /v1/%00 /v1/%0a /v1/%2500 /v1/%252f /v1//admin /v1/%zz /v1/%7f`},
	} {
		p, err := ParsePattern(c.pattern)
		if strings.Contains(c.pattern, "..") {
			if err == nil {
				t.Errorf("%s is a pattern", c.pattern)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, path := range strings.Fields(c.match) {
			if !p.Match(path) {
				t.Errorf("%s does not match %s", c.pattern, path)
			}
		}
		for _, path := range strings.Fields(c.not) {
			if p.Match(path) {
				t.Errorf("%s matches %s", c.pattern, path)
			}
		}
	}
	if (Pattern{}).Match("/") || (Pattern{}).Match("") {
		t.Error("the zero pattern matches")
	}
}

// However often a path is decoded, a pattern below a folder never lets it out.
func TestNoPathLeavesItsPattern(t *testing.T) {
	p, err := ParsePattern("/v1/**")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		path := "/v1/" + rapid.StringOfN(rapid.RuneFrom([]rune(`./%25eEfFcC;?#\a `)), 1, 12, -1).Draw(t, "path")
		if !p.Match(path) {
			return
		}
		for range 6 {
			for _, segment := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '\\' }) {
				if name, _, _ := strings.Cut(segment, ";"); name == ".." || name == "." {
					t.Fatalf("%q leaves its folder", path)
				}
			}
			next := decodeOnce(path)
			if next == path {
				return
			}
			if strings.Count(next, "/")+strings.Count(next, `\`) != strings.Count(path, "/")+strings.Count(path, `\`) {
				t.Fatalf("%q has other segments when it is decoded", path)
			}
			path = next
		}
	})
}

// decodeOnce decodes every escape that is one, as lenient servers do.
func decodeOnce(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		var c byte
		if s[i] == '%' && i+2 < len(s) {
			if n, _ := fmt.Sscanf(s[i+1:i+3], "%02x", &c); n == 1 && strings.Trim(s[i+1:i+3], "0123456789abcdefABCDEF") == "" {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func TestDecide(t *testing.T) {
	operator := parse(t, head+`
permissions:
  network:
    allow:
      - {host: api.example.com, methods: [GET, POST], paths: [/v1/**]}
      - {host: .example.com, ports: [443, 8443], schemes: [https], tools: [crawl]}
      - {host: localhost, schemes: [http], ports: [8080], private: true}
      - {host: limited.test, max_calls: 2, max_bytes: 1000}
  tools: {"*": {}}
`)
	tenant := parse(t, head+`
permissions:
  network:
    allow:
      - {host: "*"}
      - {host: api.example.com, methods: [GET], paths: [/v1/users/*]}
      - {host: localhost, schemes: [http], ports: [8080]}
  tools: {lookup: {}, crawl: {}}
`)
	used := Usage{{Operator, 4}: {Calls: 1, Bytes: 900}}
	for _, c := range []struct {
		name             string
		operator, tenant *Policy
		tool, method     string
		url              string
		bytes            uint64
		want             string // "side rule line" of the last verdict, or the reason
	}{
		{"nobody has a policy", nil, nil, "lookup", "GET", "https://api.example.com/v1/x", 1, "there is no policy that allows it"},
		{"the operator's alone", operator, nil, "lookup", "GET", "https://api.example.com/v1/x", 1, "operator 1 6"},
		{"the tenant's alone", nil, tenant, "lookup", "GET", "https://other.test/", 1, "tenant 1 6"},
		{"both, each by its rule", operator, tenant, "lookup", "GET", "https://api.example.com/v1/users/7?x=..", 1, "tenant 1 6"},
		{"the tenant allows more", operator, tenant, "lookup", "GET", "https://other.test/", 1, "the operator's policy does not allow it: no rule names other.test"},
		{"another method", operator, tenant, "lookup", "DELETE", "https://api.example.com/v1/users/7", 1, "the operator's policy does not allow it: rule 1 allows GET, POST, not DELETE"},
		{"another path", operator, nil, "lookup", "GET", "https://api.example.com/v2/", 1, "the operator's policy does not allow it: rule 1 does not allow this path"},
		{"dots in the path", operator, nil, "lookup", "GET", "https://api.example.com/v1/../admin", 1, "the operator's policy does not allow it: rule 1 does not allow a path that servers could read in two ways"},
		{"another scheme", operator, nil, "lookup", "GET", "http://api.example.com/v1/", 1, "the operator's policy does not allow it: rule 1 allows https, not http"},
		{"another port", operator, nil, "lookup", "GET", "https://api.example.com:8443/v1/", 1, "the operator's policy does not allow it: rule 1 does not allow port 8443"},
		{"the rule of another tool", operator, nil, "lookup", "GET", "https://www.example.com/", 1, "the operator's policy does not allow it: rule 2 is for crawl, not for lookup"},
		{"the rule of the tool", operator, nil, "crawl", "GET", "https://www.example.com:8443/", 1, "operator 2 7"},
		{"a tool that is not named", operator, tenant, "other", "GET", "https://api.example.com/v1/users/7", 1, "the tenant's policy does not allow it: it does not name the tool other"},
		{"an address", operator, tenant, "crawl", "GET", "https://192.0.2.7/", 1, "the operator's policy does not allow it: no rule names 192.0.2.7"},
		{"no policy of the tenant", operator, None(), "lookup", "GET", "https://api.example.com/v1/x", 1, "the tenant's policy does not allow it: it is not set, so it allows no request"},
		{"the last call", operator, nil, "lookup", "GET", "https://limited.test/", 99, "operator 4 9"},
		{"too few bytes", operator, nil, "lookup", "GET", "https://limited.test/", 100, "the operator's policy does not allow it: rule 4 allows 1000 bytes in a run, and too few are left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(c.operator, c.tenant, Request{Access: access(t, c.method, c.url), Tool: c.tool, Bytes: c.bytes}, used)
			got := d.Reason()
			if d.Allowed() {
				last := d.Verdicts[len(d.Verdicts)-1]
				got = fmt.Sprint(last.Side, " ", last.Rule, " ", last.Line)
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if len(d.Verdicts) > 0 && d.File != "p.yaml" && d.File != None().File {
				t.Errorf("file %q", d.File)
			}
		})
	}
	used[Place{Operator, 4}] = Used{Calls: 2}
	d := Decide(operator, nil, Request{Access: access(t, "GET", "https://limited.test/")}, used)
	if d.Allowed() || d.Reason() != "the operator's policy does not allow it: rule 4 allows 2 requests in a run, and they have been made" {
		t.Error(d.Reason())
	}
}

func TestGrants(t *testing.T) {
	closed := parse(t, rules("{host: a.test, max_bytes: 1000}"))
	open := parse(t, rules("{host: a.test, private: true, max_bytes: 500}"))
	r := Request{Access: access(t, "GET", "https://a.test/"), Bytes: 100}
	for _, c := range []struct {
		name             string
		operator, tenant *Policy
		private          bool
		left             int64
	}{
		{"the operator opens", open, nil, true, 400},
		{"the tenant cannot open", nil, open, false, 400},
		{"both open", open, open, true, 400},
		{"the tenant does not want it", open, closed, false, 400},
		{"the operator does not want it", closed, open, false, 400},
		{"nobody opens", closed, closed, false, 900},
	} {
		d := Decide(c.operator, c.tenant, r, nil)
		if !d.Allowed() || d.Grant.Private != c.private || d.Grant.MaxResponse != c.left || d.Grant.Plain {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestSecretsOfARequest(t *testing.T) {
	const allow = `
permissions:
  network:
    allow:
      - {host: a.test, schemes: [http, https], ports: [443, 80, 8443]}
      - {host: b.test}
      - {host: in.test, schemes: [http], private: true}
`
	tenant := parse(t, head+allow+`
secrets:
  - {name: K, audience: [a.test, in.test], header: Authorization}
  - {name: K, audience: [a.test], query: key}
  - {name: L, audience: [.test], body: true}
`)
	strict := parse(t, head+allow+"secrets: [{name: K, audience: [a.test], header: Authorization}]")
	plain := parse(t, head+allow)
	header := func(name string) egress.Placeholder {
		return egress.Placeholder{Name: name, Place: egress.PlaceHeader, Field: "Authorization"}
	}
	query := egress.Placeholder{Name: "K", Place: egress.PlaceQuery, Field: "key"}
	body := egress.Placeholder{Name: "L", Place: egress.PlaceBody}
	for _, c := range []struct {
		name             string
		operator, tenant *Policy
		url              string
		secrets          []egress.Placeholder
		want             string // the reason; "" for allowed
		plain            bool
	}{
		{"bound", plain, tenant, "https://a.test/", []egress.Placeholder{header("K"), query, body}, "", true},
		{"none, at a host that has one", plain, tenant, "https://a.test/", nil, "", true},
		{"none, at a host with another port", plain, tenant, "https://a.test:8443/", nil, "", false},
		{"both sides bind it", strict, tenant, "https://a.test/", []egress.Placeholder{header("K")}, "", true},
		{"another host", plain, tenant, "https://b.test/", []egress.Placeholder{header("K")}, "the tenant's policy does not allow it: the secret K is not for https://b.test", false},
		{"another port", plain, tenant, "https://a.test:8443/", []egress.Placeholder{header("K")}, "the tenant's policy does not allow it: the secret K is not for https://a.test:8443", false},
		{"another place", plain, tenant, "https://a.test/", []egress.Placeholder{{Name: "L", Place: egress.PlaceHeader, Field: "X-A"}}, "the tenant's policy does not allow it: the secret L may not stand in the header X-A", false},
		{"another header", plain, tenant, "https://a.test/", []egress.Placeholder{{Name: "K", Place: egress.PlaceHeader, Field: "X-A"}}, "the tenant's policy does not allow it: the secret K may not stand in the header X-A", false},
		{"another parameter", plain, tenant, "https://a.test/", []egress.Placeholder{{Name: "K", Place: egress.PlaceQuery, Field: "q"}}, "the tenant's policy does not allow it: the secret K may not stand in this parameter of the query", false},
		{"in the body", plain, tenant, "https://a.test/", []egress.Placeholder{{Name: "K", Place: egress.PlaceBody}}, "the tenant's policy does not allow it: the secret K may not stand in the body", false},
		{"without TLS", plain, tenant, "http://a.test/", []egress.Placeholder{header("K")}, "the tenant's policy does not allow it: the secret K is not sent without TLS", false},
		{"in the operator's own network", plain, nil, "http://in.test/", []egress.Placeholder{header("K")}, "the operator's policy does not allow it: it has no secret K", false},
		{"in a private network without TLS", tenant, nil, "http://in.test/", []egress.Placeholder{header("K")}, "", true},
		{"nobody has it", plain, plain, "https://a.test/", []egress.Placeholder{header("K")}, "the tenant's policy does not allow it: it has no secret K", false},
		{"one of two", plain, tenant, "https://a.test/", []egress.Placeholder{header("K"), header("M")}, "the tenant's policy does not allow it: it has no secret M", false},
		{"the operator allows less", strict, tenant, "https://a.test/", []egress.Placeholder{query}, "the operator's policy does not allow it: the secret K may not stand in this parameter of the query", false},
		{"the operator has others", strict, tenant, "https://a.test/", []egress.Placeholder{body}, "the operator's policy does not allow it: it has no secret L", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := access(t, "GET", c.url)
			a.Secrets = c.secrets
			d := Decide(c.operator, c.tenant, Request{Access: a}, nil)
			if d.Reason() != c.want || d.Allowed() != (c.want == "") || d.Grant.Plain != c.plain {
				t.Errorf("%q, plain %t", d.Reason(), d.Grant.Plain)
			}
		})
	}
}

func TestDecideCall(t *testing.T) {
	p := parse(t, head+`
permissions:
  tools:
    "*":
      arguments: {type: object, properties: {path: {type: string, pattern: "^[a-z]+(?:/[a-z]+)*$", maxLength: 10}}}
    charge:
      arguments:
        type: object
        required: [amount]
        properties:
          amount: {type: number, minimum: 1, maximum: 9007199254740993}
          currency: {enum: [eur, usd]}
          test:
            const: true
          admin: false
          items: {type: array, items: {type: object, properties: {price: {type: number, maximum: 0.1}}}}
          deep: {type: array, prefixItems: [{type: object, properties: {/%: {type: object, properties: {"~": {const: {a: [1, null]}}}}}}]}
    open: {arguments: {type: object, additionalProperties: {type: integer}}}
    closed: {arguments: {type: object, properties: {a: {}}, additionalProperties: false}}
`)
	for _, c := range []struct{ tool, arguments, want string }{
		{"charge", `{"amount":1}`, ""},
		{"charge", `{"amount":9007199254740993,"currency":"eur","test":true,"items":[{"price":0.1},{}],"path":"ab/c"}`, ""},
		{"charge", `{"amount":9007199254740994}`, "the argument /amount must match maximum: 9007199254740993"},
		{"charge", `{"amount":9007199254740992.0}`, ""},
		{"charge", `{"amount":1e400000}`, "the arguments are not JSON"},
		{"charge", `{"amount":0.9999999}`, "the argument /amount must match minimum: 1"},
		{"charge", `{"amount":-0}`, "the argument /amount must match minimum: 1"},
		{"charge", `{"amount":"1"}`, `the argument /amount must match type: "number"`},
		{"charge", `{"amount":null}`, `the argument /amount must match type: "number"`},
		{"charge", `{}`, `the arguments must match required: ["amount"]`},
		{"charge", `[1]`, `the arguments must match type: "object"`},
		{"charge", `{"amount":1,"amount":2}`, "the arguments are not JSON"},
		{"charge", `{"amount":1,"\u0061mount":20000}`, "the arguments are not JSON"},
		{"charge", `{"AMOUNT":1}`, `the arguments must match required: ["amount"]`},
		{"charge", `{"amount":1,"currency":"EUR"}`, `the argument /currency must match enum: ["eur","usd"]`},
		{"charge", `{"amount":1,"test":"true"}`, "the argument /test must match const: true"},
		{"charge", `{"amount":1,"admin":null}`, "the argument /admin must not be there"},
		{"charge", `{"amount":1,"items":[{"price":0.1},{"price":0.10000000000000002}]}`, "the argument /items/1/price must match maximum: 0.1"},
		{"charge", `{"amount":1,"items":{"a":{"price":1}}}`, `the argument /items must match type: "array"`},
		{"charge", `{"amount":1,"deep":[{"/%":{"~":{"a":[1.0,null]}}}]}`, ""},
		{"charge", `{"amount":1,"deep":[{"/%":{"~":{"a":[1,null],"b":1}}}]}`, `the argument /deep/0/~1%/~0 must match const: {"a":[1,null]}`},
		{"other", `{"path":"a/b"}`, ""},
		{"other", `{"path":"a/b\n"}`, `the argument /path must match pattern: "^[a-z]+(?:/[a-z]+)*$"`},
		{"other", `{"path":7}`, `the argument /path must match type: "string"`},
		{"charge", `{"amount":1,"path":"abcdefghijk"}`, "the argument /path must match maxLength: 10"},
		{"open", `{"a":1,"b":1.5}`, `the argument /b must match type: "integer"`},
		{"open", `{"` + strings.Repeat("é", 1<<10) + `":"x"}`, "the argument /" + strings.Repeat("é", 99) + `... must match type: "integer"`},
		{"closed", `{"a":1}`, ""},
		{"closed", `{"hunter2":1}`, "the arguments must match additionalProperties: false"},
	} {
		d, ok := DecideCall(p, nil, c.tool, []byte(c.arguments))
		want := c.want
		if want != "" {
			want = "the operator's policy does not allow it: " + want
		}
		if !ok || d.Reason() != want {
			t.Errorf("%s %s: %q, want %q", c.tool, c.arguments, d.Reason(), want)
		}
	}
	if d, _ := DecideCall(p, nil, "charge", []byte(`{"amount":1,"test":7}`)); d.Line != 15 {
		t.Errorf("line %d, want that of the keyword", d.Line)
	}
	none := parse(t, head)
	if d, ok := DecideCall(none, nil, "any", []byte(`{}`)); ok || len(d.Verdicts) > 0 {
		t.Errorf("a policy that says nothing of tools decided: %v", d)
	}
	if d, _ := DecideCall(none, p, "charge", []byte(`{}`)); d.Verdicts[0].Side != Tenant || d.Verdicts[0].Line != 10 {
		t.Errorf("%+v", d)
	}
	only := parse(t, head+"permissions: {tools: {a: {}}}")
	if d, _ := DecideCall(only, p, "b", []byte(`{}`)); len(d.Verdicts) != 1 || d.Reason() != "the operator's policy does not allow it: it does not name the tool b" {
		t.Errorf("%+v", d)
	}
}

// What was decided once is decided the same way again.
func TestDecisionsAreFunctions(t *testing.T) {
	p := parse(t, full)
	for range 50 {
		for _, url := range []string{"https://api.stripe.com/v1/charges/7", "https://www.example.com/", "http://localhost:8081/"} {
			r := Request{Access: access(t, "GET", url), Tool: "charge"}
			if a, b := fmt.Sprint(Decide(p, p, r, nil)), fmt.Sprint(Decide(p, p, r, nil)); a != b {
				t.Fatalf("%s and %s", a, b)
			}
		}
		a, _ := DecideCall(p, p, "charge", []byte(`{"amount":0,"currency":"x","test":1}`))
		if a.Reason() != "the operator's policy does not allow it: the argument /amount must match minimum: 1" {
			t.Fatal(a.Reason())
		}
	}
}

// A denial has a line also where nothing in the file decides, but for the record, whose
// verdicts have it of what decided alone.
func TestDenialsHaveALine(t *testing.T) {
	full := parse(t, head+`permissions:
  network:
    allow:
      - {host: a.test}
  tools:
    t: {}
secrets:
  - {name: KEY, audience: [a.test], header: Authorization}
`)
	empty := parse(t, head+"permissions: {}\n")
	none := parse(t, "\n"+head)
	for _, c := range []struct {
		name   string
		policy *Policy
		tool   string
		url    string
		line   int
	}{
		{"no such tool", full, "other", "https://a.test/", 6},
		{"no such host", full, "t", "https://b.test/", 4},
		{"no such secret", full, "t", "https://a.test/?k={{secret:OTHER}}", 8},
		{"no rules", empty, "t", "https://a.test/", 2},
		{"nothing", none, "t", "https://a.test/", 1},
	} {
		d := Decide(c.policy, nil, Request{Access: access(t, "GET", c.url), Tool: c.tool}, nil)
		if last := d.Verdicts[len(d.Verdicts)-1]; d.Allowed() || d.Line != c.line || last.Line != 0 {
			t.Errorf("%s: line %d, in the record %d, want %d: %s", c.name, d.Line, last.Line, c.line, d.Reason())
		}
	}
	for tool, arguments := range map[string]string{"other": "{}", "t": "no JSON"} {
		if d, _ := DecideCall(full, nil, tool, []byte(arguments)); d.Allowed() || d.Line != 6 {
			t.Errorf("a call of %s with %s: line %d, want 6", tool, arguments, d.Line)
		}
	}
	if d := Decide(full, nil, Request{Access: access(t, "GET", "https://a.test/"), Tool: "t"}, nil); d.Line != 5 {
		t.Errorf("what is allowed: line %d, want 5", d.Line)
	}
}

// TestLimitsOfAnExchange: both sides bound it, and a tenant cannot go beyond the defaults
// that hold where the operator's rule names no bound.
func TestLimitsOfAnExchange(t *testing.T) {
	rule := func(keys string) *Policy {
		return parse(t, head+"permissions: {network: {allow: [{host: a.b"+keys+"}]}}")
	}
	const more, less = ", timeout: 2m, max_request: 2MiB, max_response: 16MiB", ", timeout: 2s, max_request: 1KiB, max_response: 2KiB"
	q := Request{Access: access(t, "GET", "https://a.b/"), Tool: "t"}
	large := egress.Limits{Timeout: 2 * time.Minute, Request: 2 << 20, Response: 16 << 20}
	small := egress.Limits{Timeout: 2 * time.Second, Request: 1 << 10, Response: 2 << 10}
	standard := egress.Limits{Timeout: egress.DefaultTimeout, Request: egress.DefaultMaxRequestBytes, Response: egress.DefaultMaxResponseBytes}
	for _, c := range []struct {
		operator, tenant *Policy
		want             egress.Limits
	}{
		{rule(more), nil, large}, {rule(less), nil, small}, {rule(""), nil, egress.Limits{}},
		{rule(more), rule(""), large}, {rule(more), rule(less), small}, {rule(less), rule(more), small},
		{rule(""), rule(more), standard}, {rule(""), rule(less), small},
	} {
		if got := Decide(c.operator, c.tenant, q, nil).Grant.Limits; got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}
