//go:build !wasip1

package starlingtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/internal/hostcall"
)

// world is the host's side of the three imports during one call.
type world struct {
	now       time.Time
	random    func() uint64
	handler   http.Handler
	held      []byte // an answer that the tool has not fetched yet; nil: none
	exchanges []Exchange
	virtual   bool // package time runs in virtual time
}

func (w *world) Now() int64 {
	now := w.now.UnixNano()
	w.now = w.now.Add(time.Microsecond)
	return now
}

func (w *world) Random() uint64 { return w.random() }

// HTTP follows the contract: an answer that does not fit buf, and the text of
// a failure, are held until they are fetched or the next exchange begins.
func (w *world) HTTP(req, buf []byte) int64 {
	if len(req) == 0 {
		return w.fetch(buf)
	}
	answer, status := w.exchange(req)
	w.held = answer
	if status != 0 {
		return status
	}
	return w.fetch(buf)
}

func (w *world) fetch(buf []byte) int64 {
	if w.held == nil {
		return hostcall.StatusNothingHeld
	}
	n := len(w.held)
	if n <= len(buf) {
		copy(buf, w.held)
		w.held = nil
	}
	return int64(n)
}

func (w *world) exchange(req []byte) (answer []byte, status int64) {
	rest := bufio.NewReader(bytes.NewReader(req))
	r, err := http.ReadRequest(rest)
	if err != nil {
		return []byte(err.Error()), hostcall.StatusMalformed
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || rest.Buffered() > 0 || !r.URL.IsAbs() {
		return fmt.Appendf(nil, "want a request with an absolute URL and its whole body, got %q", req), hostcall.StatusMalformed
	}
	effect := r.Header.Get(hostcall.EffectHeader)
	r.Header.Del(hostcall.EffectHeader)
	r.Header.Del(hostcall.TimeoutHeader)
	if effect == "" {
		effect = r.Method + " " + r.URL.String()
	}
	w.exchanges = append(w.exchanges, Exchange{Effect: effect, Method: r.Method, URL: r.URL.String()})
	if w.handler == nil {
		return []byte("the test has no HTTP handler"), hostcall.StatusDenied
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	response := &response{header: http.Header{}}
	began := time.Now()
	w.handler.ServeHTTP(response, r)
	if w.virtual {
		w.now = w.now.Add(time.Since(began))
	}
	return response.message(r.Method), response.failed
}

// noWorld is the host while a module is described: every host call fails.
type noWorld struct{}

func (noWorld) Now() int64             { panic("starlingtest: no clock while tools are described") }
func (noWorld) Random() uint64         { panic("starlingtest: no randomness while tools are described") }
func (noWorld) HTTP(_, _ []byte) int64 { panic("starlingtest: no HTTP while tools are described") }

// Fail makes the exchange that a handler of [Host] answers fail with a reason, such
// as [starling.ErrTimeout], and a text, as the real host would report it. It drops
// what the handler wrote.
func Fail(w http.ResponseWriter, reason error, text string) {
	status, known := map[error]int64{
		starling.ErrDenied: hostcall.StatusDenied, starling.ErrNetwork: hostcall.StatusNetwork, starling.ErrTimeout: hostcall.StatusTimeout,
		starling.ErrTooLarge: hostcall.StatusTooLarge, starling.ErrMalformed: hostcall.StatusMalformed,
	}[reason]
	if !known {
		panic(fmt.Sprintf("starlingtest: Fail with %v, which is none of the reasons of package starling", reason))
	}
	w.(*response).failed, w.(*response).text = status, text
}

// response is the http.ResponseWriter of a handler.
type response struct {
	header http.Header
	status int // 0: not written yet
	body   bytes.Buffer
	failed int64 // the status of the import; not 0: the exchange failed, for the reason text
	text   string
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *response) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

// message returns the result of the http import: the response in message/http
// form, or the text of the failure.
func (r *response) message(method string) []byte {
	if r.failed != 0 {
		return []byte(r.text)
	}
	r.WriteHeader(http.StatusOK)
	out := bytes.NewBuffer(nil)
	fmt.Fprintf(out, "HTTP/1.1 %03d %s\r\n", r.status, http.StatusText(r.status))
	bodiless := r.status == http.StatusNoContent || r.status == http.StatusNotModified
	if !bodiless && r.header.Get("Content-Length") == "" {
		r.header.Set("Content-Length", fmt.Sprint(r.body.Len()))
	}
	_ = r.header.Write(out) // to memory
	out.WriteString("\r\n")
	if !bodiless && method != http.MethodHead {
		out.Write(r.body.Bytes())
	}
	return out.Bytes()
}
