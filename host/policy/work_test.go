package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Both the arguments and the policy may come from somebody who wants a decision to take
// long. Each of these would take minutes to hours.
func TestNoDecisionTakesLong(t *testing.T) {
	const large = 400_000
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	list := `{"a":[` + strings.Repeat("1,", large) + `7]}`
	items := func(keywords string) string { return "a: {type: array, items: {" + keywords + "}}" }
	const tooMuch = "too large to check against the policy's schema"
	for _, c := range []struct{ name, properties, document, want string }{
		{"many values", items("type: integer, minimum: 0"), `{"a":[` + strings.Repeat("1,", 80_000) + `7]}`, ""},
		{"more values", items("type: integer, minimum: 0"), list, tooMuch},
		{"many values of which each is one of many", items("enum: [" + many(5_000, "%d,") + "1]"), list, tooMuch},
		{"many large texts in large patterns", items("type: string, pattern: '^(.*)(.*)(.*)[ab]{900}$'"), `{"a":[` + strings.Repeat(`"`+strings.Repeat("ab", 20_000)+`",`, 24) + `1]}`, tooMuch},
	} {
		p, err := Parse("p", []byte("version: \"1.0\"\npermissions: {tools: {shop: {arguments: {type: object, properties: {"+c.properties+"}}}}}\n"))
		if err != nil {
			t.Fatalf("%s: %.300v", c.name, err)
		}
		d, _ := DecideCall(p, nil, "shop", []byte(c.document))
		if c.want == "" && !d.Allowed() || !strings.Contains(d.Reason(), c.want) {
			t.Errorf("%s: %.300s", c.name, d.Reason())
		}
	}
}

// A path that is encoded thousands of times over is of no pattern, and that is known
// soon.
func TestAPathThatIsEncodedOverAndOver(t *testing.T) {
	p, err := ParsePattern("/v1/**")
	if err != nil {
		t.Fatal(err)
	}
	for times, want := range map[int]bool{0: true, 14: true, 16: false, 8000: false} {
		if got := p.Match("/v1/%" + strings.Repeat("25", times) + "41"); got != want {
			t.Errorf("encoded %d times: %v", times, got)
		}
	}
	rules := strings.Repeat("{host: a.test, paths: [/v1/*]},", 10_000)
	policy, err := Parse("p", []byte("version: \"1.0\"\npermissions: {network: {allow: ["+strings.TrimSuffix(rules, ",")+"]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	q := Request{Tool: "shop"}
	q.Scheme, q.Host, q.Port, q.Method, q.Path = "https", "a.test", 443, "GET", "/"+strings.Repeat("%41/", 4000)
	if d := Decide(policy, nil, q, nil); d.Allowed() || !strings.Contains(d.Reason(), "does not allow this path") {
		t.Errorf("%+v", d)
	}
}

// A policy of many parts is read in ten times the time of a tenth of it, and not in a
// hundred times: the largest file would take half a minute. On a busy machine a
// measurement may be disturbed, but not each of them.
func TestAPolicyOfManyParts(t *testing.T) {
	const many = 40_000
	var small, large time.Duration
	for range 3 {
		small, large = readingOf(t, many/10), readingOf(t, many)
		if large < 40*small {
			break
		}
	}
	t.Logf("%d tools took %v, and a tenth of them %v", many, large, small)
	if large >= 40*small {
		t.Error("that grows with the square of the parts")
	}
}

// readingOf returns how long it takes to read a policy of so many parts.
func readingOf(t *testing.T, parts int) time.Duration {
	t.Helper()
	var b strings.Builder
	for i := range parts {
		fmt.Fprintf(&b, `"%x": {},`, i)
	}
	began := time.Now()
	if _, err := Parse("p", fmt.Appendf(nil, "version: \"1.0\"\npermissions: {tools: {%s}}\n", b.String())); err != nil {
		t.Fatalf("%.300v", err)
	}
	return time.Since(began)
}

// TestNoPolicyTakesLong reads policies with many patterns, each of which takes long to parse.
func TestNoPolicyTakesLong(t *testing.T) {
	var tools strings.Builder
	for i := range 200 {
		fmt.Fprintf(&tools, "    t%d: {arguments: {type: string, pattern: '(?i)^[%s]$'}}\n", i, strings.Repeat("\\x{80}-\\x{10ffff}", 180))
	}
	_, err := Parse("p", []byte("version: \"1.0\"\npermissions:\n  tools:\n"+tools.String()))
	if err == nil || !strings.Contains(err.Error(), "the pattern is too large") || !strings.Contains(err.Error(), "pattern: '(?i)") {
		t.Errorf("%.300v", err)
	}
}
