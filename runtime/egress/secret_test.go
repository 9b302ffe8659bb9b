package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/ascii85"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/starling-host/starling/abi"
	"pgregory.net/rapid"
)

// canary is a secret with a character of every kind that some encoding escapes.
const canary = `s3cr/t+k&y "~<%>\'`

// granting allows everything, with a secret K and under the condition plain.
type granting struct {
	value string
	plain bool
}

func (g granting) Authorize(context.Context, Access) (Grant, error) {
	return Grant{Private: true, Secrets: []Secret{{"K", []byte(g.value)}}, Plain: g.plain}, nil
}

func TestSecretsOnTheWire(t *testing.T) {
	for _, c := range []struct{ name, value, raw, want string }{
		{
			"in a header", "hunter2hunter2",
			"GET http://HOST/ HTTP/1.1\r\nAuthorization: Basic {{secret:K}}\r\nX-Two: {{secret:K}}-{{secret:K}}\r\n\r\n",
			"GET / HTTP/1.1\r\nAuthorization: Basic hunter2hunter2\r\nConnection: close\r\nHost: HOST\r\nUser-Agent: starling-host\r\nX-Two: hunter2hunter2-hunter2hunter2\r\n\r\n",
		},
		{
			"in a query, where the rest stays as it was written", "a&b=c d/%+~",
			"GET http://HOST/p?x=%2f+1&key={{secret:K}}&y HTTP/1.1\r\n\r\n",
			"GET /p?x=%2f+1&key=a%26b%3Dc%20d%2F%25%2B~&y HTTP/1.1\r\nConnection: close\r\nHost: HOST\r\nUser-Agent: starling-host\r\n\r\n",
		},
		{
			"in a query that a library has encoded", "hunter2hunter2",
			"GET http://HOST/?key=%7B%7Bsecret%3AK%7D%7D HTTP/1.1\r\n\r\n",
			"GET /?key=hunter2hunter2 HTTP/1.1\r\nConnection: close\r\nHost: HOST\r\nUser-Agent: starling-host\r\n\r\n",
		},
		{
			"in a body, whose length changes", "hunter2hunter2",
			"POST http://HOST/ HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n\r\na={{secret:K}}, END",
			"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 21\r\nContent-Type: text/plain\r\nHost: HOST\r\nUser-Agent: starling-host\r\n\r\na=hunter2hunter2, END",
		},
		{
			"in a JSON body", "quo\"te\\back",
			"POST http://HOST/ HTTP/1.1\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 30\r\n\r\n{\"k\":\"{{secret:K}}\",\"l\":\"END\"}",
			"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 31\r\nContent-Type: application/json; charset=utf-8\r\nHost: HOST\r\nUser-Agent: starling-host\r\n\r\n{\"k\":\"quo\\\"te\\\\back\",\"l\":\"END\"}",
		},
		{
			"in lines of JSON", "quo\"te\\back",
			"POST http://HOST/ HTTP/1.1\r\nContent-Type: application/x-ndjson\r\nContent-Length: 47\r\n\r\n{\"index\":{}}\n{\"a\":\"{{secret:K}}\"}\r\n\n{\"b\":\"END\"}",
			"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 48\r\nContent-Type: application/x-ndjson\r\nHost: HOST\r\nUser-Agent: starling-host\r\n\r\n{\"index\":{}}\n{\"a\":\"quo\\\"te\\\\back\"}\r\n\n{\"b\":\"END\"}",
		},
		{
			"in a part of JSON", "quo\"te\\back",
			"POST http://HOST/ HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=END\r\nContent-Length: 112\r\n\r\n--END\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: application/json\r\n\r\n{\"t\":\"{{secret:K}}\"}\r\n--END--",
			"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 113\r\nContent-Type: multipart/form-data; boundary=END\r\nHost: HOST\r\nUser-Agent: starling-host\r\n\r\n--END\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: application/json\r\n\r\n{\"t\":\"quo\\\"te\\\\back\"}\r\n--END--",
		},
		{
			"in a form", "a&b=c d+",
			"POST http://HOST/ HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 32\r\n\r\nk=%7B%7Bsecret%3AK%7D%7D&l=1&END",
			"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 26\r\nContent-Type: application/x-www-form-urlencoded\r\nHost: HOST\r\nUser-Agent: starling-host\r\n\r\nk=a%26b%3Dc%20d%2B&l=1&END",
		},
		{
			"whose value looks like a placeholder", "{{secret:K}}",
			"GET http://HOST/ HTTP/1.1\r\nX-A: {{secret:K}}\r\n\r\n",
			"GET / HTTP/1.1\r\nConnection: close\r\nHost: HOST\r\nUser-Agent: starling-host\r\nX-A: {{secret:K}}\r\n\r\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			host, received := capture(t)
			r, err := ParseRequest([]byte(strings.ReplaceAll(c.raw, "HOST", host)))
			if err != nil {
				t.Fatal(err)
			}
			client := New(Config{Authorize: granting{value: c.value}})
			if _, err := client.Do(context.Background(), r, ""); err != nil {
				t.Fatal(err)
			}
			if got, want := received(), strings.ReplaceAll(c.want, "HOST", host); got != want {
				t.Errorf("sent %q\nwant %q", got, want)
			}
			if strings.Contains(fmt.Sprint(r), "hunter2") {
				t.Error("the request was changed")
			}
		})
	}
}

