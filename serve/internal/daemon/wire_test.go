package daemon_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// client is a client that writes to its connection what it likes.
type client struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

// dial connects to the daemon. Whoever waits for a minute waits for nothing.
func (w *world) dial(t *testing.T) *client {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return &client{t, c, bufio.NewReader(c)}
}

// says writes. The daemon may have hung up.
func (c *client) says(text string) { io.WriteString(c, text) }

// hears returns the status of the next answer.
func (c *client) hears() (status int, text string) {
	c.t.Helper()
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body) // of a connection that is cut, as far as it came
	return answer.StatusCode, string(body)
}

// hungUp checks that the daemon has closed the connection, and has answered nothing
// more unless it was with 400.
func (c *client) hungUp() {
	c.t.Helper()
	rest, err := io.ReadAll(c.answers)
	if errors.Is(err, os.ErrDeadlineExceeded) || len(rest) > 0 && !strings.HasPrefix(string(rest), "HTTP/1.1 400 ") {
		c.t.Errorf("the connection goes on: %q, %v", rest, err)
	}
}

// healthy is a whole request.
const healthy = "GET /api/v1/healthz HTTP/1.1\r\nHost: h\r\n\r\n"

// TestSlowClientsAreCutOff has clients that begin and do not go on. Each daemon is
// impatient in one way: on a busy machine clients are slow in the others, too.
func TestSlowClientsAreCutOff(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.HeaderTime = 50 * time.Millisecond })
	for name, begins := range map[string]string{
		"nothing": "", "half a line": "GET /api", "half a header": "GET /api/v1/healthz HTTP/1.1\r\nHost: h\r\nX-", "no end of the headers": strings.TrimSuffix(healthy, "\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			c := w.dial(t)
			c.says(begins)
			c.hungUp()
		})
	}
	t.Run("a header byte by byte", func(t *testing.T) {
		c := w.dial(t)
		c.says("GET /api/v1/healthz HTTP/1.1\r\nHost: h\r\nX: ")
		go func() {
			for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
			}
		}()
		c.hungUp()
	})
	hasty := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		c.HeaderTime, c.Connections.Request = 500*time.Millisecond, 500*time.Millisecond // for the headers, a client on a busy machine needs some of it
	})
	key := "Host: h\r\nAuthorization: Bearer " + hasty.keys["alice"] + "\r\n"
	run := "POST /api/v1/runs HTTP/1.1\r\n" + key + "Content-Type: application/json\r\n"
	module := "POST /api/v1/modules?name=m HTTP/1.1\r\n" + key + "Content-Type: application/wasm\r\n"
	const half = "Content-Length: 100\r\n\r\n{"
	for name, c := range map[string]struct {
		begins string
		want   int
	}{
		"half a body":                       {run + half, http.StatusBadRequest},
		"half a chunk":                      {run + "Transfer-Encoding: chunked\r\n\r\n64\r\n{", http.StatusBadRequest},
		"half a module":                     {module + half, http.StatusBadRequest},
		"a body that nobody reads":          {"GET /api/v1/runs HTTP/1.1\r\n" + key + half, http.StatusOK},
		"a body without a key":              {"POST /api/v1/runs HTTP/1.1\r\nHost: h\r\n" + half, http.StatusUnauthorized},
		"a body of a type that is not read": {"POST /api/v1/runs HTTP/1.1\r\n" + key + "Content-Type: text/plain\r\n" + half, http.StatusUnsupportedMediaType},
		"a body for no route":               {"POST /nowhere HTTP/1.1\r\nHost: h\r\n" + half, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asks := hasty.dial(t)
			began := time.Now()
			asks.says(c.begins)
			if status, text := asks.hears(); status != c.want {
				t.Errorf("%d %s, want %d", status, text, c.want)
			}
			asks.hungUp()
			if took := time.Since(began); took > 20*time.Second { // a minute, if nobody hurries
				t.Errorf("closed after %v", took)
			}
		})
	}
	w = newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.Connections.Idle = 50 * time.Millisecond })
	t.Run("nothing more", func(t *testing.T) {
		c := w.dial(t)
		c.says(healthy)
		if status, text := c.hears(); status != http.StatusOK {
			t.Errorf("%d %s", status, text)
		}
		c.hungUp()
	})
}

