package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/spec"
)

const full = `# yaml-language-server: $schema=../spec/policy.schema.json
version: "1.0"
description: What the shop's tools may do.
permissions:
  network:
    allow:
      - host: API.stripe.com
        methods: [POST, GET, POST]
        paths: [/v1/charges/*, /v1/charges]
        tools: [charge]
        max_calls: 20
        max_bytes: 1MiB
      - {host: localhost, schemes: [http], ports: [8080, 8081], private: true}
      - {host: .example.com, schemes: [https, http]}
      - {host: "*", methods: [GET]}
  tools:
    "*":
      arguments:
        {type: object, properties: {path: {type: string, pattern: "^[a-z/]+$", maxLength: 100}}}
    charge:
      arguments:
        type: object
        description: At most a hundred euros.
        required: [amount]
        properties: {amount: {type: number, minimum: 1, maximum: 10000}, currency: {enum: [eur, usd]}, test: {const: true}, admin: false}
    lookup: {}
resources:
  limits: {fuel: 1G, memory: 64MiB, deadline: 10s, input: 1MiB, output: 2MiB, log: 64KiB, effects: 100, effect_bytes: 8MiB}
secrets:
  - {name: STRIPE_KEY, audience: [api.stripe.com], header: authorization}
  - {name: STRIPE_KEY, audience: [".example.com:8443", localhost], query: key}
  - {name: OTHER, audience: [api.stripe.com], body: true}
`

var ignoreCompiled = cmp.Options{
	cmpopts.IgnoreUnexported(Policy{}, Rule{}, ToolRule{}, Binding{}),
}