func TestPlaceholdersThatDenyARequest(t *testing.T) {
	for _, c := range []struct{ name, raw, value, want string }{
		{"of another secret", "GET http://h/ HTTP/1.1\r\nX-A: {{secret:OTHER}}\r\n\r\n", "hunter2hunter2", "OTHER may not be sent"},
		{"in the path", "GET http://h/%7B%7Bsecret:K%7D%7D HTTP/1.1\r\n\r\n", "hunter2hunter2", "not in the path"},
		{"in the name of a parameter", "GET http://h/?{{secret:K}}=1 HTTP/1.1\r\n\r\n", "hunter2hunter2", "not in the name of a parameter"},
		{"with a name that is none", "GET http://h/?a={{secret:K-1}} HTTP/1.1\r\n\r\n", "hunter2hunter2", "written {{secret:NAME}}"},
		{"with spaces", "GET http://h/ HTTP/1.1\r\nX-A: {{ secret:K }}\r\n\r\n", "hunter2hunter2", "written {{secret:NAME}}"},
		{"in capitals", "GET http://h/ HTTP/1.1\r\nX-A: {{SECRET:K}}\r\n\r\n", "hunter2hunter2", "written {{secret:NAME}}"},
		{"that is not closed", "GET http://h/?a={{secret:K&b=}} HTTP/1.1\r\n\r\n", "hunter2hunter2", "written {{secret:NAME}}"},
		{"of a value that is too short", "GET http://h/ HTTP/1.1\r\nX-A: {{secret:K}}\r\n\r\n", "1234567", "fewer than 8 bytes"},
		{"of a value with a line end, in a header", "GET http://h/ HTTP/1.1\r\nX-A: {{secret:K}}\r\n\r\n", "hunter2\r\nX-B: 1", "cannot be sent in a header"},
		{"of a value that is no text, in JSON", "POST http://h/ HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n\"{{secret:K}}\"", "hunter2\xff\xff", "not ASCII"},
		{"of a value that is not ASCII", "GET http://h/?a={{secret:K}} HTTP/1.1\r\n\r\n", "hünter2hunter2", "not ASCII"},
		{"beside what is not ASCII, in a header", "GET http://h/ HTTP/1.1\r\nX-A: ü{{secret:K}}\r\n\r\n", "hunter2hunter2", "not ASCII"},
		{"in an encoded word of a header", "GET http://h/ HTTP/1.1\r\nX-A: =?utf-16?Q?{{secret:K}}?=\r\n\r\n", "hunter2hunter2", "not in"},
		{"behind other base64 of the scheme Basic", "GET http://h/ HTTP/1.1\r\nAuthorization: Basic QQ{{secret:K}}\r\n\r\n", "hunter2hunter2", "alone behind Basic"},
		{"behind what a reader of base64 passes over", "GET http://h/ HTTP/1.1\r\nAuthorization: Basic {QQ{{secret:K}}\r\n\r\n", "hunter2hunter2", "alone behind Basic"},
		{"before other base64 of the scheme Basic", "GET http://h/ HTTP/1.1\r\nAuthorization: bAsIc  {{secret:K}}QQ\r\n\r\n", "hunter2hunter2", "alone behind Basic"},
		{"of a value that could be an escape with what follows", "GET http://h/ HTTP/1.1\r\nX-A: {{secret:K}}-41\r\n\r\n", "hunter2hunter2%", "cannot be sent in a header"},
		{"in a query of a request whose charset stands behind a comment", "GET http://h/?a={{secret:K}} HTTP/1.1\r\nContent-Type: text/plain; charset(a)=utf-16\r\n\r\n", "hunter2hunter2", "without comments"},
		{"behind the prefix of a hexadecimal number", "POST http://h/ HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 18\r\n\r\na: 0x{{secret:K}}\n", "7f3a9c017f3a9c01", "beside a letter, a digit"},
		{"of a value that a table of text is split at", "POST http://h/ HTTP/1.1\r\nContent-Type: text/csv\r\nContent-Length: 16\r\n\r\na,{{secret:K}},b", "topsecret1,topsecret2", "cannot be sent in a body"},
		{"of a value that a cookie ends at", "GET http://h/ HTTP/1.1\r\nCookie: s={{secret:K}}\r\n\r\n", "hunter2;hunter2", "cannot be sent in a cookie"},
		{"behind what joins digits", "POST http://h/ HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 20\r\n\r\na: 0xff_{{secret:K}}", "7f3a9c017f3a9c01", "a part of a number"},
		{"in the name of a member", "POST http://h/ HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 27\r\n\r\n{\"x {{secret:K}} \\\"y\" : {}}", "hunter2hunter2", "not in the name of a member"},
		{"too often, each in a line of its own", "POST http://h/ HTTP/1.1\r\nContent-Type: application/x-ndjson\r\nContent-Length: 15015\r\n\r\n" + strings.Repeat("\"{{secret:K}}\"\n", 1001), "hunter2hunter2", "more than 1000 placeholders"},
		{"behind other base64", "POST http://h/ HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{\"d\":\"A{{secret:K}}\"}", "hunter2hunter2", "beside a letter, a digit"},
		{"in YAML", "POST http://h/ HTTP/1.1\r\nContent-Type: application/yaml\r\nContent-Length: 15\r\n\r\na: {{secret:K}}", "01234567012345", "needs the Content-Type of a text"},
		{"in a query that names its charset", "GET http://h/?charset=gbk&a={{secret:K}} HTTP/1.1\r\n\r\n", "hunter2hunter2", "not in \"gbk\""},
		{"too often", "GET http://h/ HTTP/1.1\r\nX-A: " + strings.Repeat("{{secret:K}}", 1001) + "\r\n\r\n", "hunter2hunter2", "more than 1000 placeholders"},
		{"beside a second type, whose name servers take for the same", "GET http://h/?a={{secret:K}} HTTP/1.1\r\nContent-Type: text/plain\r\nContent_Type: text/plain; charset=utf-16\r\n\r\n", "hunter2hunter2", "leave out header Content_type"},
		{"beside a header with a charset", "GET http://h/?a={{secret:K}} HTTP/1.1\r\nX-Charset: utf-16\r\n\r\n", "hunter2hunter2", "leave out header X-Charset"},
		{"behind a byte of a query", "GET http://h/?a=%81{{secret:K}} HTTP/1.1\r\n\r\n", "hunter2hunter2", "must be UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := ParseRequest([]byte(c.raw))
			if err != nil {
				t.Fatal(err)
			}
			var dialled recorder
			client := New(Config{Authorize: granting{value: c.value}, Resolve: resolveTo("127.0.0.1")})
			client.dial = dialled.dial
			_, err = client.Do(context.Background(), r, "")
			wantFailure(t, err, abi.StatusDenied, c.want)
			if len(dialled.dialled) > 0 {
				t.Errorf("connections to %v", dialled.dialled)
			}
			if strings.Contains(err.Error(), c.value) {
				t.Errorf("%v has the secret", err)
			}
		})
	}
	_, err := loopback(t, "h").Do(context.Background(), &Request{Method: "GET", URL: "http://h/", Header: http.Header{"X-A": {"{{secret:K}}"}}}, "")
	wantFailure(t, err, abi.StatusDenied, "K may not be sent")
}

