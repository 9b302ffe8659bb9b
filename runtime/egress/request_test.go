package egress

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
)

func TestParseRequest(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		want      Request
	}{
		{
			"the shortest request",
			"GET http://127.0.0.1:8080/customers/42 HTTP/1.1\r\n\r\n",
			Request{Method: "GET", URL: "http://127.0.0.1:8080/customers/42", Effect: "GET http://127.0.0.1:8080/customers/42"},
		},
		{
			"headers, a body and a name",
			"POST https://example.com/a?b=c HTTP/1.1\r\nHost: EXAMPLE.com:443\r\ncontent-type:text/plain\r\nX-A: 1\r\nx-a:\t2 \r\nContent-Length: 5\r\nstarling-effect: create customer é\r\n\r\nhello",
			Request{Method: "POST", URL: "https://example.com/a?b=c", Header: http.Header{"Content-Type": {"text/plain"}, "X-A": {"1", "2"}}, Body: []byte("hello"), Effect: "create customer é"},
		},
		{
			"a chunked body",
			"PUT http://h/ HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0007\r\n, world\r\n0\r\n\r\n",
			Request{Method: "PUT", URL: "http://h/", Body: []byte("hello, world"), Effect: "PUT http://h/"},
		},
		{
			"an empty chunked body",
			"PUT http://h/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			Request{Method: "PUT", URL: "http://h/", Effect: "PUT http://h/"},
		},
		{
			"a body that looks like a head",
			"POST http://h/ HTTP/1.1\r\nContent-Length: 17\r\n\r\nGET http://x/\r\n\r\n",
			Request{Method: "POST", URL: "http://h/", Body: []byte("GET http://x/\r\n\r\n"), Effect: "POST http://h/"},
		},
		{
			"a method of its own and an empty header",
			"m-search http://h/ HTTP/1.1\r\nConnection: Keep-Alive\r\nUser-Agent:\r\n\r\n",
			Request{Method: "m-search", URL: "http://h/", Header: http.Header{"User-Agent": {""}}, Effect: "m-search http://h/"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseRequest([]byte(c.raw))
			if err != nil {
				t.Fatal(err)
			}
			if c.want.Header == nil {
				c.want.Header = http.Header{}
			}
			if len(got.Body) == 0 {
				got.Body = nil
			}
			if d := cmp.Diff(&c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestParseRequestRefuses(t *testing.T) {
	head := func(lines ...string) string {
		return "POST http://h/ HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
	}
	for _, c := range []struct{ name, raw, hint string }{
		{"nothing", "", "no empty line"},
		{"a request line alone", "GET http://h/ HTTP/1.1\r\n", "no empty line"},
		{"lines that end in LF", "GET http://h/ HTTP/1.1\nHost: h\n\n", `\r\n`},
		{"one line that ends in LF", head("A: b\nC: d"), "control character"},
		{"an empty line first", "\r\n" + head(), "METHOD URL HTTP/1.1"},
		{"origin form", "GET /x HTTP/1.1\r\nHost: h\r\n\r\n", "write http://HOST/PATH"},
		{"two spaces", "GET  http://h/ HTTP/1.1\r\n\r\n", "one space"},
		{"a space in the URL", "GET http://h/a b HTTP/1.1\r\n\r\n", "one space"},
		{"no version", "GET http://h/\r\n\r\n", "HTTP/1.1"},
		{"HTTP/1.0", "GET http://h/ HTTP/1.0\r\n\r\n", "HTTP/1.1"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1"},
		{"a method that is not a token", "G(T http://h/ HTTP/1.1\r\n\r\n", "not a token"},
		{"no method", " http://h/ HTTP/1.1\r\n\r\n", "not a token"},
		{"CONNECT", "CONNECT http://h/ HTTP/1.1\r\n\r\n", "not supported"},
		{"TRACE", "TRACE http://h/ HTTP/1.1\r\n\r\n", "not supported"},
		{"a tunnel", "CONNECT h:443 HTTP/1.1\r\n\r\n", "not supported"},
		{"a header without a colon", head("abc"), "NAME: VALUE"},
		{"a header without a name", head(": x"), "NAME: VALUE"},
		{"a space before the colon", head("Content-Length : 0"), "NAME: VALUE"},
		{"a folded header", head("A: b", " c"), "continues the line before"},
		{"a header that begins with a tab", head("\tA: b"), "NAME: VALUE"},
		{"a NUL in a value", head("A: b\x00c"), "control character"},
		{"a NUL in a name", head("A\x00: b"), "NAME: VALUE"},
		{"a CR in a value", head("A: b\rc"), "control character"},
		{"a DEL in a value", head("A: b\x7f"), "control character"},
		{"a name in another script", head("É: b"), "NAME: VALUE"},
		{"two Hosts", head("Host: h", "Host: h"), "twice"},
		{"another Host", head("Host: evil.example"), "the URL says"},
		{"another port in Host", head("Host: h:81"), "the URL says"},
		{"an empty Host", head("Host:"), "the URL says"},
		{"two Content-Lengths that agree", head("Content-Length: 0", "content-length: 0"), "twice"},
		{"a list of Content-Lengths", head("Content-Length: 0, 0"), "not a number"},
		{"a Content-Length with a sign", head("Content-Length: +0"), "not a number"},
		{"a negative Content-Length", head("Content-Length: -1"), "not a number"},
		{"a Content-Length with a leading zero", head("Content-Length: 00"), "not a number"},
		{"a hexadecimal Content-Length", head("Content-Length: 0x0"), "not a number"},
		{"a huge Content-Length", head("Content-Length: 18446744073709551616"), "not a number"},
		{"a body that is too short", head("Content-Length: 5") + "hell", "4 bytes follow"},
		{"a body that is too long", head("Content-Length: 5") + "hello!", "6 bytes follow"},
		{"a body without a length", head() + "hello", "no Content-Length"},
		{"a second request behind the first", head() + head(), "no Content-Length"},
		{"both framings", head("Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n", "contradict"},
		{"two Transfer-Encodings", head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "0\r\n\r\n", "twice"},
		{"gzip, chunked", head("Transfer-Encoding: gzip, chunked") + "0\r\n\r\n", "not supported"},
		{"chunked behind a control character", head("Transfer-Encoding: \x0bchunked") + "0\r\n\r\n", "control character"},
		{"identity", head("Transfer-Encoding: identity"), "not supported"},
		{"a chunk extension", head("Transfer-Encoding: chunked") + "5;a=b\r\nhello\r\n0\r\n\r\n", "no chunk size"},
		{"a chunk size with a sign", head("Transfer-Encoding: chunked") + "+5\r\nhello\r\n0\r\n\r\n", "no chunk size"},
		{"a chunk size with 0x", head("Transfer-Encoding: chunked") + "0x5\r\nhello\r\n0\r\n\r\n", "no chunk size"},
		{"a chunk size that overflows", head("Transfer-Encoding: chunked") + "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", "no chunk size"},
		{"a chunk that is cut off", head("Transfer-Encoding: chunked") + "ff\r\nhello\r\n0\r\n\r\n", "not 255 bytes"},
		{"a chunk that runs over", head("Transfer-Encoding: chunked") + "4\r\nhello\r\n0\r\n\r\n", "not 4 bytes"},
		{"chunks without an end", head("Transfer-Encoding: chunked") + "5\r\nhello\r\n", "no chunk size"},
		{"a trailer", head("Transfer-Encoding: chunked") + "0\r\nA: b\r\n\r\n", "trailers"},
		{"text behind the last chunk", head("Transfer-Encoding: chunked") + "0\r\n\r\nx", "trailers"},
		{"Connection: upgrade", head("Connection: upgrade"), "close or keep-alive"},
		{"Connection that names a header", head("Connection: close, X-A"), "close or keep-alive"},
		{"Upgrade", head("Upgrade: h2c"), "belongs to the host"},
		{"Expect", head("Expect: 100-continue"), "belongs to the host"},
		{"TE", head("TE: trailers"), "belongs to the host"},
		{"Trailer", head("Trailer: X"), "belongs to the host"},
		{"Keep-Alive", head("Keep-Alive: timeout=5"), "belongs to the host"},
		{"Proxy-Authorization", head("Proxy-Authorization: Basic x"), "belongs to the host"},
		{"Proxy-Connection", head("proxy-connection: keep-alive"), "belongs to the host"},
		{"HTTP2-Settings", head("HTTP2-Settings: AAMAAABk"), "belongs to the host"},
		{"an empty effect", head("Starling-Effect:"), "name of an effect"},
		{"an effect that is not UTF-8", head("Starling-Effect: \xff"), "name of an effect"},
		{"a long effect", head("Starling-Effect: " + strings.Repeat("a", maxEffectName+1)), "name of an effect"},
		{"an effect with the name of a clock reading", head("Starling-Effect: now"), "belongs to the runtime"},
		{"an effect with the name of an intent", head("Starling-Effect: intent"), "belongs to the runtime"},
		{"two effects", head("Starling-Effect: a", "Starling-Effect: b"), "twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := ParseRequest([]byte(c.raw))
			if err == nil {
				t.Fatalf("accepted as %+v", r)
			}
			wantFailure(t, err, abi.StatusMalformed, c.hint)
		})
	}
}

func TestParseRequestBoundsTheHead(t *testing.T) {
	for _, raw := range []string{
		"GET http://h/ HTTP/1.1\r\nA: " + strings.Repeat("b", maxRequestHead) + "\r\n\r\n",
		strings.Repeat("a", 10<<20),
	} {
		_, err := ParseRequest([]byte(raw))
		wantFailure(t, err, abi.StatusTooLarge, "65536 bytes")
	}
}

func TestLongEffectNamesAreCut(t *testing.T) {
	r, err := ParseRequest([]byte("GET http://h/" + strings.Repeat("a", 1000) + " HTTP/1.1\r\n\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Effect) != maxEffectName || !strings.HasSuffix(r.Effect, "a...") {
		t.Errorf("effect %q of %d bytes", r.Effect, len(r.Effect))
	}
}

func TestErrorTextsAreBoundedText(t *testing.T) {
	_, err := ParseRequest([]byte("GET http://h/ HTTP/1.1\r\n" + strings.Repeat("\xff\x1b[31m", 5000) + "\r\n\r\n"))
	wantFailure(t, err, abi.StatusMalformed, `\xff\x1b[31m`)
	if n := len(err.(*Error).Text); n > maxErrorText {
		t.Errorf("text of %d bytes", n)
	}
}

// A guest in Go sends what net/http writes for a proxy.
func TestRequestsWrittenByNetHTTP(t *testing.T) {
	for _, c := range []struct {
		name string
		body io.Reader
	}{
		{"no body", nil},
		{"a body of known length", strings.NewReader("hello")},
		{"a body of unknown length", io.MultiReader(strings.NewReader("hel"), strings.NewReader("lo"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := http.NewRequest("POST", "https://user:pw@example.com:8443/a%2Fb/?q=%C3%A9#fragment", c.body)
			if err != nil {
				t.Fatal(err)
			}
			req.Close = true
			req.Header.Set("X-A", "b")
			var raw bytes.Buffer
			if err := req.WriteProxy(&raw); err != nil {
				t.Fatal(err)
			}
			got, err := ParseRequest(raw.Bytes())
			if err != nil {
				t.Fatalf("%q: %v", raw.Bytes(), err)
			}
			want := http.Header{"X-A": {"b"}, "User-Agent": {"Go-http-client/1.1"}}
			if d := cmp.Diff(want, got.Header); d != "" || got.URL != "https://example.com:8443/a%2Fb/?q=%C3%A9" {
				t.Errorf("%s\n%s", got.URL, d)
			}
			if c.body != nil && string(got.Body) != "hello" {
				t.Errorf("body %q", got.Body)
			}
		})
	}
}

// FuzzParseRequest checks that every accepted text is sent as the one request
// that net/http reads too, with nothing before or after it.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte("GET http://127.0.0.1:8080/customers/42 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"))
	f.Add([]byte("POST https://example.com/a?b=c HTTP/1.1\r\nContent-Length: 5\r\nX-A: 1\r\nStarling-Effect: e\r\n\r\nhello"))
	f.Add([]byte("PUT http://h HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := ParseRequest(raw)
		if err != nil {
			if s := statusOf(t, err); s != abi.StatusMalformed && s != abi.StatusTooLarge {
				t.Fatalf("status %v", s)
			}
			return
		}
		target, err := r.check()
		if err != nil {
			t.Fatalf("accepted, then refused: %v", err)
		}
		sentOnce(t, r, target)
	})
}

func sentOnce(t *testing.T, r *Request, to target) {
	_, message := r.wire(to, "")
	in := newMessageReader(message)
	got, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("%q is not readable: %v", message, err)
	}
	body, err := io.ReadAll(got.Body)
	if err != nil || in.Buffered() > 0 {
		t.Fatalf("%q: %v, %d bytes left", message, err, in.Buffered())
	}
	if got.Method != r.Method || got.RequestURI != to.uri || got.Host != to.hostPort() || !bytes.Equal(body, r.Body) {
		t.Fatalf("%q is read as %+v", message, got)
	}
	for name := range r.Header {
		if d := cmp.Diff(r.Header[name], got.Header[name]); d != "" {
			t.Fatalf("header %s: %s", name, d)
		}
	}
}
