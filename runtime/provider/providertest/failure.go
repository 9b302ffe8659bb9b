package providertest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/runtime/provider"
)

// statuses checks that each status has its class, with the body of the vendor and with
// that of a proxy, and that Retry-After is obeyed.
func (s *Suite) statuses(t *testing.T) {
	for _, tc := range []struct {
		status int
		class  error
	}{
		{400, nil}, {404, nil}, {401, provider.ErrAuth}, {403, provider.ErrAuth}, {429, provider.ErrRateLimit},
		{500, provider.ErrServer}, {503, provider.ErrServer},
	} {
		t.Run(fmt.Sprint(tc.status), func(t *testing.T) {
			s.status(t, tc.status, tc.class, s.Failure)
			s.status(t, tc.status, tc.class, Failure{ContentType: "text/html", Body: "<html><body>nginx</body></html>"})
			s.status(t, tc.status, tc.class, Failure{})
			s.status(t, tc.status, tc.class, Failure{ContentType: "text/plain", Body: strings.Repeat("no ", 1<<20)})
		})
	}
}

func (s *Suite) status(t *testing.T, status int, class error, f Failure) {
	t.Helper()
	h := http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}}
	for name, values := range f.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	if f.ContentType != "" {
		h.Set("Content-Type", f.ContentType)
	}
	m := &memory{status: status, header: h, reply: &reply{body: []byte(f.Body)}}
	ctx, after := provider.WithRetryAfter(t.Context())
	chunks, err := Converse(ctx, s.New(t, memoryURL, &http.Client{Transport: m}), question("test-model"))
	if !expectClass(t, err, class) {
		return
	}
	if after.Wait() != 7*time.Second {
		t.Errorf("the server asked for 7s, and %v was heard", after.Wait())
	}
	if !strings.Contains(err.Error(), f.Want) || len(chunks) > 0 {
		t.Errorf("got the error %q after %d chunks, want %q in it", err, len(chunks), f.Want)
	}
	if m.requests.Load() != 1 || m.open.Load() != 0 {
		t.Errorf("got %d requests and %d bodies left open, want 1 and 0", m.requests.Load(), m.open.Load())
	}
}

// redirected makes the server redirect to another one, which must get neither the
// prompt nor the key.
func (s *Suite) redirected(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirection was followed") }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, status))
		_, err := Converse(t.Context(), s.New(t, server.URL, server.Client()), question("test-model"))
		if expectClass(t, err, nil) && !strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("status %d: got %q", status, err)
		}
		server.Close()
	}
}

// broken checks that a malformed body results in an error that describes it.
func (s *Suite) broken(t *testing.T, b Broken) {
	for _, size := range []int{0, 1} {
		p, server := s.inMemory(t, recording{}, &reply{body: []byte(b.Body), size: size})
		chunks, err := Converse(t.Context(), p, question("test-model"))
		if !expectClass(t, err, b.Class) {
			return
		}
		if n := len(chunks); n > 0 && chunks[n-1].Kind == provider.ChunkEnd {
			t.Errorf("the stream ended as if nothing was wrong")
		}
		if !strings.Contains(err.Error(), b.Want) || server.open.Load() != 0 {
			t.Errorf("got the error %q and %d bodies left open, want %q in it", err, server.open.Load(), b.Want)
		}
	}
}

// empty checks that an answer without content is read as one, with its stop reason.
func (s *Suite) empty(t *testing.T) {
	for reason, body := range s.Empty {
		p, _ := s.inMemory(t, recording{}, &reply{body: []byte(body)})
		chunks, err := Converse(t.Context(), p, question("test-model"))
		said := slices.ContainsFunc(chunks, func(c provider.StreamChunk) bool { return c.Kind == provider.ChunkText || c.ToolUse != nil })
		if err != nil || said || chunks[len(chunks)-1].StopReason != reason {
			t.Errorf("%s: got %+v, %v", reason, chunks, err)
		}
	}
}

// spoiled replaces the model's text by another type, and by invalid JSON. The error
// describes the fault, and does not repeat the text.
func (s *Suite) spoiled(t *testing.T, recordings []recording) {
	for _, r := range recordings {
		for _, c := range r.Want {
			quoted := []byte(strconv.Quote(c.Text))
			if len(c.Text) < 4 || !bytes.Contains(r.body, quoted) {
				continue
			}
			for _, with := range []string{"[%s]", `{"a":%s}`, "%s]", "%s%[1]s"} {
				body := bytes.Replace(r.body, quoted, fmt.Appendf(nil, with, quoted), 1)
				p, _ := s.inMemory(t, r, &reply{body: body})
				_, err := Converse(t.Context(), p, question("test-model"))
				if expectClass(t, err, nil) && strings.Contains(err.Error(), c.Text) {
					t.Errorf("the error repeats what the model said: %v", err)
				}
			}
		}
	}
}

// refused connects to a port that no process listens on.
func (s *Suite) refused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	listener.Close()
	_, err = Converse(t.Context(), s.New(t, url, &http.Client{Transport: &http.Transport{}}), question("test-model"))
	expectClass(t, err, provider.ErrNetwork)
}

// reset has the server drop the connection in the middle of the body.
func (s *Suite) reset(t *testing.T, r recording) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(buffered, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n", len(r.body))
		s.headers(r).Write(buffered)
		fmt.Fprintf(buffered, "\r\n%s", r.body[:len(r.body)/2])
		buffered.Flush()
		conn.(*net.TCPConn).SetLinger(0) // so that closing resets
		conn.Close()
	}))
	defer server.Close()
	_, err := Converse(t.Context(), s.New(t, server.URL, server.Client()), r.Request)
	expectClass(t, err, provider.ErrNetwork)
}