func TestABodyWithASecretIsSentAsItIs(t *testing.T) {
	client := New(Config{Authorize: granting{value: "hunter2hunter2"}, Resolve: resolveTo("127.0.0.1")})
	for _, name := range []string{"Content-Encoding", "Content_encoding", "Content-Transfer-Encoding", "X-Content-Encoding"} {
		for _, coding := range []string{"gzip", "deflate", "br", "zstd", "identity", ""} {
			r := &Request{Method: "POST", URL: "http://h/", Header: http.Header{name: {coding}}, Body: []byte("{{secret:K}}")}
			_, err := client.Do(context.Background(), r, "")
			wantFailure(t, err, abi.StatusDenied, "leave out header "+name)
		}
	}
	host, received := capture(t)
	r := &Request{Method: "POST", URL: "http://" + host, Header: http.Header{"Content-Encoding": {"gzip"}, "Authorization": {"{{secret:K}}"}}, Body: []byte("\x1f\x8bEND")}
	if _, err := client.Do(context.Background(), r, ""); err != nil || !strings.Contains(received(), "hunter2") {
		t.Errorf("a packed body beside a secret in a header: %v", err)
	}
}

func TestABodyWithASecretIsNotLarge(t *testing.T) {
	r := &Request{Method: "POST", URL: "http://h/", Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("{{secret:K}}" + strings.Repeat(" ", 1<<20))}
	_, err := New(Config{Authorize: granting{value: "hunter2hunter2"}, MaxRequestBytes: 2 << 20}).Do(t.Context(), r, "")
	wantFailure(t, err, abi.StatusDenied, "a body with a secret has at most 1048576 bytes")
}

