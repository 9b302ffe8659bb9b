package egress

import (
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
	if i := strings.IndexFunc(raw, forbiddenInURL); i >= 0 {
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
	if t.port == 0 {
		t.port = defaultPort(scheme)
	}
	t.uri, err = originForm(uri)
	return t, err
}

// forbiddenInURL holds what no URL may hold, and the backslash, which some
// parsers read as a slash. A fragment never travels.
func forbiddenInURL(r rune) bool {
	return r <= ' ' || r >= 0x7f || r == '\\' || r == '#'
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
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
