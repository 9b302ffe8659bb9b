package policy

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestIdentity(t *testing.T) {
	exact := new(big.Float).SetFloat64(1e300).Text('f', 0)
	for _, same := range [][]string{
		{`1`, `1.0`}, {`100`, `1e2`}, {`0`, `0.0`, `-0.0`, `-0`}, {`-5`, `-5.0`}, {`1.5`, `15e-1`}, {`9007199254740992`, `9007199254740992.0`},
		{exact, `1e300`}, {`[1,{"a":2.0,"b":null}]`, `[1.0,{"b":null,"a":2}]`}, {`"ä"`, `"\u00e4"`},
	} {
		for _, other := range same[1:] {
			if a, b := identityOf(t, same[0]), identityOf(t, other); a != b {
				t.Errorf("%s is %s, and %s is %s", same[0], a, other, b)
			}
		}
	}
	seen := map[string]string{}
	for _, doc := range []string{
		`1`, `"1"`, `1.5`, `9007199254740993`, `9007199254740992`, exact, exact[:300] + "1", `true`, `"true"`, `null`, `"null"`, `false`, `""`,
		`[]`, `{}`, `[[]]`, `[1,2]`, `[12]`, `["1,2"]`, `["1","2"]`, `{"a":1}`, `{"a":[1]}`, `{"b":1}`, `"a\u0308"`, `"ä"`, `5e-324`, `1e-300`,
	} {
		id := identityOf(t, doc)
		if seen[id] != "" {
			t.Errorf("%s and %s are both %s", seen[id], doc, id)
		}
		seen[id] = doc
	}
}

func identityOf(t *testing.T, doc string) string {
	v, err := parseArguments([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	left := work(maxWork)
	return identity(v, &left)
}

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
	const tooMuch = "is too much to look at for what must hold of it"
	for _, c := range []struct{ name, arguments, document, want string }{
		{"many values of which each is one of many", "/a/*: {enum: [" + many(20_000, "%d,") + "1]}", list, ""},
		{"many pointers to many values", many(2_000, "/a/*/%d: {required: false},"), list, tooMuch},
		{"many forbidden values", many(2_000, "/a/*/%d: {forbidden: true},"), list, tooMuch},
		{"many large texts in large patterns", many(24, "/a/%d: {pattern: '(.*)(.*)(.*)[ab]{900}'},"), `{"a":[` + strings.Repeat(`"`+strings.Repeat("ab", 20_000)+`",`, 24) + `1]}`, tooMuch},
		{"many fractions", many(100, "/a/*/../%d: {minimum: 1},") + many(30, "/*/*/%d: {minimum: 1},") + "/a/*: {minimum: 0}", `{"a":[` + strings.Repeat("1e-300,", large/4) + `1]}`, ""},
		{"many fractions, asked for often", "'/a/*': {minimum: 0}, '/*/*': {minimum: 0}, '/b/*': {minimum: 0}, /c/*: {minimum: 0}", `{"a":[` + strings.Repeat("1e-300,", large/2) + `1]}`, tooMuch},
	} {
		p, err := Parse("p", []byte("version: \"1.0\"\npermissions: {tools: {shop: {arguments: {"+strings.TrimSuffix(c.arguments, ",")+"}}}}\n"))
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
	for _, format := range []string{"tools: {%s}", "tools: {t: {arguments: {%s}}}"} {
		var small, large time.Duration
		for range 3 {
			small, large = readingOf(t, format, many/10), readingOf(t, format, many)
			if large < 40*small {
				break
			}
		}
		t.Logf("%s took %v, and a tenth of it %v", format, large, small)
		if large >= 40*small {
			t.Error("that grows with the square of the parts")
		}
	}
}

// readingOf returns how long it takes to read a policy of so many parts.
func readingOf(t *testing.T, format string, parts int) time.Duration {
	t.Helper()
	name := `"%x": {},`
	if strings.Contains(format, "arguments") {
		name = `"/%x": {},`
	}
	var b strings.Builder
	for i := range parts {
		fmt.Fprintf(&b, name, i)
	}
	began := time.Now()
	if _, err := Parse("p", fmt.Appendf(nil, "version: \"1.0\"\npermissions: {"+format+"}\n", b.String())); err != nil {
		t.Fatalf("%.300v", err)
	}
	return time.Since(began)
}
