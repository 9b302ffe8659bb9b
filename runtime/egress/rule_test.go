package egress

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseRule(t *testing.T) {
	for rule, want := range map[string]string{
		"api.example.com":        "api.example.com",
		"API.Example.COM:8443":   "api.example.com:8443",
		"localhost:8080":         "localhost:8080",
		"127.0.0.1:8080":         "127.0.0.1:8080",
		".example.com":           ".example.com",
		".example.com:8443":      ".example.com:8443",
		"[2001:DB8:0::7]:8080":   "[2001:db8::7]:8080",
		"[::1]":                  "[::1]",
		"xn--bcher-kva.example":  "xn--bcher-kva.example",
		"*":                      "*",
		"*:8443":                 "*:8443",
		"3com.com":               "3com.com",
		"a-b.c-d.example.com:80": "a-b.c-d.example.com:80",
	} {
		r, err := ParseRule(rule)
		if err != nil {
			t.Errorf("%q refused: %v", rule, err)
		} else if r.String() != want {
			t.Errorf("%q is %q, want %q", rule, r, want)
		}
	}
}

func TestParseRuleRefuses(t *testing.T) {
	for _, c := range []struct{ name, rule, hint string }{
		{"nothing", "", "write HOST"},
		{"a URL", "https://api.example.com", "without scheme"},
		{"a path", "api.example.com/v1", "without scheme and path"},
		{"a shell's wildcard", "*.example.com", `write ".example.com"`},
		{"a wildcard inside", "api.*.com", "not a host name"},
		{"an empty port", "api.example.com:", "port"},
		{"port zero", "api.example.com:0", "port"},
		{"a port that is too large", "api.example.com:65536", "port"},
		{"a port with a leading zero", "api.example.com:080", "port"},
		{"a port with a sign", "api.example.com:+80", "port"},
		{"a name of a port", "api.example.com:http", "port"},
		{"an IPv6 address without brackets", "2001:db8::7", "brackets"},
		{"an open bracket", "[::1", "brackets"},
		{"text after the bracket", "[::1]x", "port"},
		{"a zone", "[fe80::1%eth0]", "not an IPv6 address"},
		{"a mapped address", "[::ffff:127.0.0.1]", "write 127.0.0.1"},
		{"an IPv4 address in brackets", "[127.0.0.1]", "not an IPv6 address"},
		{"a short IPv4 address", "127.1", "four decimal numbers"},
		{"an octal IPv4 address", "0177.0.0.1", "four decimal numbers"},
		{"names below an address", ".127.0.0.1", "no names below"},
		{"a dot at the end", "example.com.", "no dot at the end"},
		{"a dot alone", ".", "not a host name"},
		{"a user name", "me@example.com", "not a host name"},
		{"another script", "bücher.example", "punycode"},
		{"a space", "example.com ", "not a host name"},
		{"a label that begins with a hyphen", "-a.example.com", "not a host name"},
		{"a label of 64 bytes", strings.Repeat("a", 64) + ".com", "not a host name"},
		{"a name of 254 bytes", strings.Repeat("a.", 126) + "ab", "longer than 253"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := ParseRule(c.rule)
			if err == nil {
				t.Fatalf("%q is accepted as %v", c.rule, r)
			}
			if !strings.Contains(err.Error(), c.hint) {
				t.Errorf("error %q does not say %q", err, c.hint)
			}
		})
	}
}

func TestRuleMatches(t *testing.T) {
	for _, c := range []struct {
		rule, url string
		want      bool
	}{
		{"api.example.com", "https://api.example.com/", true},
		{"api.example.com", "http://api.example.com", true},
		{"api.example.com", "HTTPS://API.EXAMPLE.COM:443/x?y=1", true},
		{"api.example.com", "https://api.example.com:80/", false},
		{"api.example.com", "http://api.example.com:443/", false},
		{"api.example.com", "https://api.example.com:8443/", false},
		{"api.example.com", "https://xapi.example.com/", false},
		{"api.example.com", "https://x.api.example.com/", false},
		{"api.example.com", "https://api.example.com.evil.com/", false},
		{"api.example.com:8443", "https://api.example.com:8443/", true},
		{"api.example.com:8443", "http://api.example.com:8443/", true},
		{"api.example.com:8443", "https://api.example.com/", false},
		{".example.com", "https://a.example.com/", true},
		{".example.com", "https://a.b.example.com/", true},
		{".example.com", "https://example.com/", false},
		{".example.com", "https://badexample.com/", false},
		{"*", "https://example.com/", true},
		{"*", "https://example.com:8443/", false},
		{"*:8443", "https://example.com:8443/", true},
		{"*", "https://localhost/", false},
		{"*", "https://192.0.2.7/", false},
		{"*", "https://[2001:db8::7]/", false},
		{"192.0.2.7", "https://192.0.2.7/", true},
		{"[2001:db8::7]:8080", "http://[2001:DB8:0:0::7]:8080/", true},
		{"localhost:8080", "http://localhost:8080/x", true},
		{"localhost:8080", "http://127.0.0.1:8080/x", false},
	} {
		target, err := get(c.url).Access()
		if err != nil {
			t.Errorf("%q refused: %v", c.url, err)
			continue
		}
		if got := rules(t, c.rule)[0].Matches(target); got != c.want {
			t.Errorf("rule %q and %q: match %v, want %v", c.rule, c.url, got, c.want)
		}
		if (Rule{}).Matches(target) {
			t.Errorf("the zero rule matches %q", c.url)
		}
	}
}

func TestRuleReadsBackWhatItWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, err := ParseRule(rapid.StringMatching(`[*.a-f0-9:\[\]-]{0,20}`).Draw(t, "rule"))
		if err != nil {
			return
		}
		again, err := ParseRule(r.String())
		if err != nil || again != r {
			t.Fatalf("%q reads back as %q, %v", r, again, err)
		}
	})
}
