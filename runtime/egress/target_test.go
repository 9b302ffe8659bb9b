package egress

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-host/starling/abi"
)

// spellings returns texts that some URL parser or some resolver takes for the
// given IPv4 address, beside its plain one.
func spellings(text string) []string {
	b := netip.MustParseAddr(text).As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	low24, low16 := n&0xffffff, n&0xffff
	out := []string{
		fmt.Sprint(n), fmt.Sprintf("0x%x", n), fmt.Sprintf("0X%X", n), fmt.Sprintf("0%o", n), fmt.Sprintf("00000%o", n),
		fmt.Sprintf("%d.%d", b[0], low24), fmt.Sprintf("%d.%d.%d", b[0], b[1], low16),
		fmt.Sprintf("0x%x.0x%x", b[0], low24), fmt.Sprintf("0%o.0%o", b[0], low24),
		fmt.Sprintf("%d", uint64(n)+1<<32), // wraps around to the address
		fmt.Sprintf("%d.%d.%d.%d", int(b[0])+256, b[1], b[2], b[3]),
	}
	for _, f := range []string{"0x%x", "0X%02X", "0%o", "%03d", "0000%o", "0x00000000%x", "%d "} {
		out = append(out, fmt.Sprintf(strings.Join([]string{f, f, f, f}, "."), b[0], b[1], b[2], b[3]))
	}
	for i := range 4 { // one part in another base
		for _, f := range []string{"0x%x", "0%o"} {
			parts := strings.Split(text, ".")
			parts[i] = fmt.Sprintf(f, b[i])
			out = append(out, strings.Join(parts, "."))
		}
	}
	for _, dot := range []string{"\u3002", "\uff0e", "\uff61", "%2e", "%2E", "%252e", "\\.", "..", ". ", ".\t", ".%00", ".\u200b"} {
		out = append(out, strings.ReplaceAll(text, ".", dot))
	}
	out = append(out, circled(text), fullWidth(text), percentEncoded(text))
	for _, e := range embeddings(netip.MustParseAddr(text)) {
		out = append(out, "["+e.String()+"]", "["+e.StringExpanded()+"]", e.String(), "["+e.String()+"%25eth0]", "["+strings.ToUpper(e.String())+"]")
	}
	return append(out,
		"[::ffff:"+text+"]", "[::"+text+"]", "[64:ff9b::"+text+"]", "["+text+"]", "[::ffff:"+text+"%251]",
		text+".", text+"..", "."+text, text+"%00", text+"%20", text+"%0d%0a", text+"\x00", text+" ", " "+text, text+"\t", text+"\r\n",
		text+":", text+":080", text+":0", text+":65536", text+":99999999999", text+":-80", text+":+80", text+":0x50", text+":80:80", text+":http", text+":80 ", text+":80%20",
		"user@"+text, "user:pass@"+text, "@"+text, ":@"+text, "api.example.com@"+text, "api.example.com:80@"+text, "api.example.com%40"+text,
		"api.example.com#@"+text, "api.example.com\\@"+text, "api.example.com\\"+text, "api.example.com%23@"+text, "api.example.com;"+text, "api.example.com,"+text, "api.example.com "+text, "api.example.com\t@"+text, "api.example.com\n@"+text, "api.example.com&@"+text, "api.example.com|"+text, "[api.example.com]@"+text, "[api.example.com]"+text,
	)
}

func fullWidth(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r - '0' + '\uff10'
		}
		return r
	}, s)
}

// circled writes 1 to 9 as the circled digits that NFKC turns back.
func circled(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '1' && r <= '9' {
			return r - '1' + '\u2460'
		}
		return r
	}, s)
}

func percentEncoded(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}