func TestIsSecretName(t *testing.T) {
	for name, want := range map[string]bool{"K": true, "API_KEY_2": true, strings.Repeat("A", 64): true,
		"": false, "2A": false, "_A": false, "api_key": false, "A-B": false, "A B": false, strings.Repeat("A", 65): false, "A}}{{secret:B": false, "Ä": false} {
		if IsSecretName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// echoes are ways in which a server may give a secret back.
var echoes = twice(map[string]func(s string) string{
	"as it is":              func(s string) string { return s },
	"in a query":            url.QueryEscape,
	"in a path":             url.PathEscape,
	"percent-encoded":       func(s string) string { return everyByte(s, "%%%02x") },
	"percent, in capitals":  func(s string) string { return everyByte(s, "%%%02X") },
	"in JSON":               func(s string) string { b, _ := json.Marshal(s); return string(b) },
	"in JSON, with slashes": func(s string) string { return strings.ReplaceAll(inJSON(s), "/", `\/`) },
	"in ASCII JSON":         func(s string) string { return everyRune(s, `\u%04x`) },
	"in JavaScript":         func(s string) string { return everyByte(s, `\x%02x`) },
	"in HTML":               html.EscapeString,
	"in HTML, by number":    func(s string) string { return everyRune(s, "&#%d;") },
	"in HTML, with zeros":   func(s string) string { return everyRune(s, "&#%010d;") },
	"in HTML, by name": func(s string) string {
		return strings.NewReplacer("/", "&sol;", "+", "&plus;", "%", "&percnt;", "&", "&amp;", "<", "&lt;", "_", "&lowbar;").Replace(s)
	},
	"percent and u":      func(s string) string { return everyRune(s, "%%u%04x") },
	"in octal":           func(s string) string { return everyByte(s, `\%03o`) },
	"in mail":            func(s string) string { return everyByte(s, "=%02X") },
	"in HTML, by hex":    func(s string) string { return everyRune(s, "&#x%X;") },
	"in base64":          func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"in base64url":       func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"as a password":      func(s string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + s + "\n")) },
	"after one byte":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s + "xyz")) },
	"after two":          func(s string) string { return base64.URLEncoding.EncodeToString([]byte("xy" + s)) },
	"in hex":             func(s string) string { return hex.EncodeToString([]byte(s)) },
	"as a list of bytes": func(s string) string { b, _ := json.MarshalIndent(slices.Collect(ints(s)), "", "  "); return string(b) },
	"as Go prints bytes": func(s string) string { return fmt.Sprint([]byte(s)) },
	"as Go's source":     func(s string) string { return fmt.Sprintf("%#v", []byte(s)) },
	"as a list of texts": func(s string) string {
		b, _ := json.Marshal(strings.Split(hex.EncodeToString([]byte(s)), ""))
		return string(b)
	},
	"in hex with colons":  func(s string) string { return strings.TrimSuffix(everyByte(s, "%02X:"), ":") },
	"in hex with spaces":  func(s string) string { return fmt.Sprintf("% x", s) },
	"in hex of .NET":      func(s string) string { return strings.TrimSuffix(everyByte(s, "%02X-"), "-") },
	"in base32":           func(s string) string { return base32.StdEncoding.EncodeToString([]byte(s)) },
	"in base32, behind":   func(s string) string { return strings.ToLower(base32.StdEncoding.EncodeToString([]byte("abc" + s))) },
	"in braces":           func(s string) string { return everyRune(s, `\u{%x}`) },
	"in braces of Perl":   func(s string) string { return everyRune(s, `\x{%04X}`) },
	"in short octal":      func(s string) string { return everyByte(s, `\%o`) },
	"in octal of echo":    func(s string) string { return everyByte(s, `\0%03o`) },
	"in Markdown":         func(s string) string { return punctuated(s, `\`) },
	"full-width":          func(s string) string { return shifted(s, 0xfee0) },
	"full-width, in JSON": func(s string) string { return ascii(shifted(s, 0xfee0)) },
	"in tags":             func(s string) string { return shifted(s, 0xe0000) },
	"with zero width":     func(s string) string { return strings.Join(strings.Split(s, ""), "\u200b") },
	"with soft hyphens":   func(s string) string { return strings.Join(strings.Split(s, ""), "&shy;") },
	"in HTML, bare":       func(s string) string { return everyRune(s, "&#%d") },
	"in HTML, spaced":     func(s string) string { return everyRune(s, "&#%d ") },
	"in HTML, bare hex":   func(s string) string { return everyRune(s, "&#x%x ") },
	"in long escapes":     func(s string) string { return everyRune(s, `\U%08x`) },
	"percent, twice":      func(s string) string { return everyByte(everyByte(s, "%%%02x"), "%%%02x") },
	"in JSON, twice":      func(s string) string { return everyByte(everyRune(s, `\u%04x`), `\u%04x`) },
	"in capital hex":      func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
})

// punctuated puts a text before each character that is no letter, digit or _.
func punctuated(s, before string) string {
	var b strings.Builder
	for _, c := range s {
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') {
			b.WriteString(before)
		}
		b.WriteRune(c)
	}
	return b.String()
}

// shifted moves each character but the space, which has no counterpart, and is one that is skipped.
func shifted(s string, by rune) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' {
			return r
		}
		return r + by
	}, s)
}

// uuencoded returns a text as the program writes it, in lines of 45 bytes.
func uuencoded(s string, zero byte) string {
	b := "begin 644 x\n"
	char := func(n byte) string {
		if n &= 63; n == 0 {
			return string(zero)
		} else {
			return string(n + 32)
		}
	}
	for len(s) > 0 {
		line := s[:min(45, len(s))]
		s = s[len(line):]
		b += char(byte(len(line)))
		for line += "\x00\x00"; len(line) > 2; line = line[3:] {
			b += char(line[0]>>2) + char(line[0]<<4|line[1]>>4) + char(line[1]<<2|line[2]>>6) + char(line[2])
		}
		b += "\n"
	}
	return b + string(zero) + "\nend\n"
}

// inLines breaks a text into lines.
func inLines(s, end string, width int) string {
	var b strings.Builder
	for len(s) > width {
		b.WriteString(s[:width] + end)
		s = s[width:]
	}
	return b.String() + s
}

// TestEchoesAreFoundOrNamed tries each way of returning a secret, and compares what is found with
// what spec/policy.md says of it. Every line of the document's two lists has a way of its kind here.
func TestEchoesAreFoundOrNamed(t *testing.T) {
	data, err := os.ReadFile("../../spec/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "### Responses")
	yes, rest, _ := strings.Cut(section, "The search treats both cases")
	_, no, _ := strings.Cut(rest, "These are examples of them:")
	no, _, _ = strings.Cut(no, "If so many secrets")
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	var tried []string
	long := "sk-live_" + strings.Repeat("a1B2-c3D4_e5F6+", 8) + "~end"
	for _, c := range []struct {
		found  bool
		phrase string // in the document
		echo   func(s string) string
	}{
		{true, "unchanged", func(s string) string { return s }},
		{true, "percent-encoded or as `%uXXXX`", func(s string) string { return everyByte(everyByte(s, "%%%02x"), "%%%02x") }},
		{true, "punctuation or a space, as in Markdown and `re.escape`", func(s string) string { return punctuated(s, `\`) }},
		{true, "a string of JSON", func(s string) string { return inJSON(punctuated(s, `\`)) }},
		{true, "also without the semicolon", func(s string) string { return everyRune(s, "&#%d") }},
		{true, "with a space in its place", func(s string) string { return everyRune(s, "&#%d ") }},
		{true, "character reference of HTML of at most 40", func(s string) string {
			return strings.NewReplacer("_", "&lowbar;", "+", "&plus;", "~", "&#126;").Replace(s)
		}},
		{true, "with soft line breaks", func(s string) string { return inLines(s, "=\r\n", 7) }},
		{true, "full-width", func(s string) string { return shifted(s, 0xfee0) }},
		{true, "These characters may be escaped in one of the ways before", func(s string) string { return ascii(shifted(s, 0xfee0)) }},
		{true, "These characters may be escaped in one of the ways before", func(s string) string { return escapeQuery(shifted(s, 0xfee0)) }},
		{true, "These characters may be escaped in one of the ways before", func(s string) string { return strings.Join(strings.Split(s, ""), "&#8203;") }},
		{true, "mathematical", func(s string) string {
			return strings.Map(func(r rune) rune {
				if r >= 'a' && r <= 'z' {
					return r - 'a' + 0x1d41a
				}
				return r
			}, s)
		}},
		{true, "circled", func(s string) string { return strings.ReplaceAll(s, "a", "\u24d0") }},
		{true, "as a tag", func(s string) string { return shifted(s, 0xe0000) }},
		{true, "with invisible characters", func(s string) string { return strings.Join(strings.Split(s, ""), "\u2060") }},
		{true, "spaces outside ASCII", func(s string) string { return strings.Join(strings.Split(s, ""), "\u00a0") }},
		{true, "a backslash at the end of a line", func(s string) string { return inLines(s, "\\\n", 9) }},
		{true, "uuencode", func(s string) string { return uuencoded("a: "+s, '`') }},
		{true, "uuencode", func(s string) string { return uuencoded("key: "+s, ' ') }},
		{true, "in lines or in one", func(s string) string { return inLines(base64.URLEncoding.EncodeToString([]byte("x"+s)), "\r\n", 12) }},
		{true, "in lines or in one", func(s string) string { return inJSON(inLines(b64("xy"+s), "\n", 20)) }},
		{true, "in lines or in one", func(s string) string {
			return inJSON(inLines(base64.URLEncoding.EncodeToString([]byte(s)), "\r\n", 16))
		}},
		{true, "in hexadecimal", func(s string) string { return fmt.Sprintf("% X", s) }},
		{true, "as the decimal numbers of its bytes", func(s string) string { return fmt.Sprint([]byte(s)) }},
		{true, "as any of these with white space", func(s string) string { return strings.Join(strings.Split(s, ""), "\x00") }},
		{true, "after two of these steps", func(s string) string { return escapeQuery(inJSON(s)) }},
		{false, "octal or binary dumps", func(s string) string { return everyByte(s, "%03o ") }},
		{false, "dumps with offsets", func(s string) string { return hex.Dump([]byte(s)) }},
		{false, "`\\115` of Lua", func(s string) string { return everyByte(s, "\\%d") }},
		{false, "`U+0073`", func(s string) string { return everyRune(s, "U+%04X ") }},
		{false, "`chr(115)`", func(s string) string { return everyRune(s, "chr(%d)") }},
		{false, "CSS escapes", func(s string) string { return everyRune(s, "\\%06x") }},
		{false, "any escape three times", func(s string) string { return everyByte(everyByte(everyByte(s, "%%%02x"), "%%%02x"), "%%%02x") }},
		{false, "Punycode", func(s string) string { return strings.Map(func(r rune) rune { return 'a' + (r*7)%26 }, s) }},
		{false, "base85", func(s string) string {
			b := make([]byte, ascii85.MaxEncodedLen(len(s)))
			return string(b[:ascii85.Encode(b, []byte(s))])
		}},
		{false, "base64 of UTF-16", func(s string) string { return b64(strings.Join(strings.Split(s, ""), "\x00") + "\x00") }},
		{false, "base64 twice", func(s string) string { return b64(b64(b64(s))) }},
		{false, "encoded words of mail", func(s string) string { return inLines(s, "?= =?utf-8?q?", 6) }},
		{false, "quotes doubled", func(s string) string { return strings.ReplaceAll(s, "-", "''") }},
		{false, "letters of other scripts", func(s string) string { return strings.ReplaceAll(s, "e", "\u0435") }},
		{false, "with other characters between", func(s string) string { return strings.Join(strings.Split(s, ""), "|") }},
		{false, "the text reversed", func(s string) string {
			b := []byte(s)
			slices.Reverse(b)
			return string(b)
		}},
		{false, "compressed bytes", func(s string) string {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			w.Write([]byte(s))
			w.Close()
			return b.String()
		}},
	} {
		list := no
		if c.found {
			list = yes
		}
		if !strings.Contains(list, c.phrase) {
			t.Errorf("spec/policy.md does not have %q in its list", c.phrase)
		}
		for _, value := range []string{canary, "sk-live_4eC39~a+b/aZ", long} {
			if value == canary && (!c.found || strings.HasPrefix(c.phrase, "a backslash")) {
				continue // it has characters that these steps change
			}
			got := cleaned(t, "<"+c.echo(value)+">", value)
			if found := strings.Contains(got, "{{secret:K0}}"); found != c.found {
				t.Errorf("%s: %q: found is %v: %q", c.phrase, value, found, got)
			}
		}
		tried = append(tried, c.phrase)
	}
	for line := range strings.Lines(yes + no) {
		has := func(phrase string) bool { return strings.Contains(line, phrase) }
		if strings.HasPrefix(line, "- ") && !slices.ContainsFunc(tried, has) && !strings.HasPrefix(line, "- decoded") && !strings.HasPrefix(line, "- without") && !strings.HasPrefix(line, "- as a number") {
			t.Errorf("nothing here tries what spec/policy.md says: %s", line)
		}
	}
}

