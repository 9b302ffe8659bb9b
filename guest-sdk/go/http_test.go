package starling_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/starlingtest"
)

// during is the body of the tool "during". Calls run one after another.
var during func()

func init() {
	starling.Register(starling.Tool{Name: "during", Execute: func(*starling.Call, []byte) ([]byte, error) {
		during()
		return nil, nil
	}})
}

// inCall runs fn inside a tool call and returns the exchanges that it made.
func inCall(t *testing.T, handler http.HandlerFunc, fn func()) []starlingtest.Exchange {
	t.Helper()
	during = fn
	got := starlingtest.Host{HTTP: handler}.Call(t, "during", "{}")
	if got.Failure != nil {
		t.Fatal(got.Failure)
	}
	return got.Exchanges
}

func TestDoExchangesMessages(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.Host+" "+r.URL.String()+" "+r.Header.Get("Accept")+" "+string(body))
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("short and stout"))
	}
	exchanges := inCall(t, handler, func() {
		got, err := starling.Do(starling.Request{
			Method: "POST", URL: "HTTPS://api.example.com:8443?q=1#part",
			Header: starling.Header{{"Accept", "text/plain"}}, Body: []byte("tea"),
		})
		if err != nil {
			t.Error(err)
			return
		}
		if want := "POST api.example.com:8443 https://api.example.com:8443/?q=1 text/plain tea"; got.Header.Get("x-seen") != want {
			t.Errorf("the host saw %q, want %q", got.Header.Get("x-seen"), want)
		}
		if got.Status != 418 || string(got.Body) != "short and stout" {
			t.Errorf("got %d %q", got.Status, got.Body)
		}
	})
	want := []starlingtest.Exchange{{Effect: "POST https://api.example.com:8443/?q=1", Method: "POST", URL: "https://api.example.com:8443/?q=1"}}
	if !slices.Equal(exchanges, want) {
		t.Errorf("got %v, want %v", exchanges, want)
	}
}

func TestBodilessResponses(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		status int
	}{"HEAD": {"HEAD", 200}, "no content": {"DELETE", 204}, "not modified": {"GET", 304}} {
		t.Run(name, func(t *testing.T) {
			handler := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "1000")
				w.WriteHeader(c.status)
			}
			inCall(t, handler, func() {
				got, err := starling.Do(starling.Request{Method: c.method, URL: "http://example.com/"})
				if err != nil || got.Status != c.status || len(got.Body) != 0 {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		})
	}
}

// TestLargeResponsesAreFetchedOnce: an answer beyond the first buffer is held
// by the host and does not cost a second exchange.
func TestLargeResponsesAreFetchedOnce(t *testing.T) {
	for _, size := range []int{0, 1, 32<<10 - 100, 32 << 10, 1 << 20} {
		body := bytes.Repeat([]byte("x"), size)
		exchanges := inCall(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }, func() {
			got, err := starling.Get("http://example.com/")
			if err != nil || !bytes.Equal(got.Body, body) {
				t.Errorf("%d bytes: %v", size, err)
			}
		})
		if len(exchanges) != 1 {
			t.Errorf("%d bytes took %d exchanges", size, len(exchanges))
		}
	}
}

func TestFailedExchanges(t *testing.T) {
	long := strings.Repeat("long ", 10_000)
	for _, c := range []struct {
		want    error
		text    string
		timeout bool
	}{
		{starling.ErrDenied, "no rule allows example.com", false},
		{starling.ErrNetwork, "connection refused", false},
		{starling.ErrTimeout, "30s", true},
		{starling.ErrTooLarge, "", false},
		{starling.ErrMalformed, long, false},
	} {
		t.Run(c.want.Error(), func(t *testing.T) {
			inCall(t, func(w http.ResponseWriter, _ *http.Request) { starlingtest.Fail(w, c.want, c.text) }, func() {
				_, err := starling.Get("http://example.com/")
				var failed *starling.HTTPError
				if !errors.Is(err, c.want) || !errors.As(err, &failed) || failed.Text != c.text {
					t.Errorf("got %v", err)
				}
				var timeout net.Error
				if !errors.As(err, &timeout) || timeout.Timeout() != c.timeout {
					t.Errorf("%v: Timeout() is not %v", err, c.timeout)
				}
			})
		})
	}
}