func TestParse(t *testing.T) {
	got, err := Parse("policy.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := &Policy{
		File: "policy.yaml", Description: "What the shop's tools may do.",
		Network: []Rule{
			{Host: "api.stripe.com", Schemes: []string{"https"}, Methods: []string{"GET", "POST"}, Paths: []string{"/v1/charges", "/v1/charges/*"},
				Tools: []string{"charge"}, MaxCalls: 20, MaxBytes: 1 << 20, Line: 7},
			{Host: "localhost", Schemes: []string{"http"}, Ports: []uint16{8080, 8081}, Private: true, Line: 13},
			{Host: ".example.com", Schemes: []string{"http", "https"}, Line: 14},
			{Host: "*", Schemes: []string{"https"}, Methods: []string{"GET"}, Line: 15},
		},
		Tools: map[string]ToolRule{
			"*": {Line: 17, Arguments: raw(t, `{"type":"object","properties":{"path":{"type":"string","pattern":"^[a-z/]+$","maxLength":100}}}`)},
			"charge": {Line: 20, Arguments: raw(t, `{"type":"object","description":"At most a hundred euros.","required":["amount"],
				"properties":{"amount":{"type":"number","minimum":1,"maximum":10000},"currency":{"enum":["eur","usd"]},"test":{"const":true},"admin":false}}`)},
			"lookup": {Line: 26},
		},
		Limits: event.SandboxLimits{Fuel: 1e9, MemoryPages: 1024, TimeoutMs: 10000, InputBytes: 1 << 20, OutputBytes: 2 << 20, LogBytes: 64 << 10, Effects: 100, EffectBytes: 8 << 20},
		Secrets: []Binding{
			{Name: "STRIPE_KEY", Audience: []string{"api.stripe.com"}, Header: "Authorization", Line: 30},
			{Name: "STRIPE_KEY", Audience: []string{".example.com:8443", "localhost"}, Query: "key", Line: 31},
			{Name: "OTHER", Audience: []string{"api.stripe.com"}, Body: true, Line: 32},
		},
	}
	if diff := cmp.Diff(want, got, ignoreCompiled); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func raw(t *testing.T, doc string) canon.Raw {
	t.Helper()
	n, err := config.Parse("", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	raw, _, err := n.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

const head = "version: \"1.0\"\n"

func rules(text string) string { return head + "permissions: {network: {allow: [" + text + "]}}" }
func arguments(text string) string {
	return head + "permissions: {tools: {t: {arguments: {type: object, properties: {" + text + "}}}}}"
}
func secrets(text string) string { return head + "secrets: [" + text + "]" }

func good() map[string]string {
	return map[string]string{
		"everything":              full,
		"nothing but its version": head,
		"JSON":                    `{"version":"1.0","permissions":{"network":{"allow":[]},"tools":{}},"resources":{"limits":{}},"secrets":[]}`,
		"an address":              rules("{host: '[2001:db8::7]', ports: [1, 65535]}"),
		"an address in the net":   rules("{host: 192.168.0.7, private: true}"),
		"paths":                   rules("{host: a.b, paths: [/, /**, /a/, /a/**, '/*/b', /a%2Ab, '/ü']}"),
		"methods":                 rules("{host: a.b, methods: [GET, M-SEARCH]}"),
		"arguments":               arguments("a: true, b: false, c: {const: null}, d: {enum: [1, [a], {b: 2.5}, null]}, e: {type: integer, minimum: 1, exclusiveMaximum: 9.5}, f: {type: array, items: {type: number, exclusiveMinimum: -1.5, maximum: 18446744073709551615}, maxItems: 9}"),
		"a pattern with flags":    arguments("a: {type: string, pattern: '(?i)^(?:a|b)$'}"),
		"a schema of everything":  head + "permissions: {tools: {t: {arguments: {}}}}",
		"a limit":                 head + "resources: {limits: {memory: 4GiB}}",
	}
}

func TestGood(t *testing.T) {
	for name, text := range good() {
		if _, err := Parse("policy.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bad are files that are refused, with the line, what is said and what may help.
// What a schema cannot see is marked.
var bad = map[string]struct {
	text, want string
	unseen     bool
}{
	"no version":             {"permissions: {}", `1:1: the required key "version" is missing`, false},
	"a number as a version":  {"version: 1.0", "1:10: this must be the version of the format; hint: write version: \"1.0\", with the quotes", false},
	"a later version":        {"version: \"2.0\"", "1:10: this must be the version", false},
	"an unknown key":         {head + "permision: {}", `2:1: unknown key "permision"; hint: did you mean "permissions"?`, false},
	"a deny list":            {head + "permissions: {network: {deny: []}}", `unknown key "deny"; hint: the keys are allow`, false},
	"a rule without a host":  {rules("{methods: [GET]}"), `the required key "host" is missing`, false},
	"a host with a port":     {rules("{host: 'a.b:8080'}"), "a host is written without its port; hint: write them as in: ports: [8443]", false},
	"a URL":                  {rules("{host: 'https://a.b/c'}"), "write HOST or HOST:PORT, without scheme and path", false},
	"a shell's wildcard":     {rules("{host: '*.a.b'}"), `write ".a.b"`, false},
	"a short address":        {rules("{host: '127.1'}"), "neither a host name nor an IPv4 address", false},
	"another scheme":         {rules("{host: a.b, schemes: [ftp]}"), "this must be http or https", false},
	"a scheme alone":         {rules("{host: a.b, schemes: https}"), "this must be a list, not text", false},
	"port zero":              {rules("{host: a.b, ports: [0]}"), "this must be a port, 1 to 65535", false},
	"a port too many":        {rules("{host: a.b, ports: [65536]}"), "this must be a port", false},
	"a method in lower case": {rules("{host: a.b, methods: [get]}"), "write it in capitals", false},
	"no methods":             {rules("{host: a.b, methods: []}"), "this list is empty; hint: omit the key for no restriction", false},
	"no paths":               {rules("{host: a.b, paths: []}"), "this list is empty", false},
	"a path without a slash": {rules("{host: a.b, paths: [v1]}"), "a path begins with a slash", false},
	"a path with a query":    {rules("{host: a.b, paths: ['/a?b']}"), "neither a query nor a fragment", false},
	"a long exchange":        {rules("{host: a.b, timeout: 11m}"), "at most 10m", true},
	"a large request":        {rules("{host: a.b, max_request: 17MiB}"), "at most 16MiB", true},
	"a large response":       {rules("{host: a.b, max_response: 1GiB}"), "at most 16MiB", true},
	"a path with parameters": {rules("{host: a.b, paths: ['/a;b']}"), "this could be read as another path", false},
	"a path with dots":       {rules("{host: a.b, paths: [/a/../b]}"), "this could be read as another path", true},
	"encoded dots":           {rules("{host: a.b, paths: [/a/%2e%2E/b]}"), "this could be read as another path", true},
	"an empty segment":       {rules("{host: a.b, paths: [/a//b]}"), "this could be read as another path", false},
	"an encoded slash":       {rules("{host: a.b, paths: [/a%2fb]}"), "this could be read as another path", true},
	"a star in a segment":    {rules("{host: a.b, paths: ['/a*']}"), "* stands for a whole segment", false},
	"stars in the middle":    {rules("{host: a.b, paths: ['/a/**/b']}"), "** for all that follow", false},
	"a bad encoding":         {rules("{host: a.b, paths: [/%zz]}"), "this could be read as another path", false},
	"private names":          {rules("{host: .a.b, private: true}"), "only a rule for one host can open private addresses", false},
	"anything private":       {rules("{host: '*', private: true}"), "only a rule for one host", false},
	"no calls":               {rules("{host: a.b, max_calls: 0}"), "this must be 1 or more", false},
	"calls below zero":       {rules("{host: a.b, max_calls: -1}"), "this must be 1 or more", false},
	"half a call":            {rules("{host: a.b, max_calls: 1.5}"), "this must be a whole number; hint: write a number, or one with k, M, G or T", false},
	"a line as a header":     {rules("{host: a.b, headers: ['X: y']}"), "this must be the name of a header", false},
	"no headers":             {rules("{host: a.b, headers: []}"), "this list is empty", false},
	"too many bytes":         {rules("{host: a.b, max_bytes: 99999999999999999999}"), "is too large; hint: write a smaller one", true},
	"the name of a tool":     {head + "permissions: {tools: {'a b': {}}}", "this must be the name of a tool", false},
	"a tool that is null":    {head + "permissions:\n  tools:\n    t:\n", "4:5: this must be a map, but is empty", false},
	"a pointer":              {head + "permissions: {tools: {t: {arguments: {/amount: {maximum: 1}}}}}", "2:39: this is a JSON pointer, and arguments is a JSON Schema; hint: write arguments: {type: object, ", false},
	"an unknown keyword":     {arguments("a: {type: number, maximun: 1}"), `unknown key "maximun"; hint: did you mean "maximum"?`, false},
	"a maximum of text":      {arguments("a: {type: number, maximum: '1'}"), "this must be a number", false},
	"a maximum of anything":  {arguments("a: {maximum: 1}"), "this bounds numbers alone, so any other value would be allowed; hint: write it beside type: number", false},
	"a maximum of a text":    {arguments("a: {type: string, maximum: 1}"), "this bounds numbers alone", false},
	"a pattern of anything":  {arguments("a: {pattern: ^a$}"), "this bounds texts alone", false},
	"items of anything":      {arguments("a: {items: false}"), "this bounds arrays alone", false},
	"members of anything":    {head + "permissions: {tools: {t: {arguments: {required: [a]}}}}", "this bounds objects alone", false},
	"a type":                 {arguments("a: {type: text}"), "this must be object, array, string", false},
	"a bad expression":       {arguments("a: {type: string, pattern: '^([$'}"), "this must be a regular expression: error parsing regexp: missing closing ]: `[$`", true},
	"half an expression":     {arguments("a: {type: string, pattern: '^a|b$'}"), "this matches texts with anything before or behind it: write ^(?:PATTERN)$", true},
	"an expression of lines": {arguments("a: {type: string, pattern: '(?m)^a$'}"), "this matches texts with anything before", true},
	"a pattern of nothing":   {arguments("a: {type: string, pattern: ''}"), "this matches texts with anything before", true},
	"no values":              {arguments("a: {enum: []}"), "this list is empty", false},
	"one key twice":          {arguments("a: {type: object, required: [b, b]}"), "this schema is not valid", true},
	"an integer too large":   {arguments("a: {type: number, maximum: 18446744073709551616}"), "too large", true},
	"a secret's value":       {secrets("{name: K, audience: [a.b], header: X, value: hunter2}"), "never a value; hint: give it to the host with: starling-host secret set", false},
	"a secret's name":        {secrets("{name: K-1, audience: [a.b], header: X}"), "this must be the name of a secret", false},
	"lower case":             {secrets("{name: api_token, audience: [a.b], header: X}"), "this must be the name of a secret: 1 to 64 of A-Z", false},
	"a secret for all":       {secrets("{name: K, audience: ['*'], header: X}"), "a secret for everybody is none", false},
	"a secret for nobody":    {secrets("{name: K, audience: [], header: X}"), "this list is empty", false},
	"a secret without place": {secrets("{name: K, audience: [a.b]}"), "a secret has one place", false},
	"a body that is not":     {secrets("{name: K, audience: [a.b], header: X, body: false}"), "this can only be true", false},
	"a secret in two places": {secrets("{name: K, audience: [a.b], header: X, body: true}"), "make an entry of each", false},
	"a header's name":        {secrets("{name: K, audience: [a.b], header: 'X:'}"), "this must be the name of a header", false},
	"too much memory":        {head + "resources: {limits: {memory: 5GiB}}", "this must be at most 4GiB", true},
	"a memory without unit":  {head + "resources: {limits: {memory: 64Mi}}", "such as 64MiB", false},
}

func TestBad(t *testing.T) {
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("policy.yaml", []byte(c.text))
			var at *config.Error
			if !errors.As(err, &at) {
				t.Fatalf("error %v (%T)", err, err)
			}
			if said := at.Message() + "; hint: " + at.Hint; !strings.Contains(said, c.want) {
				t.Errorf("error %q does not say %q", said, c.want)
			}
			if at.Line == 0 || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v", err)
			}
		})
	}
}

func compiled(t *testing.T) *tool.Schema {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(spec.PolicySchema(), &doc); err != nil {
		t.Fatal(err)
	}
	// CompileSchema refuses a schema that refers to itself, so this one ends below "inner".
	defs := doc["$defs"].(map[string]any)
	inner, _ := json.Marshal(defs["argument"])
	defs["inner"] = json.RawMessage(strings.ReplaceAll(string(inner), "#/$defs/part", "#/$defs/any"))
	defs["any"] = true
	defs["part"] = json.RawMessage(`{"oneOf":[{"type":"boolean"},{"$ref":"#/$defs/inner"}]}`)
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tool.CompileSchema(work.Trusted(t.Context()), text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaAgrees has the schema judge the same files as the parser.
func TestSchemaAgrees(t *testing.T) {
	s := compiled(t)
	judge := func(text string) error {
		n, err := config.Parse("policy.yaml", []byte(text))
		if err != nil {
			return nil // it is no YAML of ours, which no schema sees
		}
		doc, err := json.Marshal(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		return s.Check(doc)
	}
	for name, text := range good() {
		if err := judge(text); err != nil {
			t.Errorf("%s: the schema refuses what the parser accepts: %v", name, err)
		}
	}
	for name, c := range bad {
		if err := judge(c.text); (err == nil) != c.unseen {
			t.Errorf("%s: the schema says %v", name, err)
		}
	}
}

// TestSchemaHasEveryKey finds keys that were added in one place only.
func TestSchemaHasEveryKey(t *testing.T) {
	type object struct {
		Properties map[string]json.RawMessage
		Defs       map[string]object `json:"$defs"`
	}
	var s object
	if err := json.Unmarshal(spec.PolicySchema(), &s); err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{
		"rule": rules("{host: a.b, %s: }"), "argument": arguments("a: {%s: }"), "secret": secrets("{name: K, audience: [a.b], %s: }"),
		"limits": head + "resources: {limits: {%s: }}",
	} {
		if len(s.Defs[where].Properties) == 0 {
			t.Errorf("the schema has no %s", where)
		}
		for key := range s.Defs[where].Properties {
			if _, err := Parse("p", fmt.Appendf(nil, text, key)); err != nil && strings.Contains(err.Error(), "unknown key") {
				t.Errorf("the schema has %q: %v", key, err)
			}
		}
	}
	for where, want := range map[string]int{"rule": 14, "argument": 16, "secret": 6, "limits": 8} {
		if got := len(s.Defs[where].Properties); got != want {
			t.Errorf("the schema's %s has %d keys, and 'everything' was written for %d", where, got, want)
		}
	}
}

// TestPatternsAreWhole tries each clause of what makes a pattern match a whole text alone.
func TestPatternsAreWhole(t *testing.T) {
	for _, pattern := range []string{"cus_[0-9]+$", "^cus_[0-9]+", "cus_[0-9]+", "^a|b$", "(?m)^a$", "^(?m:a$)", "(?m:^a)$", "", "^", "$", "^a", "a$", "\\Aa", "a\\z", "^a$|b", "(^a$)?"} {
		if err := checkPattern(work.For(t.Context(), len(pattern)), pattern); err == nil {
			t.Errorf("%q is accepted", pattern)
		}
	}
	for _, pattern := range []string{"^a$", "^(?:a|b)$", "\\Acus_[0-9]+\\z", "^$"} {
		if err := checkPattern(work.For(t.Context(), len(pattern)), pattern); err != nil {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

func TestDigest(t *testing.T) {
	digest := func(text string) string {
		p, err := Parse("any", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p.Digest().String()
	}
	same := rules("{host: A.b, methods: [GET, POST], paths: [/a, /b]}")
	for name, text := range map[string]string{
		"a comment":   "# hello\n" + same,
		"other order": rules("{paths: [/b, /a, /a], methods: [POST, GET], schemes: [https], host: a.b}"),
		"a default":   rules("{host: a.b, methods: [GET, POST], paths: [/a, /b], private: false}"),
	} {
		if digest(text) != digest(same) {
			t.Errorf("%s changes the digest", name)
		}
	}
	seen := map[string]string{digest(same): "the rule"}
	for name, text := range map[string]string{
		"another host":     rules("{host: a.c, methods: [GET, POST], paths: [/a, /b]}"),
		"a header":         rules("{host: a.b, methods: [GET, POST], paths: [/a, /b], headers: [x-plan]}"),
		"a bound":          rules("{host: a.b, methods: [GET, POST], paths: [/a, /b], max_calls: 1}"),
		"nothing":          head,
		"no tools":         head + "permissions: {tools: {}}",
		"a tool":           head + "permissions: {tools: {t: {}}}",
		"an argument":      arguments("a: {type: number, maximum: 1}"),
		"another maximum":  arguments("a: {type: number, maximum: 1.5}"),
		"a limit":          head + "resources: {limits: {fuel: 1}}",
		"a secret":         secrets("{name: K, audience: [a.b], header: X}"),
		"another audience": secrets("{name: K, audience: [a.b, a.c], header: X}"),
	} {
		if other, ok := seen[digest(text)]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[digest(text)] = name
	}
}

const fullDigest = "1276da1131dd2ba0d89e780676b26acfb1ac147846e6bdaec287c380222f18cb"

// The digest is in logs, so it must not change from one version to the next.
func TestDigestIsStable(t *testing.T) {
	p, err := Parse("any", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Digest().String(); got != fullDigest {
		t.Errorf("digest %s, want %s", got, fullDigest)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := Load(path); err != nil || p.File != path {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := Load(filepath.Dir(path)); err == nil || !strings.HasSuffix(err.Error(), " is a directory") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Load(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestNarrow(t *testing.T) {
	a, err := Parse("a", []byte(head+"resources: {limits: {fuel: 10, memory: 1MiB}}"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse("b", []byte(head+"resources: {limits: {fuel: 20, deadline: 1s}}"))
	if err != nil {
		t.Fatal(err)
	}
	got := Narrow(event.SandboxLimits{Fuel: 15, MemoryPages: 8, Depth: 7}, a, nil, b)
	if want := (event.SandboxLimits{Fuel: 10, MemoryPages: 8, Depth: 7, TimeoutMs: 1000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestLargePatterns refuses patterns that would become large, before they do: no
// policy takes much memory to read, whether it is refused or not.
func TestLargePatterns(t *testing.T) {
	write := func(patterns ...string) string {
		var b strings.Builder
		b.WriteString(head + "permissions:\n  tools:\n")
		for i, p := range patterns {
			fmt.Fprintf(&b, "    t%d: {arguments: {type: object, properties: {a: {type: string, pattern: '^(?:%s)$'}}}}\n", i, p)
		}
		return b.String()
	}
	for name, c := range map[string]struct{ text, want string }{
		"usual":            {write(`[a-z][a-z0-9-]{0,63}`, `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, `.{1,500}`), ""},
		"many usual":       {write(slices.Repeat([]string{`[a-z0-9-]{1,64}`}, 100)...), ""},
		"one large":        {write("ok", strings.Repeat("x{1000}", 20)), `:5:`},
		"nested":           {write("((x{10}){10}){10}{3}"), `this`},
		"many large":       {write(slices.Repeat([]string{"x{1000}"}, 60)...), "too large together"},
		"very many large":  {write(slices.Repeat([]string{"[ab]{998}"}, 1400)...), "too large together"},
		"letters":          {write(`\pL[\pL\pN -]*`), ""},
		"many letters":     {write(slices.Repeat([]string{`\pL{1,60}`}, 600)...), "too large together"},
		"a long text":      {write(strings.Repeat(`\pL`, 9000)), ": the pattern is too large"},
		"an empty repeat":  {write("(){900}"), ""},
		"deep and endless": {write(strings.Repeat("(", 900) + "x*" + strings.Repeat(")*", 900)), "this"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("p.yaml", []byte(c.text))
		runtime.ReadMemStats(&after)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s: takes %d MiB", name, took>>20)
		}
	}
}