// ints returns the bytes of a string as numbers.
func ints(s string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, c := range []byte(s) {
			if !yield(int(c)) {
				return
			}
		}
	}
}

// inJSON returns the string without the quotes around it.
func inJSON(s string) string {
	b, _ := json.Marshal(s)
	return string(b[1 : len(b)-1])
}

// ascii returns the string as JSON without characters beyond ASCII.
func ascii(s string) string {
	var b strings.Builder
	for _, r := range strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// steps are the transformations that a server may apply to a secret before it returns it.
var steps = map[string]func(s string) string{
	"of Go's JSON": inJSON,
	"of JavaScript's JSON": func(s string) string {
		return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(inJSON(s))
	},
	"of Python's JSON": ascii,
	"of PHP's JSON":    func(s string) string { return strings.ReplaceAll(ascii(s), "/", `\/`) },
	"of a query":       escapeQuery,
	"of a page":        html.EscapeString,
	"of base64":        func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"of base64url":     func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("x" + s)) },
	"of hex":           func(s string) string { return hex.EncodeToString([]byte(s)) },
}

// twice returns the echoes, and the echoes of transformed secrets.
func twice(echoes map[string]func(s string) string) map[string]func(s string) string {
	all := maps.Clone(echoes)
	for step, once := range steps {
		for name, echo := range echoes {
			all[name+" "+step] = func(s string) string { return echo(once(s)) }
		}
	}
	return all
}

func everyByte(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func everyRune(s, format string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, format, r)
	}
	return b.String()
}

