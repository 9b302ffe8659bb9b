package egress

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxTarget bounds a URL, in bytes. RFC 9110 section 4.1 asks for at least 8000.
const maxTarget = 16 << 10

// maxHostName is the longest name of RFC 1035 without its final dot.
const maxHostName = 253

// target is the destination of a request, in the one spelling that rules are
// compared with.
type target struct {
	scheme string     // "http" or "https"
	host   string     // lower-case name, IPv4 address, or IPv6 address in brackets
	addr   netip.Addr // the address that host spells; invalid for a name
	port   uint16
	uri    string // origin-form: path and query, as the guest wrote them
}

// parseTarget reads an absolute URL. Its errors are for the guest and suggest
// what to write instead.
func parseTarget(raw string) (target, error) {
	if len(raw) > maxTarget {
		return target{}, fmt.Errorf("the URL is longer than %d bytes", maxTarget)
	}
	// What no URL may hold, and the backslash, which some parsers read as a slash. A fragment never travels.
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' || r == '#' }) {
		return target{}, fmt.Errorf("the URL %s holds a character that must be percent-encoded (or, in a host name, be written in punycode)", quote(raw))
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "http" && scheme != "https" {
		return target{}, fmt.Errorf("%s is not an absolute URL: write http://HOST/PATH or https://HOST/PATH", quote(raw))
	}
	authority, uri := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, uri = rest[:i], rest[i:]
	}
	t, err := parseAuthority(authority)
	if err != nil {
		return target{}, err
	}
	t.scheme = scheme
	t.port = cmp.Or(t.port, defaultPort(scheme))
	t.uri, err = originForm(uri)
	return t, err
}

// originForm returns path and query as written, which is how they are sent. A
// form that net/url would rewrite is refused, so that the record equals the
// request.
func originForm(uri string) (string, error) {
	if !strings.HasPrefix(uri, "/") {
		uri = "/" + uri
	}
	u, err := url.ParseRequestURI("http://h" + uri)
	if err != nil || u.RequestURI() != uri {
		return "", fmt.Errorf("the path and query %s must be percent-encoded", quote(uri))
	}
	return uri, nil
}

func defaultPort(scheme string) uint16 {
	if scheme == "https" {
		return 443
	}
	return 80
}

// hostPort returns the authority as a Host header spells it: without the port
// when it is the scheme's own.
func (t target) hostPort() string {
	if t.port == defaultPort(t.scheme) {
		return t.host
	}
	return t.host + ":" + strconv.Itoa(int(t.port))
}

// parseAuthority reads HOST or HOST:PORT into the host, addr and port of a
// target; port is 0 when there is none.
func parseAuthority(s string) (target, error) {
	if strings.Contains(s, "@") {
		return target{}, errors.New("a user name in the URL is not allowed: send an Authorization header")
	}
	host, port, err := splitPort(s)
	if err != nil {
		return target{}, err
	}
	t := target{port: port}
	t.host, t.addr, err = parseHost(host)
	return t, err
}

func splitPort(s string) (host string, port uint16, err error) {
	end := strings.LastIndexByte(s, ':')
	if bracket := strings.IndexByte(s, ']'); bracket >= 0 {
		end = bracket + 1
	} else if strings.HasPrefix(s, "[") {
		end = len(s)
	}
	if end < 0 || end == len(s) {
		return s, 0, nil
	}
	digits, ok := strings.CutPrefix(s[end:], ":")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || n == 0 || strconv.FormatUint(n, 10) != digits {
		return "", 0, fmt.Errorf("the port in %s is not a number from 1 to 65535", quote(s))
	}
	return s[:end], uint16(n), nil
}

// parseHost returns the one spelling of a host: an IPv6 address in brackets, an
// IPv4 address as four decimal numbers, or a name in lower case.
func parseHost(s string) (string, netip.Addr, error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		if !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return "", netip.Addr{}, fmt.Errorf("%s is not an IPv6 address in brackets", quote(s))
		}
		if a.Is4In6() {
			return "", netip.Addr{}, fmt.Errorf("%s embeds an IPv4 address: write %s", quote(s), a.Unmap())
		}
		return "[" + a.String() + "]", a, nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
		return s, a, nil
	}
	if strings.Contains(s, ":") {
		return "", netip.Addr{}, fmt.Errorf("%s is not a host: write an IPv6 address in brackets", quote(s))
	}
	name := strings.ToLower(s)
	if err := checkName(name); err != nil {
		return "", netip.Addr{}, err
	}
	return name, netip.Addr{}, nil
}

// checkName accepts the host names of RFC 1123: labels of letters, digits and
// hyphens. The last label must begin with a letter, as all top-level domains do:
// that keeps 127.1, 2130706433, 0x7f.1 and 017700000001 from being names that
// some resolver takes for an address.
func checkName(name string) error {
	if len(name) > maxHostName {
		return fmt.Errorf("a host name is longer than %d bytes", maxHostName)
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return fmt.Errorf("%s is not a host name: write letters, digits, hyphens and dots, names of other scripts in punycode, and no dot at the end", quote(name))
		}
	}
	if last := labels[len(labels)-1]; last[0] < 'a' {
		return fmt.Errorf("%s is neither a host name nor an IPv4 address of four decimal numbers", quote(name))
	}
	return nil
}