// TestAPIClosesConnectionsWithoutAKey: the connection is closed after an answer to a request without a
// key, whatever is asked for. So nobody can send many such requests and read no answer.
func TestAPIClosesConnectionsWithoutAKey(t *testing.T) {
	w := newWorld(t, nil)
	key := "Host: h\r\nAuthorization: Bearer " + w.keys["alice"] + "\r\n\r\n"
	for _, asks := range []string{
		healthy, "GET /api/v1/readyz HTTP/1.1\r\nHost: h\r\n\r\n", "GET /api/v1/openapi.yaml HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n", "GET //api HTTP/1.1\r\nHost: h\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /api/v1/runs HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer sk_1\r\n\r\n",
	} {
		c := w.dial(t)
		c.says("GET /api/v1/runs HTTP/1.1\r\n" + key + strings.Repeat(asks, 50))
		if status, text := c.hears(); status != http.StatusOK {
			t.Errorf("with the key: %d %s", status, text)
		}
		c.hears()
		c.hungUp()
	}
	c := w.dial(t)
	c.says(strings.Repeat("GET /api/v1/runs HTTP/1.1\r\n"+key, 50))
	for range 50 {
		if status, text := c.hears(); status != http.StatusOK {
			t.Errorf("with the key: %d %s", status, text)
		}
	}
}

// TestATenantHasAShareOfTheHost: with half as many requests in progress as the host has
// connections, it is refused further ones, and another tenant is not.
func TestATenantHasAShareOfTheHost(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.Connections.Max, c.HeaderTime = 8, time.Minute })
	for range 4 {
		w.dial(t).says("POST /api/v1/runs HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + w.keys["alice"] + "\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
	}
	ask := func(who string) (int, string) {
		c := w.dial(t)
		defer c.Close()
		c.says("GET /api/v1/runs HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + w.keys[who] + "\r\nConnection: close\r\n\r\n")
		return c.hears()
	}
	status, text := ask("alice")
	for tries := 0; status == http.StatusOK && tries < 10_000; tries++ { // until all four are in progress
		status, text = ask("alice")
	}
	if status != http.StatusTooManyRequests || !strings.Contains(text, "#rate-limited") {
		t.Errorf("a fifth request: %d %s", status, text)
	}
	if status, text := ask("bob"); status != http.StatusOK {
		t.Errorf("another tenant: %d %s", status, text)
	}
}

// TestRequestsThatAreTooMuch are refused, and nothing behind them is a request.
func TestRequestsThatAreTooMuch(t *testing.T) {
	w := newWorld(t, nil)
	key := "Host: h\r\nAuthorization: Bearer " + w.keys["alice"] + "\r\n"
	run := "POST /api/v1/runs HTTP/1.1\r\n" + key + "Content-Type: application/json\r\n"
	for name, c := range map[string]struct {
		request string
		want    int
	}{
		"a long line":                {"GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\n" + key + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"a long header":              {"GET /api/v1/healthz HTTP/1.1\r\n" + key + "X: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"many headers":               {"GET /api/v1/healthz HTTP/1.1\r\n" + key + strings.Repeat("X: y\r\n", 10<<10) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"a long body":                {run + fmt.Sprintf("Content-Length: %d\r\n\r\n", 8<<20), http.StatusRequestEntityTooLarge},
		"a long body in chunks":      {run + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + strings.Repeat(" ", 2<<20) + "\r\n0\r\n\r\n", http.StatusRequestEntityTooLarge},
		"a packed body":              {run + "Content-Encoding: gzip\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", http.StatusUnsupportedMediaType},
		"a packed module":            {"POST /api/v1/modules?name=m HTTP/1.1\r\n" + key + "Content-Type: application/wasm\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", http.StatusUnsupportedMediaType},
		"two lengths":                {run + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", http.StatusBadRequest},
		"a length that is none":      {run + "Content-Length: +2\r\n\r\n{}", http.StatusBadRequest},
		"two hosts":                  {"GET /api/v1/healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", http.StatusBadRequest},
		"no host":                    {"GET /api/v1/healthz HTTP/1.1\r\n\r\n", http.StatusBadRequest},
		"another transfer encoding":  {run + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", http.StatusNotImplemented},
		"two transfer encodings":     {run + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", http.StatusNotImplemented},
		"a space before a colon":     {run + "Content-Length : 2\r\n\r\n{}", http.StatusBadRequest},
		"a header on two lines":      {"GET /api/v1/healthz HTTP/1.1\r\n Host: h\r\n\r\n", http.StatusBadRequest},
		"a chunk that ends in LF":    {run + "Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n", http.StatusBadRequest},
		"a length beside the chunks": {run + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			asks := w.dial(t)
			go asks.says(c.request + healthy)
			if status, text := asks.hears(); status != c.want {
				t.Errorf("%d %s, want %d", status, text, c.want)
			}
			asks.hungUp()
		})
	}
}