func TestResponsesAreScrubbed(t *testing.T) {
	for name, encode := range echoes {
		t.Run(name, func(t *testing.T) {
			body := "before " + encode(canary) + " " + encode(canary) + " behind"
			half := len(body) / 2
			host := answer(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Echo: %s\r\nX-%s: 1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n",
				strings.ReplaceAll(encode(canary), "\n", ""), hex.EncodeToString([]byte(canary)), half, body[:half], len(body)-half, body[half:]))
			got, err := New(Config{Authorize: granting{value: canary}}).Do(context.Background(), get("http://"+host+"/"), "")
			if err != nil {
				t.Fatal(err)
			}
			res, text := parseResponse(t, "GET", got)
			if strings.Count(text, "{{secret:K}}") != 2 || !strings.HasPrefix(text, "before ") || !strings.HasSuffix(text, " behind") {
				t.Errorf("body %q", text)
			}
			if !strings.Contains(res.Header.Get("X-Echo"), "{{secret:K}}") || len(res.Header) != 2 {
				t.Errorf("header %q", res.Header)
			}
			if bytes.Contains(got, []byte(encode(canary))) {
				t.Errorf("%q has the secret", got)
			}
		})
	}
}

// cleaned returns the text without the secrets, which are named by their numbers.
func cleaned(t interface{ Fatal(...any) }, text string, values ...string) string {
	var secrets []Secret
	for i, value := range values {
		secrets = append(secrets, Secret{fmt.Sprint("K", i), []byte(value)})
	}
	b, err := newScrubber(secrets, len(text)).clean([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestScrubbingChangesNothingElse(t *testing.T) {
	values := []string{canary, "prefix" + canary, "short", canary + "suffix"}
	for _, text := range []string{"", "s", `s3cr/t+k&y "`, "short", "%73", `\u0073\u0033`, "&#115;", "%", `\`, "&", strings.Repeat("s3cr/", 100)} {
		if got := cleaned(t, text, values...); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	for text, want := range map[string]string{"prefix" + canary: "{{secret:K1}}", canary + "suffix": "{{secret:K3}}", canary + "suffiX.": "{{secret:K3}}.", canary + canary: "{{secret:K0}}{{secret:K0}}"} {
		if got := cleaned(t, text, values...); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
	for _, value := range []string{"%25%25%25%25%25%25", `\\\\\\\\\\`, "&amp;&amp;&amp;", "++++++++", "aaaaaaaa"} {
		if got := cleaned(t, "<"+value+">", value); got != "<{{secret:K0}}>" {
			t.Errorf("%q: %q", value, got)
		}
	}
}

// A tenant that chooses both the secret and the response cannot make the search take
// longer than a few times the reading of the response: here, 2^38 comparisons.
func TestTheWorkOfASearchIsBounded(t *testing.T) {
	host := serve(t, func(c net.Conn) {
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n\r\n%s", strings.Repeat("!", 4<<20))
	})
	client := New(Config{Authorize: granting{value: strings.Repeat("!", 64<<10) + "b"}})
	got, err := client.Do(context.Background(), get("http://"+host), "")
	wantFailure(t, err, abi.StatusDenied, "could not be searched")
	if got != nil {
		t.Error("the response was handed on")
	}
	var many []Secret
	for i := range 1000 {
		many = append(many, Secret{fmt.Sprint("K", i), bytes.Repeat([]byte{byte(i)}, 64<<10)})
	}
	if b, err := newScrubber(many, 0).clean([]byte("x")); b != nil || err == nil {
		t.Errorf("%q, %v", b, err)
	}
}

// Whatever the secret, each of its echoes is found.
func TestScrubbingFindsAnySecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[ -~]{8,24}`).Draw(t, "value")
		around := rapid.StringMatching(`[a-z ]{0,5}`).Draw(t, "around")
		s := newScrubber([]Secret{{"K", []byte(value)}}, 1<<20)
		for name, encode := range echoes {
			got, err := s.clean([]byte(around + encode(value) + around))
			if err != nil || !bytes.Contains(got, []byte("{{secret:K}}")) {
				t.Fatalf("%s: %q stays %q", name, value, got)
			}
		}
	})
}

// A name arrives in whatever case the libraries in between write it.
func TestNoHeaderIsNamedLikeASecret(t *testing.T) {
	for _, value := range []string{"AKIAIOSFODNN7EXAMPLE", "sk-live-abcdEFGH", "lowercase-secret"} {
		for _, name := range []string{
			value, "Before-" + value + "-behind", hex.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte("xy" + value)),
		} {
			host := answer(t, "HTTP/1.1 204 No Content\r\nX-"+name+": 1\r\nX-Other: 1\r\n\r\n")
			got, err := New(Config{Authorize: granting{value: value}}).Do(context.Background(), get("http://"+host+"/"), "")
			if err != nil {
				t.Fatal(err)
			}
			if res, _ := parseResponse(t, "GET", got); len(res.Header) != 1 || res.Header.Get("X-Other") != "1" {
				t.Errorf("of %q came %q", name, res.Header)
			}
		}
	}
}