// hostileURLs returns URLs that try to reach this machine, its network or a
// metadata service.
func hostileURLs() []string {
	var all []string
	for _, text := range []string{"127.0.0.1", "169.254.169.254", "10.0.0.1", "0.0.0.0", "192.168.1.1", "100.100.100.200"} {
		for _, host := range append(spellings(text), text) {
			all = append(all, "http://"+host+"/", "https://"+host+"/latest/meta-data/")
		}
	}
	for _, host := range []string{
		"localhost", "LOCALHOST", "localhost.", "localhost.localdomain.", "ip6-localhost", "127.0.0.1.", "0", "0.0", "1", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]",
		"[::1%25lo]", "[::1%lo]", "[fe80::1%25eth0]", "[fd00:ec2::254]", "[v1.127.0.0.1]", "[]", "[", "]", "[::1", "::1", ":::1", "", ".", "..", "-", "_", "*", "%", "a..b", "-a.com", "a-.com",
		"metadata", "ｌｏｃａｌｈｏｓｔ", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "loca\u00adlhost", "local\u200bhost", "localhost\u3002", "bücher.example", "xn--a", "аpi.example.com",
	} {
		all = append(all, "http://"+host, "http://"+host+":80/", "https://"+host+"/")
	}
	return append(all,
		"", "/", "//127.0.0.1/", "http:", "http:/127.0.0.1/", "http:127.0.0.1", "http:///127.0.0.1", "http:////127.0.0.1", "http:\\\\127.0.0.1", "http:/\\127.0.0.1", "http://\\127.0.0.1",
		"http://?", "http://#", "http://:80/", "http://@/", "http://[::1]:80x/", "http ://127.0.0.1/", " http://127.0.0.1/", "\thttp://127.0.0.1/", "http\n://127.0.0.1/", "jar:http://127.0.0.1!/", "url:http://127.0.0.1/",
		"file:///etc/passwd", "gopher://127.0.0.1:6379/_x", "ftp://127.0.0.1/", "dict://127.0.0.1:11211/", "ldap://127.0.0.1/", "data:text/plain,x", "javascript:alert(1)", "unix:///var/run/docker.sock", "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
		"ws://127.0.0.1/", "h2c://127.0.0.1/", "http2://127.0.0.1/", "HtTp://127.0.0.1/", "https://127.0.0.1:443/#@api.example.com/",
	)
}

func TestHostileURLsNeverReachANetwork(t *testing.T) {
	urls := hostileURLs()
	if len(urls) < 1000 {
		t.Fatalf("only %d URLs", len(urls))
	}
	// The rules are as open as possible; names resolve to the addresses they hide.
	for _, answer := range []string{"127.0.0.1", "::ffff:169.254.169.254", "::1", "fd00:ec2::254", "0.0.0.0"} {
		var r recorder
		c := New(Config{Authorize: Rules{Allow: rules(t, "*", "*:80", "*:443", ".com", ".localdomain", "api.example.com")}, Resolve: resolveTo(answer)})
		c.dial = r.dial
		for _, u := range urls {
			if response, err := c.Do(context.Background(), get(u), ""); err == nil {
				t.Errorf("%q gives %q", u, response)
			} else if s := statusOf(t, err); s != abi.StatusDenied && s != abi.StatusMalformed {
				t.Errorf("%q: %v", u, err)
			}
		}
		if len(r.dialled) > 0 {
			t.Errorf("connections to %v", r.dialled)
		}
	}
}

func TestSpellingsOfLiteralsAreRefusedByTheirText(t *testing.T) {
	for _, text := range []string{"127.0.0.1", "169.254.169.254"} {
		for _, host := range spellings(text) {
			target, err := parseTarget("http://" + host + "/")
			if err == nil && host != text && !strings.HasPrefix(target.host, "[") {
				t.Errorf("%q is taken for %q", host, target.host)
			}
		}
	}
}

