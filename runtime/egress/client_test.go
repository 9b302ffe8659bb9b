package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
)

func TestResponsesAreRendered(t *testing.T) {
	for _, c := range []struct{ name, method, received, want string }{
		{
			"headers sorted, one line per value, reason replaced",
			"GET", "HTTP/1.1 200 Fine by me\r\nX-B: 2\r\nset-cookie: a=1\r\nSet-Cookie: b=2\r\nX-A:1\r\nContent-Length: 5\r\n\r\nhello",
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-A: 1\r\nX-B: 2\r\n\r\nhello",
		},
		{
			"a chunked body gets its length",
			"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nX-T: 1\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		},
		{
			"a body that ends with the connection gets its length",
			"GET", "HTTP/1.0 200 OK\r\n\r\nhello",
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		},
		{
			"headers of the connection are removed, and what Connection names",
			"GET", "HTTP/1.1 200 OK\r\nConnection: keep-alive, x-private\r\nX-Private: 1\r\nX-Public: 2\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nTE: x\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Public: 2\r\n\r\n",
		},
		{
			"what follows the body is ignored",
			"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, HTTP/1.1 200 OK\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		},
		{
			"HEAD keeps the length that GET would have",
			"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n",
		},
		{
			"304 keeps the length too",
			"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 12345\r\nETag: \"x\"\r\n\r\n",
			"HTTP/1.1 304 Not Modified\r\nContent-Length: 12345\r\nEtag: \"x\"\r\n\r\n",
		},
		{
			"204 has neither body nor length",
			"DELETE", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
			"HTTP/1.1 204 No Content\r\n\r\n",
		},
		{
			"interim responses are passed over",
			"GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		},
		{
			"a redirect is handed back",
			"GET", "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data/\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://169.254.169.254/latest/meta-data/\r\n\r\n",
		},
		{
			"a code that nobody registered",
			"GET", "HTTP/1.1 799 Moon\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 799 \r\nContent-Length: 0\r\n\r\n",
		},
		{
			"a compressed body stays compressed",
			"GET", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00\xff",
			"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00\xff",
		},
		{
			"a folded header is one line",
			"GET", "HTTP/1.1 200 OK\r\nX-A: a\r\n  b\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: a b\r\n\r\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			host := answer(t, c.received)
			r := &Request{Method: c.method, URL: "http://" + host + "/"}
			got, err := loopback(t, host).Do(context.Background(), r, "")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, string(got)); d != "" {
				t.Error(d)
			}
			parseResponse(t, c.method, got)
		})
	}
}

// capture is a server that keeps the bytes of one request.
func capture(t *testing.T) (host string, received func() string) {
	t.Helper()
	bytesOf := make(chan string, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var b bytes.Buffer
		for part := make([]byte, 4096); !strings.HasSuffix(b.String(), "\r\n\r\n") && !strings.HasSuffix(strings.TrimRight(b.String(), `"}-`), "END"); {
			n, err := conn.Read(part)
			if err != nil {
				break
			}
			b.Write(part[:n])
		}
		bytesOf <- b.String()
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}()
	return listener.Addr().String(), func() string { return <-bytesOf }
}

func TestRequestsOnTheWire(t *testing.T) {
	for _, c := range []struct{ name, raw, key, want string }{
		{
			"the host fills in what is missing",
			"GET http://HOST/customers/42?x=%2f HTTP/1.1\r\n\r\n", "",
			"GET /customers/42?x=%2f HTTP/1.1\r\nConnection: close\r\nHost: HOST\r\nUser-Agent: starling-host\r\n\r\n",
		},
		{
			"what the guest sets stays, in canonical order",
			"GET http://HOST HTTP/1.1\r\nx-b: 1\r\nUser-Agent: mine\r\nAccept-Encoding: gzip\r\nX-A: 2\r\nx-a: 3\r\nStarling-Effect: secret name\r\nConnection: keep-alive\r\n\r\n", "",
			"GET / HTTP/1.1\r\nAccept-Encoding: gzip\r\nConnection: close\r\nHost: HOST\r\nUser-Agent: mine\r\nX-A: 2\r\nX-A: 3\r\nX-B: 1\r\n\r\n",
		},
		{
			"a chunked body is sent with its length",
			"POST http://HOST/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nEND\r\n0\r\n\r\n", "",
			"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 3\r\nHost: HOST\r\nUser-Agent: starling-host\r\n\r\nEND",
		},
		{
			"a key is added",
			"POST http://HOST/ HTTP/1.1\r\n\r\n", "k-1",
			"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\nHost: HOST\r\nIdempotency-Key: k-1\r\nUser-Agent: starling-host\r\n\r\n",
		},
		{
			"the guest's own key wins",
			"POST http://HOST/ HTTP/1.1\r\nidempotency-key: mine\r\n\r\n", "k-1",
			"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\nHost: HOST\r\nIdempotency-Key: mine\r\nUser-Agent: starling-host\r\n\r\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			host, received := capture(t)
			r, err := ParseRequest([]byte(strings.ReplaceAll(c.raw, "HOST", host)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := loopback(t, host).Do(context.Background(), r, c.key); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.ReplaceAll(c.want, "HOST", host), received()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestARequestFilledInByHandIsChecked(t *testing.T) {
	c := loopback(t, "h")
	for name, r := range map[string]*Request{
		"nothing":                  {},
		"a method with a line end": {Method: "GET / HTTP/1.1\r\nX: y", URL: "http://h/"},
		"a URL with a line end":    {Method: "GET", URL: "http://h/\r\nX: y"},
		"a name in lower case":     {Method: "GET", URL: "http://h/", Header: http.Header{"x-a": {"b"}}},
		"a name with a line end":   {Method: "GET", URL: "http://h/", Header: http.Header{"X\r\nY": {"b"}}},
		"a value with a line end":  {Method: "GET", URL: "http://h/", Header: http.Header{"X": {"b\r\nY: c"}}},
		"a Host":                   {Method: "GET", URL: "http://h/", Header: http.Header{"Host": {"x"}}},
		"a length":                 {Method: "GET", URL: "http://h/", Header: http.Header{"Content-Length": {"1"}}},
		"a coding":                 {Method: "GET", URL: "http://h/", Header: http.Header{"Transfer-Encoding": {"chunked"}}},
		"an effect":                {Method: "GET", URL: "http://h/", Header: http.Header{abi.EffectHeader: {"x"}}},
	} {
		if _, err := c.Do(context.Background(), r, ""); statusOf(t, err) != abi.StatusMalformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := c.Do(context.Background(), &Request{Method: "POST", URL: "http://h/"}, "a\r\nb")
	wantFailure(t, err, abi.StatusMalformed, "idempotency key")
}

func TestLimits(t *testing.T) {
	host := answer(t, "HTTP/1.1 200 OK\r\nX-A: "+strings.Repeat("a", 200)+"\r\n\r\n"+strings.Repeat("b", 100))
	for _, c := range []struct {
		name   string
		config Config
		body   int
		want   string // of the failure; "" for success
	}{
		{"everything fits exactly", Config{MaxResponseBytes: 100, MaxHeaderBytes: 226, MaxRequestBytes: 50}, 50, ""},
		{"the head is one byte too long", Config{MaxHeaderBytes: 225}, 0, "the head of the response has more than 225 bytes"},
		{"the body is one byte too long", Config{MaxResponseBytes: 99}, 0, "the response's body has more than 99 bytes"},
		{"the request's body is one byte too long", Config{MaxRequestBytes: 49}, 50, "the request's body has more than 49 bytes"},
		{"the request's head is too long", Config{MaxHeaderBytes: 60}, 0, "request line and headers take more than 60 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Authorize = Rules{rules(t, host), true}
			r := &Request{Method: "PUT", URL: "http://" + host + "/", Body: make([]byte, c.body)}
			got, err := New(c.config).Do(context.Background(), r, "")
			if c.want != "" {
				wantFailure(t, err, abi.StatusTooLarge, c.want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, body := parseResponse(t, "PUT", got); len(body) != 100 {
				t.Errorf("body of %d bytes", len(body))
			}
		})
	}
}

func TestWhoseTimeRanOut(t *testing.T) {
	silent := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	config := Config{Authorize: Rules{rules(t, silent), true}}

	t.Run("the client's", func(t *testing.T) {
		config.Timeout = 50 * time.Millisecond
		_, err := New(config).Do(context.Background(), get("http://"+silent), "")
		wantFailure(t, err, abi.StatusTimeout, "no complete response within 50ms")
	})
	t.Run("the caller's deadline", func(t *testing.T) {
		config.Timeout = time.Minute
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := New(config).Do(ctx, get("http://"+silent), ""); err != context.DeadlineExceeded {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the caller went away", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		asked := serve(t, func(c net.Conn) { cancel(); io.Copy(io.Discard, c) })
		config.Authorize = Rules{rules(t, asked), true}
		if _, err := New(config).Do(ctx, get("http://"+asked), ""); err != context.Canceled {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the caller had gone before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := New(config).Do(ctx, get("http://"+silent), ""); err != context.Canceled {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the resolver is slow", func(t *testing.T) {
		config.Timeout = 50 * time.Millisecond
		config.Authorize = Rules{rules(t, "slow.example"), true}
		config.Resolve = func(ctx context.Context, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		_, err := New(config).Do(context.Background(), get("http://slow.example"), "")
		wantFailure(t, err, abi.StatusTimeout, "50ms")
	})
}

func TestSafe(t *testing.T) {
	for method, want := range map[string]bool{"GET": true, "HEAD": true, "OPTIONS": true, "POST": false, "PUT": false, "DELETE": false, "PATCH": false, "get": false, "": false} {
		if got := (&Request{Method: method}).Safe(); got != want {
			t.Errorf("%q safe: %v", method, got)
		}
	}
}

func TestAServerThatAnswersEarlyIsHeard(t *testing.T) {
	host := serve(t, func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
		io.Copy(io.Discard, c)
	})
	r := &Request{Method: "POST", URL: "http://" + host, Body: make([]byte, 1<<20)}
	got, err := loopback(t, host).Do(context.Background(), r, "")
	if err != nil {
		t.Fatal(err)
	}
	if res, _ := parseResponse(t, "POST", got); res.StatusCode != 413 {
		t.Errorf("status %d", res.StatusCode)
	}
}

func TestErrorsAreTheirOwnType(t *testing.T) {
	_, err := New(Config{}).Do(context.Background(), get("http://example.com"), "")
	var failure *Error
	if !errors.As(err, &failure) || failure.Error() != "egress: denied: http://example.com is not an allowed destination" {
		t.Errorf("%v", err)
	}
}

// limiting allows everything within limits.
type limiting Limits

func (l limiting) Authorize(context.Context, Access) (Grant, error) {
	return Grant{Private: true, Limits: Limits(l)}, nil
}

func TestLimitsOfAGrant(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write(make([]byte, 9<<20))
	}))
	defer server.Close()
	large := server.Listener.Addr().String()
	ask := func(c Config, l Limits, body int) error {
		c.Authorize = limiting(l)
		_, err := New(c).Do(t.Context(), &Request{Method: "POST", URL: "http://" + large, Body: make([]byte, body)}, "")
		return err
	}
	wantFailure(t, ask(Config{}, Limits{}, 0), abi.StatusTooLarge, "more than 8388608 bytes")
	if err := ask(Config{}, Limits{Request: 2 << 20, Response: 10 << 20}, 2<<20); err != nil {
		t.Error(err)
	}
	wantFailure(t, ask(Config{}, Limits{Response: 10 << 20}, 2<<20), abi.StatusTooLarge, "request's body has more than 1048576 bytes")
	wantFailure(t, ask(Config{}, Limits{Response: 1000}, 0), abi.StatusTooLarge, "more than 1000 bytes")
	wantFailure(t, ask(Config{MaxResponseBytes: 1 << 20}, Limits{Response: 10 << 20}, 0), abi.StatusTooLarge, "more than 1048576 bytes")

	silent := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	_, err := New(Config{Authorize: limiting{Timeout: 20 * time.Millisecond}}).Do(t.Context(), get("http://"+silent), "")
	wantFailure(t, err, abi.StatusTimeout, "within 20ms")
}

// A tool that waits less long than the host gets a timeout, and the server does not see it.
func TestTheTimeoutOfATool(t *testing.T) {
	host, received := capture(t)
	parse := func(host, value string) (*Request, error) {
		return ParseRequest([]byte("GET http://" + host + "/ HTTP/1.1\r\nStarling-Timeout: " + value + "\r\n\r\n"))
	}
	r, err := parse(host, "60000")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loopback(t, host).Do(t.Context(), r, ""); err != nil || strings.Contains(received(), "Starling") {
		t.Errorf("it was sent, or %v", err)
	}
	silent := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	if r, err = parse(silent, "30"); err != nil {
		t.Fatal(err)
	}
	_, err = loopback(t, silent).Do(t.Context(), r, "")
	wantFailure(t, err, abi.StatusTimeout, "within 30ms")
	for _, bad := range []string{"", "0", "-1", "1.5", "2s", "007", "+1", "4294967296"} {
		_, err := parse("h", bad)
		wantFailure(t, err, abi.StatusMalformed, "Starling-Timeout is")
	}
}

// Repeating a request that is safe does no harm, so it needs no key.
func TestOnlyUnsafeRequestsHaveAnIdempotencyKey(t *testing.T) {
	for method, want := range map[string]bool{"GET": false, "HEAD": false, "OPTIONS": false, "POST": true, "PUT": true, "PATCH": true, "DELETE": true} {
		host, received := capture(t)
		loopback(t, host).Do(t.Context(), &Request{Method: method, URL: "http://" + host + "/"}, "key")
		if got := received(); strings.Contains(got, "Idempotency-Key: key") != want {
			t.Errorf("%q", got)
		}
	}
}

// TestOutcomesAreCounted makes requests that end in each way.
func TestOutcomesAreCounted(t *testing.T) {
	host := answer(t, "HTTP/1.1 204 No Content\r\n\r\n")
	gone := answer(t, "")
	open := loopback(t, host, gone)
	post := func(body string) *Request {
		return &Request{Method: "POST", URL: "http://" + host, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte(body)}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		want    string
		ctx     context.Context
		client  *Client
		request *Request
	}{
		{"ok", t.Context(), open, get("http://" + host)},
		{"ok", t.Context(), New(Config{Authorize: granting{"hunter2hunter2", false}}), post("{{secret:K}}")},
		{"denied", t.Context(), open, get("http://other.test")},
		{"malformed", t.Context(), open, get("ftp://other.test")},
		{"network", t.Context(), open, get("http://" + gone)},
		{"too_large", t.Context(), open, post(strings.Repeat("a", DefaultMaxRequestBytes+1))},
		{"cancelled", over, open, get("http://" + host)},
		{"secret", t.Context(), open, get("http://other.test/?a={{secret:K}}")},
		{"secret", t.Context(), open, get("http://" + host + "/%7B%7Bsecret:K%7D%7D")},
		{"secret", t.Context(), open, post("{{secret:K}}")},
	} {
		var got []string
		ctx := WithCount(c.ctx, func(outcome string) { got = append(got, outcome) })
		_, err := c.client.Do(ctx, c.request, "")
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s %s: %v, counted %q, want %q", c.request.Method, c.request.URL, err, got, c.want)
		}
	}
}
