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

// A server that reads what it was sent, and gives it back, gives back something else
// than the secret.
func TestRequestsThatHaveASecretReadAsSomethingElse(t *testing.T) {
	const form, multipart = "application/x-www-form-urlencoded", "multipart/form-data; boundary=B"
	for _, c := range []struct{ name, contentType, body, want string }{
		{"behind %", "", "a=%{{secret:K}}", "could make an escape"},
		{"behind % and a digit", "text/plain", "a=%f{{secret:K}}", "could make an escape"},
		{"behind a % that is encoded", "text/plain", "a=%2525{{secret:K}}", "could make an escape"},
		{"behind an encoded % of a form", form, "a=%25{{secret:K}}", "could make an escape"},
		{"behind %u", "text/plain", "a=%u00{{secret:K}}", "could make an escape"},
		{"behind \\", "application/json", `{"a":"\{{secret:K}}"}`, "could make an escape"},
		{"behind \\u00", "application/json", `{"a":"\u00{{secret:K}}"}`, "could make an escape"},
		{"behind \\u00 in JSON in JSON", "application/json", `{"a":"{\"b\":\"\\u00{{secret:K}}\"}"}`, "could make an escape"},
		{"behind \\x", "", `"\x{{secret:K}}"`, "could make an escape"},
		{"behind &#x", "text/xml", "<a>&#x{{secret:K}};</a>", "could make an escape"},
		{"in another charset", "text/plain; charset=UTF-16LE", "{{secret:K}}", "not in \"UTF-16LE\""},
		{"in a charset in quotes", `text/plain;charset = "ibm037"`, "{{secret:K}}", "not in \"ibm037\""},
		{"in a part in another charset", multipart, "--B\r\nContent-Type: text/plain; charset=utf-7\r\n\r\n{{secret:K}}\r\n--B--", "not in \"utf-7\""},
		{"in XML in another charset", "text/xml", "<?xml version='1.0' encoding='cp500'?><a>{{secret:K}}</a>", "not in \"cp500\""},
		{"in a part that is quoted-printable", multipart, "--B\r\nContent-Transfer-Encoding:\r\n Quoted-Printable\r\n\r\n={{secret:K}}\r\n--B--", "not as \"Quoted-Printable\""},
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

func TestWhatMayStandAroundASecret(t *testing.T) {
	for _, c := range []struct{ contentType, body, want string }{
		{"application/json; charset=UTF-8", `{"a":"line\n{{secret:K}}","b":"\u00e4{{secret:K}}"}`, `{"a":"line\nhunter2hunter2","b":"\u00e4hunter2hunter2"}`},
		{"application/x-www-form-urlencoded; charset=iso-8859-1", "encoding=base64&a=%C3%A4+{{secret:K}}%20", "encoding=base64&a=%C3%A4%20hunter2hunter2%20"},
		{"multipart/form-data; boundary=B", "--B\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n{{secret:K}}", "--B\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\nhunter2hunter2"},
		{"text/plain", "a%20{{secret:K}} &amp;{{secret:K}}", "a%20hunter2hunter2 &amp;hunter2hunter2"},
	} {
		host, received := capture(t)
		r := &Request{Method: "POST", URL: "http://" + host, Header: http.Header{"Content-Type": {c.contentType}}, Body: []byte(c.body + "END")}
		if _, err := New(Config{Authorize: granting{value: "hunter2hunter2"}}).Do(context.Background(), r, ""); err != nil {
			t.Fatal(err)
		}
		if got := received(); !strings.HasSuffix(got, "\r\n\r\n"+c.want+"END") {
			t.Errorf("sent %q, want %q", got, c.want)
		}
	}
}

// Servers do not read the parameters of a content type as strictly as a parser of ours.
func TestAFormWhoseTypeIsUntidyIsAForm(t *testing.T) {
	for _, contentType := range []string{"application/x-www-form-urlencoded; x", "Application/X-WWW-form-urlencoded, text/plain", "application/x-www-form-urlencoded ;;"} {
		host, received := capture(t)
		r := &Request{Method: "POST", URL: "http://" + host, Header: http.Header{"Content-Type": {contentType}}, Body: []byte("a={{secret:K}}&b=END")}
		if _, err := New(Config{Authorize: granting{value: "a+b&c=d%41"}}).Do(context.Background(), r, ""); err != nil {
			t.Fatal(err)
		}
		if got := received(); !strings.HasSuffix(got, "\r\n\r\na=a%2Bb%26c%3Dd%2541&b=END") {
			t.Errorf("%s: sent %q", contentType, got)
		}
	}
}

// Some servers answer in the characters for which the guest asks.
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

// A body has room for a hundred thousand placeholders, none of which is another: with
// each looked for among the others before, a guest had the host compute for minutes.
func TestManyPlaceholders(t *testing.T) {
	const many = 120_000
	var body strings.Builder
	for i := range many {
		fmt.Fprintf(&body, "{{secret:A%X}}{{secret:A%X}}", i, i)
	}
	r := &Request{Method: "POST", URL: "http://h/", Body: []byte(body.String())}
	began := time.Now()
	access, err := r.Access()
	if err != nil || len(access.Secrets) != many || access.Secrets[many-1].Name != fmt.Sprintf("A%X", many-1) {
		t.Errorf("%d placeholders, %v", len(access.Secrets), err)
	}
	if took := time.Since(began); took > time.Minute { // of a second or two
		t.Errorf("they took %v", took)
	}
}
