package starling

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/starling-host/starling/guest-sdk/go/internal/hostcall"
)

func TestStatusesOfALaterHostAreOfTheNetwork(t *testing.T) {
	if got := reason(-77); got != ErrNetwork {
		t.Error(got)
	}
}

func TestMalformedResponsesAreRefused(t *testing.T) {
	for name, message := range map[string]string{
		"nothing":                      "",
		"no end of the header":         "HTTP/1.1 200 OK\r\n",
		"bare line feeds":              "HTTP/1.1 200 OK\n\nhi",
		"no status":                    "HTTP/1.1\r\n\r\n",
		"a status of two digits":       "HTTP/1.1 20 OK\r\n\r\n",
		"a status below 100":           "HTTP/1.1 099 OK\r\n\r\n",
		"a signed status":              "HTTP/1.1 +20 OK\r\n\r\n",
		"a line feed in the status":    "HTTP/1.1 200 OK\n\r\n\r\n",
		"another protocol":             "ICY 200 OK\r\n\r\n",
		"a header line without colon":  "HTTP/1.1 200 OK\r\nabc\r\n\r\n",
		"space before the colon":       "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
		"a folded header line":         "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
		"a control character":          "HTTP/1.1 200 OK\r\nA: b\x00\r\n\r\n",
		"a chunked body":               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a body that is cut short":     "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
		"a body that is too long":      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nhi",
		"a length that is negative":    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"two lengths":                  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
		"no content with some content": "HTTP/1.1 204 No Content\r\n\r\nhi",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := parseResponse([]byte(message), false); err == nil {
				t.Errorf("accepted as %+v", got)
			}
		})
	}
}

// FuzzParseResponse compares with net/http: it accepts every response that we
// accept, and reads it in the same way.
func FuzzParseResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"), false)
	f.Add([]byte("HTTP/1.1 404 Not Found\r\nA:b\r\nA: \tc \r\n\r\n"), false)
	f.Add([]byte("HTTP/1.0 200\r\n\r\nbody"), false)
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"), true)
	f.Fuzz(func(t *testing.T, message []byte, headOnly bool) {
		got, err := parseResponse(message, headOnly)
		if err != nil || !bytes.HasPrefix(message, []byte("HTTP/1.")) {
			return
		}
		request := &http.Request{Method: "GET"}
		if headOnly {
			request.Method = "HEAD"
		}
		want, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(message)), request)
		if err != nil {
			t.Skip("net/http knows fewer versions, keys and lengths")
		}
		body, err := io.ReadAll(want.Body)
		if err != nil || want.StatusCode != got.Status || !bytes.Equal(body, got.Body) && want.StatusCode >= 200 {
			t.Fatalf("%q\nours   %d %q\ntheirs %d %q %v", message, got.Status, got.Body, want.StatusCode, body, err)
		}
		for _, field := range got.Header {
			if values := want.Header.Values(field[0]); len(values) == 0 && !strings.EqualFold(field[0], "Trailer") && !strings.EqualFold(field[0], "Connection") {
				t.Fatalf("%q: net/http does not see the field %q", message, field[0])
			}
		}
	})
}

// FuzzMessage checks that no field of a request reaches into another: net/http
// reads back exactly the fields.
func FuzzMessage(f *testing.F) {
	f.Add("GET", "https://api.example.com/customers/42?x=%20", "Accept", "application/json", []byte(nil), "customer/42")
	f.Add("POST", "http://h:1", "A", "b\tc", []byte("body\r\n\r\n"), "")
	f.Fuzz(func(t *testing.T, method, url, name, value string, body []byte, effect string) {
		r := Request{Method: method, URL: url, Header: Header{{name, value}}, Body: body}
		message, err := r.message()
		if err != nil {
			return
		}
		if validEffect(effect) {
			effectName = effect
			message = nameEffect(message)
			effectName = ""
		} else {
			effect = ""
		}
		rest := bufio.NewReader(bytes.NewReader(message))
		got, err := http.ReadRequest(rest)
		if err != nil {
			t.Skip("net/http knows fewer URLs")
		}
		gotBody, err := io.ReadAll(got.Body)
		if err != nil || !bytes.Equal(gotBody, body) || rest.Buffered() > 0 {
			t.Fatalf("%q\nbody %q, %v, want %q", message, gotBody, err, body)
		}
		if method != "" && got.Method != method {
			t.Fatalf("method %q became %q", method, got.Method)
		}
		named := strings.EqualFold(name, hostcall.EffectHeader)
		if !named && got.Header.Get(hostcall.EffectHeader) != effect {
			t.Fatalf("effect %q became %q", effect, got.Header.Get(hostcall.EffectHeader))
		}
		if fields := len(got.Header); fields > 3 {
			t.Fatalf("%q has %d fields", message, fields)
		}
	})
}
