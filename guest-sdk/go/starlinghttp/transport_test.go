package starlinghttp_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/starlinghttp"
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

func inCall(t *testing.T, handler http.HandlerFunc, fn func()) []starlingtest.Exchange {
	t.Helper()
	during = fn
	got := starlingtest.Host{HTTP: handler}.Call(t, "during", "{}")
	if got.Failure != nil {
		t.Fatal(got.Failure)
	}
	return got.Exchanges
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := starlinghttp.Client().Get(url)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}

func TestRedirectsAreFollowedByTheClient(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/old", http.RedirectHandler("/new?x=1", http.StatusFound))
	mux.HandleFunc("/new", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "moved "+r.URL.RawQuery) })
	exchanges := inCall(t, mux.ServeHTTP, func() {
		if got := get(t, "https://example.com/old"); got != "moved x=1" {
			t.Errorf("got %q", got)
		}
	})
	want := []starlingtest.Exchange{
		{Effect: "GET https://example.com/old", Method: "GET", URL: "https://example.com/old"},
		{Effect: "GET https://example.com/new?x=1", Method: "GET", URL: "https://example.com/new?x=1"},
	}
	if !slices.Equal(exchanges, want) {
		t.Errorf("got %v, want %v", exchanges, want)
	}
}

func TestRequestBodies(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Expect") != "" || len(r.TransferEncoding) > 0 {
			t.Errorf("the host saw %v %v, %v", r.Header, r.TransferEncoding, err)
		}
		w.Header().Set("X-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write(body)
	}
	for name, body := range map[string]io.Reader{
		"of known length":   strings.NewReader(large),
		"of unknown length": io.MultiReader(strings.NewReader(large)),
	} {
		t.Run(name, func(t *testing.T) {
			inCall(t, handler, func() {
				req, err := http.NewRequest("POST", "http://example.com:8080/", body)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "text/plain")
				req.Header.Set("Expect", "100-continue")
				req.Close = true
				resp, err := starlinghttp.Client().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				if string(got) != large || err != nil || resp.Header.Get("X-Type") != "text/plain" {
					t.Errorf("%d bytes came back, %v", len(got), err)
				}
			})
		})
	}
}

func TestFailuresAreTyped(t *testing.T) {
	for _, want := range []error{starling.ErrDenied, starling.ErrTimeout} {
		handler := func(w http.ResponseWriter, _ *http.Request) { starlingtest.Fail(w, want, "because") }
		inCall(t, handler, func() {
			_, err := starlinghttp.Client().Get("http://example.com/")
			var netErr net.Error
			if !errors.Is(err, want) || !errors.As(err, &netErr) || netErr.Timeout() != (want == starling.ErrTimeout) {
				t.Errorf("%v: got %v", want, err)
			}
		})
	}
}

func TestSideEffectNamesTheExchange(t *testing.T) {
	exchanges := inCall(t, func(http.ResponseWriter, *http.Request) {}, func() {
		_, _ = starling.SideEffect("customer/42", func() (string, error) { return get(t, "http://example.com/"), nil })
	})
	if len(exchanges) != 1 || exchanges[0].Effect != "customer/42" {
		t.Errorf("got %v", exchanges)
	}
}

// deadline is a context whose timer has not fired yet.
type deadline struct {
	context.Context
	at *time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return *d.at, true }

func TestContextsEndRequests(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	later := time.Now().Add(time.Hour)
	for _, c := range []struct {
		name string
		ctx  context.Context
		sent int
		want error
	}{
		{"cancelled before", cancelled, 0, context.Canceled},
		{"over before", deadline{context.Background(), &time.Time{}}, 0, context.DeadlineExceeded},
		{"over meanwhile", deadline{context.Background(), &later}, 1, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			exchanges := inCall(t, func(http.ResponseWriter, *http.Request) { later = time.Time{} }, func() {
				req, err := http.NewRequestWithContext(c.ctx, "GET", "http://example.com/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = starlinghttp.Transport{}.RoundTrip(req)
				if !errors.Is(err, c.want) {
					t.Errorf("got %v", err)
				}
			})
			if len(exchanges) != c.sent {
				t.Errorf("%d requests were sent", len(exchanges))
			}
		})
	}
}

// closer is a body that records that it was closed.
type closer struct {
	io.Reader
	closed *bool
}

func (c closer) Close() error {
	*c.closed = true
	return nil
}

