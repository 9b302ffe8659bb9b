package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Rule allows requests to one host, to the names below a domain, or to every
// public name. The zero Rule allows nothing.
type Rule struct {
	pattern string // "*", ".suffix", or a host as target spells it
	port    uint16 // 0: the port of the scheme
}

// ParseRule reads a rule:
//
//	api.example.com        the host, on 443 for https and 80 for http
//	api.example.com:8443   the host on that port, for both schemes
//	.example.com           every name below example.com, not example.com itself
//	192.0.2.7, [2001:db8::7]:8080   an address, which is only ever allowed when
//	                       it is written out like this
//	*                      every name with a dot in it that resolves to public
//	                       addresses
//
// A suffix and * take a port too. Names are compared without regard to case.
func ParseRule(s string) (Rule, error) {
	r, err := parseRule(s)
	if err != nil {
		return Rule{}, fmt.Errorf("egress: rule %s: %w", quote(s), err)
	}
	return r, nil
}

func parseRule(s string) (Rule, error) {
	if strings.Contains(s, "/") {
		return Rule{}, errors.New("write HOST or HOST:PORT, without scheme and path")
	}
	if s == "" {
		return Rule{}, errors.New("it is empty: write HOST or HOST:PORT")
	}
	if strings.HasPrefix(s, "*.") {
		return Rule{}, fmt.Errorf("write %s for the names below a domain", quote(s[1:]))
	}
	host, port, err := splitPort(s)
	if err != nil {
		return Rule{}, err
	}
	if host == "*" {
		return Rule{pattern: host, port: port}, nil
	}
	name, below := strings.CutPrefix(host, ".")
	host, addr, err := parseHost(name)
	if err != nil {
		return Rule{}, err
	}
	if below && addr.IsValid() {
		return Rule{}, errors.New("an address has no names below it")
	}
	if below {
		host = "." + host
	}
	return Rule{pattern: host, port: port}, nil
}

// String returns the rule in its canonical spelling, which ParseRule reads
// back. It is what a log keeps.
func (r Rule) String() string {
	if r.port == 0 {
		return r.pattern
	}
	return r.pattern + ":" + strconv.Itoa(int(r.port))
}

// Port returns the port that the rule names, or 0 for that of the scheme.
func (r Rule) Port() uint16 { return r.port }

// exact reports whether the rule names one host in full. Only such a rule can
// open a private address: whoever controls a domain decides what the names
// below it resolve to.
func (r Rule) exact() bool {
	return r.pattern != "" && r.pattern != "*" && r.pattern[0] != '.'
}

// Matches reports whether the rule names the host and the port of a request.
func (r Rule) Matches(a Access) bool {
	if r.port != a.Port && (r.port != 0 || a.Port != defaultPort(a.Scheme)) {
		return false
	}
	return r.MatchesHost(a.Host)
}

// MatchesHost reports whether the rule names a host, whatever the port. The host
// is spelled as in [Access].
func (r Rule) MatchesHost(host string) bool {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	name := err != nil || !addr.IsValid()
	switch {
	case r.exact():
		return r.pattern == host
	case r.pattern == "*":
		return name && strings.Contains(host, ".")
	case r.pattern != "":
		return name && strings.HasSuffix(host, r.pattern)
	}
	return false
}
