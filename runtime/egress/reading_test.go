package egress

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
)

// A server that decodes its input, and returns the result, returns something other
// than the secret.
func TestRequestsThatHaveASecretReadAsSomethingElse(t *testing.T) {
	const form, multipart = "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"
	for _, c := range []struct{ name, contentType, body, want string }{
		{"behind %", "text/plain", "a=%{{secret:K}}", "could make an escape"},
		{"behind % and a digit", "text/plain", "a=%f{{secret:K}}", "could make an escape"},
		{"behind a % that is encoded", "text/plain", "a=%2525{{secret:K}}", "could make an escape"},
		{"behind an encoded % of a form", form, "a=%25{{secret:K}}", "could make an escape"},
		{"behind %u", "text/plain", "a=%u00{{secret:K}}", "could make an escape"},
		{"behind \\", "application/json", `{"a":"\{{secret:K}}"}`, "as JSON and is none"},
		{"behind \\u00", "application/json", `{"a":"\u00{{secret:K}}"}`, "as JSON and is none"},
		{"behind \\u00 in JSON in JSON", "application/json", `{"a":"{\"b\":\"\\u00{{secret:K}}\"}"}`, "could make an escape"},
		{"behind \\x", "text/plain", `"\x{{secret:K}}"`, "could make an escape"},
		{"behind &#x", "text/xml", "<a>&#x{{secret:K}};</a>", "could make an escape"},
		{"behind a byte that is not ASCII", "text/plain", "ü{{secret:K}}", "not ASCII"},
		{"before a byte that is not ASCII", "text/plain", "{{secret:K}}ü", "not ASCII"},
		{"behind %81", "text/plain", "%81{{secret:K}}", "not ASCII"},
		{"before %CC%81", "text/plain", "{{secret:K}}%CC%81", "not ASCII"},
		{"behind a byte of a form", form, "a=%81{{secret:K}}", "must be UTF-8"},
		{"behind a character of a form", form, "a=%C3%A4{{secret:K}}", "not ASCII"},
		{"behind \\u00e4", "application/json", `{"a":"\u00e4{{secret:K}}"}`, "not ASCII"},
		{"before \\u0301", "application/json", `{"a":"{{secret:K}}\u0301"}`, "not ASCII"},
		{"before &#769;", "text/xml", `<a>{{secret:K}}&#769;</a>`, "not ASCII"},
		{"before &DownBreve;", "text/xml", `<a>{{secret:K}}&DownBreve;</a>`, "not ASCII"},
		{"among bytes that are not UTF-8", "text/plain", "a\x81b{{secret:K}}", "must be UTF-8"},
		{"among NULs, as UTF-16", "application/json", "\x00\"{{secret:K}}\x00\"", "control characters"},
		{"behind a byte order mark", "text/plain", "\ufeff {{secret:K}}", "control characters"},
		{"behind the escape of ISO-2022-JP", "text/plain", "\x1b$B{{secret:K}}", "control characters"},
		{"beside a field that shifts", form, "a=1&b=\x1b$B&c={{secret:K}}", "control characters"},
		{"in GBK, whose bytes of ASCII are not always ASCII", "text/plain; charset=gbk", "{{secret:K}}", "not in \"gbk\""},
		{"in two charsets", "text/plain; charset=utf-8; CHARSET*0=gb", "{{secret:K}}", "not in \"gb\""},
		{"in a charset behind a space that is not ASCII", "text/plain; charset\xa0=gbk", "{{secret:K}}", "not in \"gbk\""},
		{"in a form that names its charset", form, "%5Fcharset_=gbk&a={{secret:K}}", "not in \"_charset\""},
		{"in a part that names the form's charset", multipart, "--B\r\nContent-Disposition: form-data; name=\"_charset_\"\r\n\r\ngbk\r\n--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B--", "not in \"_charset\""},
		{"in a page in another charset", "text/html", `<meta charset="gbk"><p>{{secret:K}}`, "not in \"gbk\""},
		{"in a part that is packed", multipart, "--B\r\nContent-Encoding: deflate\r\n\r\n{{secret:K}}\r\n--B--", "has only parts with the lines"},
		{"in a parameter in another charset", multipart, "--B\r\nContent-Disposition: form-data; filename*=utf-16''{{secret:K}}\r\n\r\n\r\n--B--", "has only parts with the lines"},
		{"in an encoded word", multipart, "--B\r\nSubject: =?utf-8?B?{{secret:K}}?=\r\n\r\n\r\n--B--", "has only parts with the lines"},
		{"outside of a string of JSON", "application/json", `{"a":{{secret:K}}}`, "as JSON and is none"},
		{"in another charset", "text/plain; charset=UTF-16LE", "{{secret:K}}", "not in \"UTF-16LE\""},
		{"in a charset in quotes", `text/plain;charset = "ibm037"`, "{{secret:K}}", "not in \"ibm037\""},
		{"in a part in another charset", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain; charset=utf-7\r\n\r\n{{secret:K}}\r\n--B--", "not in \"utf-7\""},
		{"in XML in another charset", "text/xml", "<?xml version='1.0' encoding='cp500'?><a>{{secret:K}}</a>", "not in \"cp500\""},
		{"in a part that is quoted-printable", multipart, "--B\r\nContent-Transfer-Encoding:\r\n Quoted-Printable\r\n\r\n={{secret:K}}\r\n--B--", "has only parts with the lines"},
		// A Content-Type is written in the one way that all servers read alike.
		{"in a charset behind a comment", "text/plain; charset(a)=utf-16", "{{secret:K}}", "without comments"},
		{"in a charset behind a comment and spaces", "text/plain; charset (a) = utf-16", "{{secret:K}}", "without comments"},
		{"in a charset behind a comment that is =", "text/plain; charset(=)=utf-16", "{{secret:K}}", "without comments"},
		{"in an extended charset behind a comment", "text/plain; charset(a)*=utf-16", "{{secret:K}}", "without comments"},
		{"in a charset whose name is escaped", `text/plain; charset="utf\-16"`, "{{secret:K}}", "not in"},
		{"in a type behind a comment", "(a)text/plain", "{{secret:K}}", "without comments"},
		{"in a form whose type has an unfinished parameter", form + "; x", "a={{secret:K}}", "without comments"},
		{"in a form with two types", form + ", text/plain", "a={{secret:K}}", "without comments"},
		// A body has a type whose text is the whole value.
		{"without a type", "", "a={{secret:K}}", "needs the Content-Type of a text"},
		{"in protobuf", "application/x-protobuf", "\nAAAAAAAAAA{{secret:K}}", "needs the Content-Type of a text"},
		{"in bencode", "application/x-bittorrent", "20:{{secret:K}}", "needs the Content-Type of a text"},
		{"in a netstring as text", "text/plain", "d3:key20:{{secret:K}}e", "could be its length"},
		{"in PHP's serialization as text", "text/plain", `s:20:"{{secret:K}}";`, "could be its length"},
		{"in a mail", "message/rfc822", "Subject: {{secret:K}}", "needs the Content-Type of a text"},
		{"in a multipart body of another kind", "multipart/mixed; boundary=B", "--B\r\n\r\n{{secret:K}}\r\n--B--", "needs the Content-Type of a text"},
		// So have the parts of one.
		{"in a part with a comment in its charset", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain; charset(a)=utf-16\r\n\r\n{{secret:K}}\r\n--B--", "has only parts with the lines"},
		{"in a part with a folded line", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain;\r\n charset=utf-8\r\n\r\n{{secret:K}}\r\n--B--", "has only parts with the lines"},
		{"in a part's file name, in a folded encoded word", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"; filename=\"=?utf-16\r\n ?q?{{secret:K}}?=\"\r\n\r\nx\r\n--B--", "on one line and without escapes"},
		{"in a part's field, in a folded encoded word", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nSubject: =?utf\r\n -16?q?{{secret:K}}?=\r\n\r\nx\r\n--B--", "has only parts with the lines"},
		{"in a part's name", multipart, "--B\r\nContent-Disposition: form-data; name=\"{{secret:K}}\"\r\n\r\nx\r\n--B--", "has only parts with the lines"},
		{"beside a part of other bytes that is no file", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n\x81\r\n--B--", "has only parts with the lines"},
		{"in a part of other bytes", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"; filename=\"a\"\r\nContent-Type: text/plain\r\n\r\n\x81 {{secret:K}}\r\n--B--", "must be UTF-8"},
		{"in a part of another type", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"; filename=\"a\"\r\nContent-Type: application/pdf\r\n\r\n{{secret:K}}\r\n--B--", "has only parts with the lines"},
		{"in a part with two types", multipart, "--B\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: text/plain\r\n\r\n{{secret:K}}\r\n--B--", "has only parts with the lines"},
		{"beside a part of parts", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B\r\nContent-Disposition: form-data; name=\"b\"; filename=\"b\"\r\nContent-Type: multipart/mixed; boundary=C\r\n\r\n--C--\r\n--B--", "has only parts with the lines"},
		{"beside a file with the boundary in small letters", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B\r\nContent-Disposition: form-data; name=\"b\"; filename=\"b\"\r\n\r\n\r\n--b\r\n\r\n--B--", "has only parts with the lines"},
		{"beside a file whose name is not UTF-8", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B\r\nContent-Disposition: form-data; name=\"b\"; filename=\"\xfc\"\r\n\r\n\r\n--B--", "has only parts with the lines"},
		{"beside a file whose name is in another charset", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B\r\nContent-Disposition: form-data; name=\"b\"; filename=\"b\"; filename*=gbk''x\r\n\r\n\r\n--B--", "has only parts with the lines"},
		{"beside a part that names a charset", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B\r\nContent-Disposition: form-data; name=\"charset\"\r\n\r\ngbk\r\n--B--", "not in \"gbk\""},
		{"among a boundary and one in quotes", multipart + `; x="; boundary="`, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B--", "has only parts with the lines"},
		{"in a boundary that ends with a space", "multipart/form-data; boundary=\"B \"", "--B \r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B --", "has only parts with the lines"},
		{"on a line that is no JSON", "application/x-ndjson", "{\"a\":1}\n{\"a\":\n\"{{secret:K}}\"}", "as JSON and is none"},
		{"behind a boundary on a line that ends with LF", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\n--B\nSubject: =?a?q?\n\n{{secret:K}}\r\n--B--", "has only parts with the lines"},
		{"among two boundaries", multipart + "; boundary=C", "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n--B--", "has only parts with the lines"},
		{"in a part of a part", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Type: multipart/mixed; boundary=C\r\n\r\n--C\r\n\r\n{{secret:K}}\r\n--C--\r\n--B--", "has only parts with the lines"},
		{"in an encoded word of a folded charset", "text/plain", "=?gb=\r\n k?q?=41{{secret:K}}?=", "not in"},
		{"in an encoded word of a charset with spaces", "text/plain", "=?utf-16 ?q?{{secret:K}}?=", "not in"},
		// A backslash makes endless escapes.
		{"behind \\U0001f6", "text/plain", `\U0001f6{{secret:K}}`, "could make an escape"},
		{"behind \\U0000", "text/plain", `\U0000{{secret:K}}`, "could make an escape"},
		{"behind \\x{00", "text/plain", `\x{00{{secret:K}}`, "could make an escape"},
		{"behind \\c", "text/plain", `\c{{secret:K}}`, "could make an escape"},
		{"behind \\N{", "text/plain", `\N{{{secret:K}}`, "could make an escape"},
		{"behind \\N{U+", "text/plain", `\N{U+{{secret:K}}}`, "could make an escape"},
		{"behind \\' of RTF", "text/rtf", `\'{{secret:K}}`, "could make an escape"},
		{"behind \\n outside of JSON", "text/plain", `\n{{secret:K}}`, "could make an escape"},
		{"behind an escape of CSS", "text/css", `\00004{{secret:K}}`, "could make an escape"},
		{"before \\U00000301", "text/plain", `{{secret:K}}\U00000301`, "could make an escape"},
		{"before \\N{COMBINING ACUTE ACCENT}", "text/plain", `{{secret:K}}\N{COMBINING ACUTE ACCENT}`, "could make an escape"},
		{"behind \\U0001f6 in JSON", "application/json", `{"a":"\\U0001f6{{secret:K}}"}`, "could make an escape"},
		{"behind \\c in JSON", "application/json", `{"a":"\\c{{secret:K}}"}`, "could make an escape"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Request{Method: "POST", URL: "http://h/", Header: http.Header{}, Body: []byte(c.body)}
			if c.contentType != "" {
				r.Header.Set("Content-Type", c.contentType)
			}
			var dialled recorder
			client := New(Config{Authorize: granting{value: "hunter2hunter2"}, Resolve: resolveTo("127.0.0.1")})
			client.dial = dialled.dial
			_, err := client.Do(context.Background(), r, "")
			wantFailure(t, err, abi.StatusDenied, c.want)
			if len(dialled.dialled) > 0 {
				t.Errorf("connections to %v", dialled.dialled)
			}
		})
	}
}

// A guest that knows how a key ends could have a server end a part there.
func TestASecretHasNoBoundaryOfItsBody(t *testing.T) {
	r := &Request{Method: "POST", URL: "http://h/", Header: http.Header{"Content-Type": {`multipart/form-data; boundary="---end key-----"`}}}
	r.Body = []byte("-----end key-----\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{{secret:K}}\r\n-----end key-------\r\n")
	client := New(Config{Authorize: granting{value: "-----BEGIN KEY-----\nhunter2hunter2\n-----END KEY-----\n"}, Resolve: resolveTo("127.0.0.1")})
	var dialled recorder
	client.dial = dialled.dial
	_, err := client.Do(context.Background(), r, "")
	wantFailure(t, err, abi.StatusDenied, "one boundary")
	if len(dialled.dialled) > 0 {
		t.Errorf("connections to %v", dialled.dialled)
	}
}

func TestWhatMayStandAroundASecret(t *testing.T) {
	const file, secret = "multipart/form-data; boundary=END", "{{secret:K}}"
	part := func(head, content string) string {
		return "--END\r\nContent-Disposition: form-data; name=\"grün\"" + head + "\r\n\r\n" + content + "\r\n"
	}
	for _, c := range []struct{ contentType, body, want string }{
		{"application/json; charset=UTF-8", `{"a":"line\n{{secret:K}}\n","b":"\u00e4 ü {{secret:K}}"`, `{"a":"line\nhunter2hunter2\n","b":"\u00e4 ü hunter2hunter2"`},
		{"application/x-www-form-urlencoded; charset=utf-8", "coding=base64&a=%C3%A4+{{secret:K}}%20&b=", "coding=base64&a=%C3%A4%20hunter2hunter2%20&b="},
		{"application/json", `{"a":"{\"b\":\"{{secret:K}}\"}"`, `{"a":"{\"b\":\"hunter2hunter2\"}"`},
		{"application/graphql; charset=utf-8", `query { a(b: "{{secret:K}}") }`, `query { a(b: "hunter2hunter2") }`},
		{"multipart/form-data; boundary=\"a =END\"", "--a =END\r\nContent-Disposition: form-data; name=\"a\"; filename=\"f.txt\"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{{secret:K}}\r\n--a =END\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\nEND\r\n--a =END--",
			"--a =END\r\nContent-Disposition: form-data; name=\"a\"; filename=\"f.txt\"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nhunter2hunter2\r\n--a =END\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\nEND\r\n--a =END--"},
		// Beside a secret in another part, a file has any bytes and a name in UTF-8.
		{file, part("", secret) + part("; filename=\"ü (1).pdf\"\r\nContent-Type: application/pdf", "%PDF\x00\xff\xfe\x1b$B charset=utf-16\n--BE\n") + "--END--",
			part("", "hunter2hunter2") + part("; filename=\"ü (1).pdf\"\r\nContent-Type: application/pdf", "%PDF\x00\xff\xfe\x1b$B charset=utf-16\n--BE\n") + "--END--"},
		{file, "--END\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + secret + "\r\n" + part("; filename=\"a\"; filename*=UTF-8''%C3%BC.bin\r\nContent-Type: application/octet-stream;", "\x81") + "--END--",
			"--END\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nhunter2hunter2\r\n" + part("; filename=\"a\"; filename*=UTF-8''%C3%BC.bin\r\nContent-Type: application/octet-stream;", "\x81") + "--END--"},
		{file, part("\r\nContent-Type: application/x-www-form-urlencoded", "a=%7B%7Bsecret:K%7D%7D") + part("", secret) + "--END--",
			part("\r\nContent-Type: application/x-www-form-urlencoded", "a=%7B%7Bsecret:K%7D%7D") + part("", "hunter2hunter2") + "--END--"},
		{"application/json;", `{"a":"x*=gbk'y {{secret:K}}"`, `{"a":"x*=gbk'y hunter2hunter2"`},
		{"application/json; profile=https://example.com/a#b", `{"a":"{{secret:K}}"`, `{"a":"hunter2hunter2"`},
		{`application/ld+json; profile="https://example.com/a#b";`, `{"a":"{{secret:K}}"`, `{"a":"hunter2hunter2"`},
		{"application/x-ndjson", "{\"a\":\"{{secret:K}}\"}\n{\"a\":1", "{\"a\":\"hunter2hunter2\"}\n{\"a\":1"},
		{"text/plain", "a%20 {{secret:K}} &gt;{{secret:K}}&lt;", "a%20 hunter2hunter2 &gt;hunter2hunter2&lt;"},
	} {
		host, received := capture(t)
		end := "END"
		switch {
		case strings.HasPrefix(c.body, "{"):
			end = `,"c":"END"}`
		case strings.HasPrefix(c.body, "--"):
			end = ""
		}
		r := &Request{Method: "POST", URL: "http://" + host, Header: http.Header{"Content-Type": {c.contentType}}, Body: []byte(c.body + end)}
		if _, err := New(Config{Authorize: granting{value: "hunter2hunter2"}}).Do(context.Background(), r, ""); err != nil {
			t.Fatal(err)
		}
		if got := received(); !strings.HasSuffix(got, "\r\n\r\n"+c.want+end) {
			t.Errorf("sent %q, want %q", got, c.want)
		}
	}
}

// A server may put its input in any place of its response. The reason why the
// response is refused contains none of it.
func TestErrorTextsQuoteNoResponseThatMayHaveASecret(t *testing.T) {
	const value = "7fsk_live_hunter2"
	client := New(Config{Authorize: granting{value: value, plain: true}})
	for _, response := range []string{
		"HTTP/1.1 200 OK\r\nContent-Encoding: SECRET\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip, SECRET\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=SECRET\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset*=SECRET''x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: SECRET\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nSECRET\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n", "HTTP/1.1 200 OK\r\nSECRET\r\n\r\n", "HTTP/1.1 200 OK\r\nSECRET : 1\r\n\r\n", "HTTP/1.1 200 OK\r\nX: SECRET\x01\r\n\r\n",
		"HTTP/1.1 SECRET OK\r\n\r\n", "SECRET 200 OK\r\n\r\n", "HTTP/SECRET 200 OK\r\n\r\n", "HTTP/1.1 101 SECRET\r\nUpgrade: SECRET\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: SECRET\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: SECRET\r\n\r\n0\r\nSECRET\r\n\r\n",
	} {
		host := answer(t, strings.ReplaceAll(response, "SECRET", value))
		_, err := client.Do(context.Background(), get("http://"+host), "")
		if err == nil || strings.Contains(err.Error(), value[:6]) {
			t.Errorf("%q: %v", response, err)
		}
	}
}

// Some servers answer in the charset that the guest requests.
func TestResponsesInOtherCharacters(t *testing.T) {
	client := New(Config{Authorize: granting{value: canary, plain: true}})
	for _, contentType := range []string{"text/plain;charset=UTF-16", `application/json; Charset="utf-32be"`, "text/plain; a=b; charset=IBM037"} {
		host := answer(t, "HTTP/1.1 200 OK\r\nContent-Type: "+contentType+"\r\n\r\nx")
		_, err := client.Do(context.Background(), get("http://"+host), "")
		wantFailure(t, err, abi.StatusDenied, "could not be searched for secrets")
	}
	for _, contentType := range []string{"text/plain", "text/html; charset=utf-8", "text/html;charset=ISO-8859-15", "application/json; charset=\"windows-1252\"", "text/plain; charset="} {
		host := answer(t, "HTTP/1.1 200 OK\r\nContent-Type: "+contentType+"\r\n\r\nx")
		if _, err := client.Do(context.Background(), get("http://"+host), ""); err != nil {
			t.Errorf("%s: %v", contentType, err)
		}
	}
}

// A body has room for a hundred thousand distinct placeholders: with a linear search
// for each, a guest made the host compute for minutes.
func TestManyPlaceholders(t *testing.T) {
	const many = 120_000
	var body strings.Builder
	for i := range many {
		fmt.Fprintf(&body, "{{secret:A%X}}{{secret:A%X}}", i, i)
	}
	r := &Request{Method: "POST", URL: "http://h/", Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte(body.String())}
	began := time.Now()
	access, err := r.Access()
	if err != nil || len(access.Secrets) != many || access.Secrets[many-1].Name != fmt.Sprintf("A%X", many-1) {
		t.Errorf("%d placeholders, %v", len(access.Secrets), err)
	}
	if took := time.Since(began); took > time.Minute { // of a second or two
		t.Errorf("they took %v", took)
	}
}

// A decision about method, path and host holds only if the server knows no second way to
// say them.
func TestNoSecondWayToSayMethodPathOrHost(t *testing.T) {
	client := New(Config{Authorize: granting{value: "hunter2hunter2"}, Resolve: resolveTo("127.0.0.1")})
	try := func(r *Request) error {
		var dialled recorder
		it := *client
		it.dial = dialled.dial
		_, err := it.Do(context.Background(), r, "")
		if sent := len(dialled.dialled) > 0; sent != (statusOf(t, err) == abi.StatusNetwork) {
			t.Errorf("%v and %d connections", err, len(dialled.dialled))
		}
		return err
	}
	for _, name := range []string{
		"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Method", "Http-Method-Override", "X_http_method_override",
		"X-Original-Url", "X-Original-Uri", "X-Original-Path", "X-Rewrite-Url", "X-Middleware-Rewrite", "X-Forwarded-Path", "X-Forwarded-Uri", "X-Forwarded-Prefix", "X-Envoy-Original-Path", "X-Script-Name", "Script-Name", "Path-Info", "X-Url", "X-Request-Uri",
		"X-Forwarded-Host", "X-Forwarded-Server", "X-Original-Host", "X-Host", "X-Real-Host", "X-Http-Host-Override", "X_forwarded_host", "Forwarded",
		"X-Tunneled-Method", "X-Ms-Method", "Destination", "X-Accel-Redirect",
	} {
		wantFailure(t, try(&Request{Method: "GET", URL: "http://h/", Header: http.Header{name: {"DELETE"}}}), abi.StatusDenied, "header "+name+" can ask")
	}
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Api-Key", "X-Payment-Method", "X-Callback-Url", "X-Goog-Upload-Url", "Referer", "Origin", "X-Request-Id"} {
		wantFailure(t, try(&Request{Method: "GET", URL: "http://h/", Header: http.Header{name: {"x"}}}), abi.StatusNetwork, "")
	}
	const form, multipart = "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"
	for _, c := range []struct {
		method, query, kind, body string
		denied                    bool
	}{
		{"POST", "?a=1&_method=DELETE", "", "", true},
		{"POST", "?a=1;%5Fmethod=DELETE", "", "", true},
		{"POST", "", form, "a=1&_METHOD=put", true},
		{"POST", "", form, ".method=DELETE", true},
		{"POST", "", "application/json", `{"\u005fmethod":"DELETE"}`, true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name=_method\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", form, "+_method=DELETE", true},
		{"POST", "", form, "x=1;_method=DELETE", true},
		{"POST", "", "", "_method=DELETE", true},
		{"POST", "?X-HTTP-Method-Override=DELETE", "", "", true},
		{"POST", "?_HttpMethod=DELETE", "", "", true},
		{"POST", "?a%5B_method%5D=DELETE", "", "", true},
		{"POST", "", "application/json", `{"X-Http-Method-Override":"DELETE"}`, true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name*=utf-8''_method\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name=\"_met\\hod\"\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name*0=\"_met\";name*1=\"hod\"\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data;\r\n name(a)=_method\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name=_met\\hod\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name=\"_met\"hod\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name=\"\" \"_method\"\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name=\"a\"; filename=\"my name (1); name.txt\"\r\n\r\nPUT\r\n--B--", false},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name='_method'\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name=\"=?utf-8?q?=5Fmethod?=\"\r\n\r\nPUT\r\n--B--", true},
		{"POST", "", multipart, "--B\r\nContent-Disposition: form-data; name=\"payment_method\"; filename*=utf-8''my%20name\r\n\r\n; name = x\r\n--B--", false},
		{"POST", "", form, "a[0][method]=x&http_method=GET", false},
		{"POST", "?payment_method=card", form, "pay_method=_method&method=x", false},
		{"POST", "", "application/json", `{"a":{"_method":"DELETE"}}`, false},
		{"PUT", "?_method=DELETE", "", "", false},
	} {
		err := try(&Request{Method: c.method, URL: "http://h/" + c.query, Header: http.Header{"Content-Type": {c.kind}}, Body: []byte(c.body)})
		if denied := statusOf(t, err) == abi.StatusDenied; denied != c.denied {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