func TestRequestsThatAreNotSent(t *testing.T) {
	broken := errors.New("broken")
	body := func(r io.Reader) func(*http.Request) {
		return func(req *http.Request) { req.Body = io.NopCloser(r) }
	}
	for name, change := range map[string]func(*http.Request){
		"another Host":                  func(r *http.Request) { r.Host = "evil.example" },
		"no URL":                        func(r *http.Request) { r.URL = nil },
		"a header with a line break":    func(r *http.Request) { r.Header["X"] = []string{"a\r\nb"} },
		"a body shorter than announced": func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(nil)), 5 },
		"a body that cannot be read":    body(io.MultiReader(strings.NewReader("a"), failingReader{broken})),
	} {
		t.Run(name, func(t *testing.T) {
			exchanges := inCall(t, func(http.ResponseWriter, *http.Request) {}, func() {
				req, err := http.NewRequest("POST", "http://example.com/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				change(req)
				closed := req.Body == nil
				if req.Body != nil {
					req.Body = closer{req.Body, &closed}
				}
				if _, err := (starlinghttp.Transport{}).RoundTrip(req); err == nil || !closed {
					t.Errorf("got %v, body closed: %v", err, closed)
				}
			})
			if len(exchanges) > 0 {
				t.Errorf("the host saw %v", exchanges)
			}
		})
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// pack compresses a text with one of Go's writers.
func pack(t *testing.T, text string, open func(io.Writer) io.WriteCloser) string {
	t.Helper()
	var packed strings.Builder
	w := open(&packed)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.String()
}

// A server that compresses whatever it is asked is read as http.Transport reads one, and
// refused by starling.Do, which then costs no decoder.
func TestCompressedResponses(t *testing.T) {
	zipped := func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
	page := pack(t, "the page", zipped)
	zlibbed := pack(t, "the page", func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	deflated := pack(t, "the page", func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 9); return z })
	bomb := pack(t, strings.Repeat("\x00", 32<<20+1), zipped)
	damaged := []byte(page)
	damaged[len(damaged)-8]++
	const corrupt = "http: network: the compressed response is corrupt or cut short"
	for _, c := range []struct{ method, coding, accepts, body, want, failure string }{
		{"GET", "gzip", "", page, "the page", ""},
		{"GET", "X-GZIP", "", page, "the page", ""},
		{"GET", "gzip", "", page + pack(t, " twice", zipped), "the page twice", ""},
		{"GET", "deflate", "", zlibbed, "the page", ""},
		{"GET", "deflate", "", deflated, "the page", ""},
		{"GET", "gzip", "gzip", page, page, ""},
		{"GET", "br", "br", "other", "other", ""},
		{"GET", "gzip", "", "not packed", "", corrupt},
		{"GET", "gzip", "", page[:len(page)/2], "", corrupt},
		{"GET", "gzip", "", string(damaged), "", corrupt},
		{"GET", "gzip", "", page + "more", "", corrupt},
		{"GET", "deflate", "", "\xff", "", corrupt},
		{"GET", "gzip", "", bomb, "", "http: too large: decompressed, the response is larger than 32 MiB"},
		{"GET", "br", "", "other", "", `http: network: the response is compressed with "br"`},
		{"GET", "gzip, br", "", "other", "", `http: network: the response is compressed with "gzip, br"`},
		{"HEAD", "br", "", "", "", ""},
		{"GET", "identity", "", "plain", "plain", ""},
	} {
		inCall(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", c.coding)
			_, _ = io.WriteString(w, c.body)
		}, func() {
			req, err := http.NewRequest(c.method, "http://example.com/", nil)
			if err != nil {
				t.Error(err)
				return
			}
			header := starling.Header{}
			if c.accepts != "" {
				req.Header.Set("Accept-Encoding", c.accepts)
				header = starling.Header{{"accept-encoding", c.accepts}}
			}
			resp, err := starlinghttp.Client().Do(req)
			if err == nil {
				got, err := io.ReadAll(resp.Body)
				kept := resp.Header.Get("Content-Encoding") != ""
				if err != nil || c.failure != "" || string(got) != c.want || resp.Uncompressed == kept {
					t.Errorf("%+v: %q, %v", c, got, err)
				}
			} else if c.failure == "" || !strings.Contains(err.Error(), c.failure) {
				t.Errorf("%+v: %v", c, err)
			}
			refused := c.accepts == "" && c.coding != "identity" && c.body != ""
			plain, err := starling.Do(starling.Request{Method: c.method, URL: "http://example.com/", Header: header})
			if err == nil {
				if refused || string(plain.Body) != c.want || plain.Header.Get("Content-Encoding") != c.coding {
					t.Errorf("Do %+v: %q %v", c, plain.Body, plain.Header)
				}
			} else if !refused || !strings.Contains(err.Error(), "http: network: the response is compressed with "+strconv.Quote(c.coding)) {
				t.Errorf("Do %+v: %v", c, err)
			}
		})
	}
}

func TestLettersInAQueryAreEscaped(t *testing.T) {
	got := inCall(t, func(http.ResponseWriter, *http.Request) {}, func() { get(t, "http://bücher.example/ä?q=Zürich 中%20+&r=1") })
	if want := "http://xn--bcher-kva.example/%C3%A4?q=Z%C3%BCrich%20%E4%B8%AD%20+&r=1"; len(got) != 1 || got[0].URL != want {
		t.Errorf("%+v, want %s", got, want)
	}
}

// The host ends an exchange when the tool does not wait any longer.
func TestADeadlineGoesWithTheRequest(t *testing.T) {
	var message []byte
	inCall(t, func(http.ResponseWriter, *http.Request) {}, func() {
		client := starlinghttp.Client()
		client.Timeout = 2 * time.Second
		req, _ := http.NewRequest("GET", "http://example.com/", nil)
		client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			message = starlinghttp.Message(r)
			return starlinghttp.Transport{}.RoundTrip(r)
		})
		if _, err := client.Do(req); err != nil {
			t.Error(err)
		}
	})
	if !regexp.MustCompile("\r\nStarling-Timeout: (1[0-9]{3}|2000)\r\n").Match(message) {
		t.Errorf("%q", message)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