func TestPlainResponses(t *testing.T) {
	host, received := capture(t)
	r := get("http://" + host + "/")
	r.Header = http.Header{"Accept-Encoding": {"gzip"}, "Accept_encoding": {"gzip"}, "Accept_charset": {"utf-16"}}
	client := New(Config{Authorize: granting{value: canary, plain: true}})
	if _, err := client.Do(context.Background(), r, ""); err != nil {
		t.Fatal(err)
	}
	if got := received(); !strings.Contains(got, "\r\nAccept-Encoding: identity\r\n") || strings.Contains(got, "gzip") || strings.Contains(got, "utf-16") {
		t.Errorf("sent %q", got)
	}
	for _, name := range []string{"Range", "If-Range", "A-Im", "Request-Range", "X-Ms-Range", "X_ms_range"} {
		r.Header = http.Header{name: {"bytes=0-3"}}
		_, err := client.Do(context.Background(), r, "")
		wantFailure(t, err, abi.StatusDenied, "a part of a response")
	}
	part := answer(t, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-3/9\r\nContent-Length: 4\r\n\r\nhunt")
	_, err := client.Do(context.Background(), get("http://"+part), "")
	wantFailure(t, err, abi.StatusDenied, "a part of something larger")

	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	io.WriteString(w, canary)
	w.Close()
	for _, coding := range []string{"gzip", "br", "identity, gzip", "x-unknown"} {
		host := serve(t, func(c net.Conn) {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s", coding, packed.Len(), packed.String())
		})
		_, err := client.Do(context.Background(), get("http://"+host), "")
		wantFailure(t, err, abi.StatusDenied, "could not be searched for secrets")
	}
}

func TestTheLengthOfASecretCannotBeFoundOut(t *testing.T) {
	host := answer(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	client := New(Config{Authorize: granting{value: strings.Repeat("x", 1000)}, MaxRequestBytes: 12, MaxHeaderBytes: 170})
	r := &Request{Method: "POST", URL: "http://" + host, Body: []byte("{{secret:K}}"), Header: http.Header{"X": {"{{secret:K}}"}, "Content-Type": {"text/plain"}}}
	if _, err := client.Do(context.Background(), r, ""); err != nil {
		t.Error(err)
	}
	host = answer(t, "HTTP/1.1 200 OK\r\nContent-Length: 1014\r\n\r\n") // of an echo, to HEAD
	r = &Request{Method: "HEAD", URL: "http://" + host, Header: http.Header{"X": {"{{secret:K}}"}}}
	if got, err := New(Config{Authorize: granting{value: "hunter2hunter2"}}).Do(context.Background(), r, ""); err != nil || bytes.Contains(got, []byte("Length")) {
		t.Errorf("%s, %v", got, err)
	}
}

// grantedBytes allows everything, with a bound on the response.
type grantedBytes int64

func (g grantedBytes) Authorize(context.Context, Access) (Grant, error) {
	return Grant{Private: true, MaxResponse: int64(g)}, nil
}

func TestGrantedBytes(t *testing.T) {
	const whole = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	host := answer(t, whole)
	got, err := New(Config{Authorize: grantedBytes(len(whole))}).Do(context.Background(), get("http://"+host), "")
	if err != nil || string(got) != whole {
		t.Errorf("%q, %v", got, err)
	}
	for _, limit := range []int{1, 4, len(whole) - 1} {
		_, err := New(Config{Authorize: grantedBytes(limit)}).Do(context.Background(), get("http://"+host), "")
		wantFailure(t, err, abi.StatusTooLarge, fmt.Sprintf("%d bytes that are left to the run", limit))
	}
}

// A failing authorizer reveals nothing to the guest.
type failing struct{}

func (failing) Authorize(context.Context, Access) (Grant, error) {
	return Grant{}, fmt.Errorf("the store has %s", canary)
}

func TestAnAuthorizerThatFails(t *testing.T) {
	_, err := New(Config{Authorize: failing{}}).Do(context.Background(), get("http://example.com"), "")
	wantFailure(t, err, abi.StatusDenied, "no policy decides about")
	if strings.Contains(err.Error(), canary) {
		t.Error(err)
	}
}

// counting allows every request under a grant, and counts.
type counting struct {
	grant Grant
	asked int
}

func (c *counting) Authorize(context.Context, Access) (Grant, error) {
	c.asked++
	return c.grant, nil
}

func TestAnd(t *testing.T) {
	a := get("http://127.0.0.1/")
	access, err := a.Access()
	if err != nil {
		t.Fatal(err)
	}
	second := &counting{grant: Grant{Private: true, MaxResponse: 10, Plain: true, Secrets: []Secret{{"K", []byte("hunter2hunter2")}}}}
	for _, c := range []struct {
		name  string
		first Authorizer
		want  string
		asked int
	}{
		{"nobody else", nil, "true 10 1 true", 1},
		{"somebody who refuses", Rules{}, "not an allowed destination", 0},
		{"somebody who allows less", Rules{Allow: rules(t, "127.0.0.1")}, "false 10 1 true", 1},
		{"somebody who allows more", &counting{grant: Grant{Private: true, MaxResponse: 20}}, "true 10 1 true", 1},
		{"somebody with fewer bytes", &counting{grant: Grant{Private: true, MaxResponse: 5}}, "true 5 1 true", 1},
	} {
		second.asked = 0
		g, err := New(Config{Authorize: c.first}).And(second).authorize(t.Context(), access)
		got := fmt.Sprint(g.Private, g.MaxResponse, len(g.Secrets), g.Plain)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || second.asked != c.asked {
			t.Errorf("%s: %s, asked %d times", c.name, got, second.asked)
		}
	}
	if _, err := New(Config{}).authorize(t.Context(), access); err == nil {
		t.Error("without an authorizer a request is allowed")
	}
}

// A server that decodes base64 around a token starts in the middle of three of its bytes.
func TestScrubbingFindsASecretDecodedAmongOtherBase64(t *testing.T) {
	const value = "AbCdEfGhIjKlMnOpQrStUvWxY"
	for before := range 4 {
		padded := strings.Repeat("/", before) + value + "///"
		whole, err := base64.RawStdEncoding.DecodeString(padded[:len(padded)&^3])
		if err != nil {
			t.Fatal(err)
		}
		for _, echo := range []string{string(whole), hex.EncodeToString(whole), everyByte(string(whole), `\u%04x`)} {
			if got := cleaned(t, echo, value); !strings.Contains(got, "{{secret:K0}}") {
				t.Errorf("%d before it: %q", before, got)
			}
		}
	}
}

// A guest sees the secret in no place of a response.
func TestNoPlaceOfAResponseHasASecret(t *testing.T) {
	client := New(Config{Authorize: granting{value: "hunter2hunter2", plain: true}})
	for _, response := range []string{
		"HTTP/1.1 103 Early Hints\r\nLink: SECRET\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 SECRET\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n1;e=SECRET\r\na\r\n0\r\nX-A: SECRET\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX-A: hunter2\r\n hunter2\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: http://u:SECRET@h/?k=SECRET#SECRET\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nSet-Cookie: a=SECRET\r\nConnection: SECRET\r\nContent-Type: text/plain; x=SECRET\r\nX-SECRET: 2\r\n\r\n", "HTTP/1.1 204 No Content\r\nX: SECRET\r\n\r\nSECRET",
	} {
		got, err := client.Do(context.Background(), get("http://"+answer(t, strings.ReplaceAll(response, "SECRET", "hunter2hunter2"))), "")
		if err != nil || bytes.Contains(bytes.ToLower(got), []byte("hunter")) {
			t.Errorf("%q: %q, %v", response, got, err)
		}
	}
}

// Lines, and characters of two bytes, are not in the way.
func TestScrubbingFindsASecretThatIsBrokenUp(t *testing.T) {
	var mail, wide strings.Builder
	for i, c := range []byte(base64.StdEncoding.EncodeToString([]byte("abc " + canary + canary + canary + canary))) {
		if mail.WriteByte(c); i%76 == 75 {
			mail.WriteString("\r\n")
		}
	}
	for _, r := range utf16.Encode([]rune("hunter2hunter2")) {
		wide.WriteString(string([]byte{byte(r), byte(r >> 8)}))
	}
	for value, echo := range map[string]string{canary: mail.String(), "hunter2hunter2": wide.String()} {
		if got := cleaned(t, echo, value); !strings.Contains(got, "{{secret:K0}}") {
			t.Errorf("%q: %q", value, got)
		}
	}
}

// The number of readings per byte of a response, and of compared bytes, is bounded, whatever
// the response has.
func TestTheWorkOfASearchGrowsWithTheResponse(t *testing.T) {
	for _, unit := range []string{strings.Repeat("a", 8) + strings.Repeat(" ", 1000), " ", ", 0x", "-ab", "%25", "%2525", `\\`, `\u005c`, "&amp;", "&#38;", "=\n", "\x00", `\u{5c`} {
		for _, size := range []int{64 << 10, 256 << 10} {
			text := []byte(strings.Repeat(unit, size/len(unit)))
			s := newScrubber([]Secret{{"K", []byte(strings.Repeat("a", 4000) + "b")}}, len(text))
			decoded := 0
			for _, r := range readings {
				if decode := r.decode; decode != nil {
					r.decode = func(into, b []byte) ([]byte, int) {
						decoded++
						return decode(into, b)
					}
				}
				s.search(text, &r, nil)
			}
			if most := len(readings)*len(text) + freeCompared + workPerByte*len(text); decoded > most {
				t.Errorf("%d bytes of %q are decoded %d times, more than %d", len(text), unit[:1], decoded, most)
			}
		}
	}
}

// Two steps may be the same, of any of the characters, and mail has lines of its own.
func TestScrubbingFindsASecretThatIsEscapedTwice(t *testing.T) {
	const value = `sk-"Live'_4eC3`
	for _, echo := range []string{
		strings.ReplaceAll(everyByte(value, "%%%02x"), "%", "%25"), strings.ReplaceAll(everyByte(value, `\u%04x`), `\`, `\\`),
		strings.ReplaceAll(everyByte(value, "&#%d;"), "&", "&amp;"), strings.ReplaceAll(everyByte(value, "&#x%x;"), "&", "&#38;"),
		"sk-&amp;quot;Live&amp;#x27;_4eC3", "sk-=22Li=\nve'=\r\n_4eC3",
	} {
		if got := cleaned(t, "<"+echo+">", value); got != "<{{secret:K0}}>" {
			t.Errorf("%q: %q", echo, got)
		}
	}
}

// A server that gets an encoded text may return the decoded one.
func TestScrubbingFindsASecretThatWasDecoded(t *testing.T) {
	for value, echo := range map[string]string{
		base64.StdEncoding.EncodeToString([]byte("user:open sesame")): "user=user password=open sesame",
		"p%41ssword1234":                             "pAssword1234",
		`p\u0041ssword1234`:                          "pAssword1234",
		"p&#65;ssword&amp;1234":                      "pAssword&1234",
		hex.EncodeToString([]byte("hunter2hunter2")): "hunter2hunter2",
		// An API may take its token for the name of a user, without a password or with a fixed one.
		base64.StdEncoding.EncodeToString([]byte("sk_live_1234:")):                  `{"user":"sk_live_1234"}`,
		base64.StdEncoding.EncodeToString([]byte("ghp_123456:x-oauth-basic")):       "hello ghp_123456",
		base64.StdEncoding.EncodeToString([]byte("\xe9\x00\xff\x81key\x9f")):        `{"key":"\u00e9\u0000\u00ff\u0081key\u009f"}`,
		base64.RawURLEncoding.EncodeToString([]byte("\xe9\x80\xff\x81key\xfb\xff")): "é\u0080ÿ\u0081keyûÿ",
		"hunter2hunter2 \n":      "hunter2hunter2",
		"'hunter2hunter2'":       "hunter2hunter2",
		"Bearer hunter2hunter2":  `{"token":"hunter2hunter2"}`,
		"session=hunter2hunter2": "session: hunter2hunter2",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("user:hunter2hunter2")): "hunter2hunter2",
		"0012345678901234567890":          "12345678901234567000",
		"12345678901234567890123456789":   "1.2345678901234568e+28",
		"-----KEY-----\nabc\ndef\n---END": "-----KEY----- abcdef\r\n---END",
	} {
		if got := cleaned(t, echo, value); !strings.Contains(got, "{{secret:K0}}") {
			t.Errorf("%q: %q", value, got)
		}
	}
}