func isLabel(s string) bool {
	other := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' }
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-' && !strings.ContainsFunc(s, other)
}

// addressRange is one range that is not part of the public internet.
type addressRange struct {
	prefix netip.Prefix
	name   string
	local  bool // may be opened by Grant.Private
}

// specialRanges holds the ranges of the IANA special-purpose address registries
// (RFC 6890) that are not globally reachable, the prefixes that embed an IPv4
// address, and the metadata services of clouds outside of link-local space. The
// first entry that contains an address names it, so narrower ranges come first.
//
// The table is spelled out because the predicates of net/netip (IsPrivate,
// IsLoopback, ...) let most of it through.
var specialRanges = []addressRange{
	special("168.63.129.16/32", "cloud metadata (Azure)"),
	special("0.0.0.0/8", "this network, RFC 791"),
	private("10.0.0.0/8", "private, RFC 1918"),
	special("100.64.0.0/10", "shared address space, RFC 6598"), // holds Alibaba's metadata service
	private("127.0.0.0/8", "loopback, RFC 1122"),
	special("169.254.0.0/16", "link-local, RFC 3927"), // holds most metadata services
	private("172.16.0.0/12", "private, RFC 1918"),
	special("192.0.0.0/24", "IETF protocol assignments, RFC 6890"), // holds Oracle's metadata service
	special("192.0.2.0/24", "documentation, RFC 5737"),
	special("192.31.196.0/24", "AS112, RFC 7535"),
	special("192.52.193.0/24", "AMT, RFC 7450"),
	special("192.88.99.0/24", "6to4 relay, RFC 7526"),
	private("192.168.0.0/16", "private, RFC 1918"),
	special("192.175.48.0/24", "AS112, RFC 7534"),
	special("198.18.0.0/15", "benchmarking, RFC 2544"),
	special("198.51.100.0/24", "documentation, RFC 5737"),
	special("203.0.113.0/24", "documentation, RFC 5737"),
	special("224.0.0.0/4", "multicast, RFC 5771"),
	special("240.0.0.0/4", "reserved, RFC 1112"),

	special("fd00:ec2::/32", "cloud metadata (AWS)"),
	special("fd20:ce::/32", "cloud metadata (Google)"),
	special("fd00:c1::/32", "cloud metadata (Oracle)"),
	special("::/128", "unspecified, RFC 4291"),
	private("::1/128", "loopback, RFC 4291"),
	special("::/96", "IPv4-compatible, RFC 4291"),
	special("::ffff:0:0/96", "IPv4-mapped, RFC 4291"),
	special("::ffff:0:0:0/96", "IPv4-translated, RFC 2765"),
	special("64:ff9b::/96", "NAT64, RFC 6052"),
	special("64:ff9b:1::/48", "local-use NAT64, RFC 8215"),
	special("100::/64", "discard, RFC 6666"),
	special("100:0:0:1::/64", "dummy prefix, RFC 9780"),
	special("2001::/23", "IETF protocol assignments, RFC 2928"), // holds Teredo
	special("2001:db8::/32", "documentation, RFC 3849"),
	special("2002::/16", "6to4, RFC 3056"),
	special("2620:4f:8000::/48", "AS112, RFC 7534"),
	special("3fff::/20", "documentation, RFC 9637"),
	special("5f00::/16", "SRv6 segments, RFC 9602"),
	private("fc00::/7", "unique local, RFC 4193"),
	special("fe80::/10", "link-local, RFC 4291"),
	special("fec0::/10", "site-local, RFC 3879"),
	special("ff00::/8", "multicast, RFC 4291"),
}

func special(prefix, name string) addressRange {
	return addressRange{prefix: netip.MustParsePrefix(prefix), name: name}
}

func private(prefix, name string) addressRange {
	return addressRange{prefix: netip.MustParsePrefix(prefix), name: name, local: true}
}

// globalUnicast is the only IPv6 space that IANA has handed out for unicast.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// refuse returns the reason why a may not be connected to, or "". With local
// set, loopback and private addresses pass.
func refuse(a netip.Addr, local bool) string {
	switch {
	case !a.IsValid():
		return "not an address"
	case a.Zone() != "":
		return "an address with a zone"
	case a.Is6() && isISATAP(a):
		return "ISATAP, RFC 5214"
	}
	for _, r := range specialRanges {
		if !r.prefix.Contains(a) {
			continue
		}
		if local && r.local {
			return ""
		}
		return r.name
	}
	if a.Is6() && !globalUnicast.Contains(a) {
		return "outside of global unicast, RFC 4291"
	}
	return ""
}

// RefusedAddress returns the reason why nothing connects to a host that is an
// address, as written in a URL, or "" if it is allowed. Private is whether loopback
// and private addresses are open. For a name it returns "": its addresses are known
// when it is resolved.
func RefusedAddress(host string, private bool) string {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return ""
	}
	return refuse(addr.Unmap(), private)
}

// isISATAP reports whether the interface identifier embeds an IPv4 address as
// RFC 5214 section 6.1 does: 00-00-5E-FE or 02-00-5E-FE and the address.
func isISATAP(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