func TestRequestsThatAreNotSent(t *testing.T) {
	const url = "http://example.com/"
	for name, r := range map[string]starling.Request{
		"no URL":                       {},
		"a relative URL":               {URL: "/customers"},
		"another scheme":               {URL: "file:///etc/passwd"},
		"a scheme that begins alike":   {URL: "httpx://example.com/"},
		"no host":                      {URL: "http:///customers"},
		"a user":                       {URL: "http://user@example.com/"},
		"a space":                      {URL: "http://example.com/a b"},
		"a line break":                 {URL: "http://example.com/\r\nX: y"},
		"a line break in the host":     {URL: "http://example.com\r\nX: y/"},
		"a letter in the host":         {URL: "http://bücher.example/"},
		"a byte that is not UTF-8":     {URL: "http://example.com/\xe9"},
		"a delete character":           {URL: "http://example.com/\x7f"},
		"a backslash":                  {URL: `http://example.com\@evil.example/`},
		"a method with a space":        {URL: url, Method: "GET /x"},
		"a method with a line break":   {URL: url, Method: "GET\r\n"},
		"a header name with a colon":   {URL: url, Header: starling.Header{{"a:b", "c"}}},
		"a header without a name":      {URL: url, Header: starling.Header{{"", "c"}}},
		"a header value with CR":       {URL: url, Header: starling.Header{{"a", "b\rc"}}},
		"a header value with LF":       {URL: url, Header: starling.Header{{"a", "b\nc: d"}}},
		"a header value with NUL":      {URL: url, Header: starling.Header{{"a", "\x00"}}},
		"a header value with a tail":   {URL: url, Header: starling.Header{{"a", "b "}}},
		"a Host header":                {URL: url, Header: starling.Header{{"HOST", "evil.example"}}},
		"a length of its own":          {URL: url, Header: starling.Header{{"Content-Length", "5"}}},
		"a transfer coding of its own": {URL: url, Header: starling.Header{{"Transfer-Encoding", "chunked"}}},
	} {
		t.Run(name, func(t *testing.T) {
			exchanges := inCall(t, func(http.ResponseWriter, *http.Request) {}, func() {
				if _, err := starling.Do(r); !errors.Is(err, starling.ErrMalformed) {
					t.Errorf("got %v", err)
				}
			})
			if len(exchanges) > 0 {
				t.Errorf("the host saw %v", exchanges)
			}
		})
	}
	inCall(t, func(http.ResponseWriter, *http.Request) {}, func() {
		if _, err := starling.HTTP(nil); !errors.Is(err, starling.ErrMalformed) {
			t.Errorf("an empty message: %v", err)
		}
	})
}

func TestLettersInAURLAreEncoded(t *testing.T) {
	got := inCall(t, func(http.ResponseWriter, *http.Request) {}, func() {
		if _, err := starling.Get("http://example.com/ä/%C3%A4?q=Zürich+中%20#ß"); err != nil {
			t.Error(err)
		}
	})
	if want := "http://example.com/%C3%A4/%C3%A4?q=Z%C3%BCrich+%E4%B8%AD%20"; len(got) != 1 || got[0].URL != want {
		t.Errorf("%+v, want %s", got, want)
	}
}

func TestSideEffectNamesExchanges(t *testing.T) {
	get := func(header ...[2]string) func() (int, error) {
		return func() (int, error) {
			r, err := starling.Do(starling.Request{URL: "http://example.com/", Header: header})
			if err != nil {
				return 0, err
			}
			return r.Status, nil
		}
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Starling-Effect") != "" {
			t.Error("the name leaves the host")
		}
	}
	exchanges := inCall(t, handler, func() {
		_, _ = starling.SideEffect("customer/é 42", get())
		_, _ = starling.SideEffect("outer", func() (int, error) {
			_, _ = starling.SideEffect("inner", get())
			_, _ = get([2]string{"starling-effect", "its own"})()
			return get()()
		})
		_, _ = get()()
	})
	var names []string
	for _, e := range exchanges {
		names = append(names, e.Effect)
	}
	want := []string{"customer/é 42", "inner", "its own", "outer", "GET http://example.com/"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func TestSideEffectPassesResultsOn(t *testing.T) {
	wrong := errors.New("wrong")
	got, err := starling.SideEffect("name", func() (string, error) { return "partial", wrong })
	if got != "partial" || !errors.Is(err, wrong) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestSideEffectRefusesNames(t *testing.T) {
	for _, name := range []string{"", " a", "a\t", "a\r\nX-Injected: 1", "a\x00", "\xff", "a\x7f", strings.Repeat("a", 257)} {
		_, err := starling.SideEffect(name, func() (int, error) {
			t.Errorf("fn ran under the name %q", name)
			return 0, nil
		})
		if !errors.Is(err, starling.ErrMalformed) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestPathEscape(t *testing.T) {
	for text, want := range map[string]string{
		"42": "42", "a/b": "a%2Fb", "a b?c#d%": "a%20b%3Fc%23d%25", "é": "%C3%A9", "-._~": "-._~", "\r\n": "%0D%0A", "": "", "../x": "..%2Fx",
	} {
		if got := starling.PathEscape(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