func TestParseTarget(t *testing.T) {
	for _, c := range []struct{ url, host, uri string }{
		{"http://example.com", "example.com", "/"},
		{"http://example.com?", "example.com", "/?"},
		{"http://example.com?a=b", "example.com", "/?a=b"},
		{"http://example.com:80/", "example.com", "/"},
		{"https://example.com:80/", "example.com:80", "/"},
		{"https://EXAMPLE.com:443/A?b=C", "example.com", "/A?b=C"},
		{"http://127.0.0.1:8080/customers/42", "127.0.0.1:8080", "/customers/42"},
		{"http://[2001:DB8::0:1]:8080/", "[2001:db8::1]:8080", "/"},
		{"http://example.com//a/../b/./c;d=e", "example.com", "//a/../b/./c;d=e"},
		{"http://example.com/a%2Fb%20c", "example.com", "/a%2Fb%20c"},
		{"http://example.com/?q=%C3%A9&r=[1]|{2}", "example.com", "/?q=%C3%A9&r=[1]|{2}"},
		{"http://example.com/http://127.0.0.1/?u=http://127.0.0.1/@:", "example.com", "/http://127.0.0.1/?u=http://127.0.0.1/@:"},
		{"http://example.com/?@127.0.0.1", "example.com", "/?@127.0.0.1"},
	} {
		target, err := parseTarget(c.url)
		if err != nil {
			t.Errorf("%q refused: %v", c.url, err)
		} else if target.hostPort() != c.host || target.uri != c.uri {
			t.Errorf("%q is %q %q, want %q %q", c.url, target.hostPort(), target.uri, c.host, c.uri)
		}
	}
}

func TestParseTargetRefuses(t *testing.T) {
	for _, c := range []struct{ name, url, hint string }{
		{"no scheme", "example.com/x", "write http://"},
		{"a path alone", "/x", "write http://"},
		{"another scheme", "ftp://example.com/", "write http://"},
		{"a space", "http://example.com/a b", "percent-encoded"},
		{"another script in the path", "http://example.com/é", "percent-encoded"},
		{"another script in the host", "http://bücher.example/", "punycode"},
		{"a fragment", "http://example.com/#x", "percent-encoded"},
		{"a backslash", `http://example.com\x`, "percent-encoded"},
		{"a percent sign that encodes nothing", "http://example.com/%zz", "percent-encoded"},
		{"a bracket in a path that would be rewritten", "http://example.com/{id}", "percent-encoded"},
		{"a user", "http://me:pw@example.com/", "Authorization"},
		{"an endless URL", "http://example.com/" + strings.Repeat("a", maxTarget), "longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseTarget(c.url)
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if !strings.Contains(err.Error(), c.hint) {
				t.Errorf("error %q does not say %q", err, c.hint)
			}
		})
	}
}

// FuzzURL checks that no special address is ever connected to, whatever the
// URL, and that accepted URLs mean the same to net/url.
func FuzzURL(f *testing.F) {
	for i, u := range hostileURLs() {
		if i%7 == 0 {
			f.Add(u)
		}
	}
	f.Add("https://example.com:8443/a?b=c")
	f.Fuzz(func(t *testing.T, raw string) {
		var r recorder
		c := New(Config{
			Authorize: Rules{rules(t, "*", "*:80", "*:8443", "localhost", "127.0.0.1", "[::1]", "169.254.169.254", "[fd00:ec2::254]"), len(raw)%2 == 0},
			Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
				if host == "localhost" {
					return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
				}
				return []netip.Addr{netip.MustParseAddr("1.1.1.1")}, nil
			},
		})
		c.dial = r.dial
		c.Do(context.Background(), get(raw), "")
		for _, to := range r.dialled {
			if a := to.Addr().String(); a != "1.1.1.1" && !(len(raw)%2 == 0 && (a == "127.0.0.1" || a == "::1")) {
				t.Fatalf("%q connects to %v", raw, to)
			}
		}
		sameMeaning(t, raw)
	})
}

func sameMeaning(t *testing.T, raw string) {
	target, err := parseTarget(raw)
	if err != nil {
		return
	}
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatalf("net/url does not read %q: %v", raw, err)
	}
	port := u.Port()
	if port == "" {
		port = strconv.Itoa(int(defaultPort(u.Scheme)))
	}
	host := strings.ToLower(u.Hostname())
	if target.addr.IsValid() && netip.MustParseAddr(host) == target.addr {
		host = strings.Trim(target.host, "[]")
	}
	if u.Scheme != target.scheme || host != strings.Trim(target.host, "[]") || port != strconv.Itoa(int(target.port)) || u.RequestURI() != target.uri || u.User != nil || u.Fragment != "" {
		t.Fatalf("%q is %+v here and %#v to net/url", raw, target, u)
	}
}
