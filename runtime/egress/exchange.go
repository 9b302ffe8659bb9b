package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/starling-host/starling/abi"
)

// exchange sends a message and reads the response to it. It is done with conn
// when it returns; closing conn is up to the caller. Its errors are of type
// *Error, or ctx's.
//
// The message is written beside the reading, because a server may answer and
// stop listening before it has read everything. Whether writing failed does
// not matter: if it did, there is no response.
func (c *Client) exchange(ctx context.Context, conn net.Conn, method string, message []byte, grant Grant) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { interrupt(conn) })
	defer stop()
	written := make(chan struct{})
	go func() {
		defer close(written)
		conn.Write(message)
	}()
	response, err := c.receive(ctx, conn, method, grant)
	interrupt(conn)
	<-written
	return response, err
}

// interrupt makes reads and writes on conn fail, including those in progress.
func interrupt(conn net.Conn) { conn.SetDeadline(time.Unix(1, 0)) }

func (c *Client) receive(ctx context.Context, conn net.Conn, method string, grant Grant) ([]byte, error) {
	head := &headReader{r: conn, left: c.config.MaxHeaderBytes}
	buffered := bufio.NewReader(head)
	res, err := readHead(buffered, method)
	if head.exhausted {
		return nil, failf(abi.StatusTooLarge, "the head of the response has more than %d bytes", c.config.MaxHeaderBytes)
	}
	if err != nil {
		return nil, responseError(err)
	}
	head.done = true
	if grant.Plain {
		if err := checkPlain(res.Header); err != nil {
			return nil, err
		}
	}
	body, err := c.readBody(res, grant.MaxResponse)
	if err != nil {
		return nil, err
	}
	if res.Header, body, err = scrub(ctx, res.Header, body, grant.Secrets); err != nil {
		return nil, err
	}
	if len(grant.Secrets) > 0 {
		res.Header.Del("Content-Length") // of a body that is not sent, which may have a secret in it
	}
	response := render(method, res, body)
	if grant.MaxResponse > 0 && int64(len(response)) > grant.MaxResponse {
		return nil, grantExceeded(grant.MaxResponse)
	}
	return response, nil
}

func grantExceeded(limit int64) error {
	return failf(abi.StatusTooLarge, "the response has more than the %d bytes that are left to the run", limit)
}

// readHead reads up to the final response. Interim responses (RFC 9110 section
// 15.2) are skipped; the limit on the head makes them end.
func readHead(r *bufio.Reader, method string) (*http.Response, error) {
	for {
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		switch {
		case err != nil:
			return nil, err
		case res.ProtoMajor != 1 || res.StatusCode < 100:
			return nil, errNotHTTP
		case res.StatusCode == http.StatusSwitchingProtocols:
			return nil, failf(abi.StatusNetwork, "the server switched protocols unasked")
		case res.StatusCode < 200:
			continue
		}
		for name, values := range res.Header {
			if !abi.IsToken(name) || slices.ContainsFunc(values, func(v string) bool { return !abi.IsFieldValue(v) }) {
				return nil, errNotHTTP
			}
		}
		return res, nil
	}
}

var errNotHTTP = errors.New("not an HTTP/1.1 response")

// readBody reads the body. A granted limit of zero means no limit.
func (c *Client) readBody(res *http.Response, granted int64) ([]byte, error) {
	limit := c.config.MaxResponseBytes
	if granted > 0 {
		limit = min(limit, granted)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	switch {
	case int64(len(body)) > limit && limit == granted:
		return nil, grantExceeded(limit)
	case int64(len(body)) > limit:
		return nil, failf(abi.StatusTooLarge, "the response's body has more than %d bytes", limit)
	}
	if err != nil {
		return nil, responseError(err)
	}
	return body, nil
}

// responseError distinguishes a broken connection from a broken response.
func responseError(err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	var op *net.OpError
	if errors.As(err, &op) || errors.Is(err, io.ErrUnexpectedEOF) {
		return failf(abi.StatusNetwork, "%s", networkReason(err))
	}
	return failf(abi.StatusNetwork, "the server's response is not HTTP/1.1")
}

// headReader limits the bytes read until the head of a response is complete.
// Bytes buffered beyond the head count too, so the limit is never exceeded
// and always reached.
type headReader struct {
	r         io.Reader
	left      int64
	exhausted bool // more was asked for than the limit
	done      bool // the head is complete: no limit any more
}

func (h *headReader) Read(p []byte) (int, error) {
	if h.done {
		return h.r.Read(p)
	}
	if h.left == 0 {
		h.exhausted = true
		return 0, io.EOF
	}
	n, err := h.r.Read(p[:min(int64(len(p)), h.left)])
	h.left -= int64(n)
	return n, err
}

// Response is a response that [Client.Do] returned, taken apart.
type Response struct {
	Status int // for instance 200
	Header http.Header
	Body   []byte
}

// ParseResponse reads what [Client.Do] returned for a request with that method.
func ParseResponse(method string, raw []byte) (*Response, error) {
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), &http.Request{Method: method})
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	return &Response{Status: res.StatusCode, Header: res.Header, Body: body}, nil
}

// Message returns what [Client.Do] returns when a server answers a request with that method so.
func (r *Response) Message(method string) []byte {
	return render(method, &http.Response{StatusCode: r.Status, Header: r.Header}, r.Body)
}

// Slots bound the connections that are open at once: clients that share them share the
// bound. A nil *Slots bounds nothing. They are safe for concurrent use.
type Slots struct {
	mu      sync.Mutex
	most    int             // negative means any number; guarded by mu, like the fields below
	taken   int             // more than most, if that was lowered meanwhile
	waiting []chan struct{} // in the order of arrival; closed when it has its slot
}

// NewSlots returns slots for most requests at once. A negative number sets no limit.
func NewSlots(most int) *Slots { return &Slots{most: most} }

// Allow sets the number of slots from now on; a negative number means any. Connections
// that are open stay open, also if they are more: the next one opens when there is room.
func (s *Slots) Allow(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = most
	s.admit()
}

// admit gives free slots to the waiting callers. The caller holds mu.
func (s *Slots) admit() {
	for len(s.waiting) > 0 && (s.most < 0 || s.taken < s.most) {
		s.taken++
		close(s.waiting[0])
		s.waiting = slices.Delete(s.waiting, 0, 1)
	}
}

// enter waits for a slot, which leave gives back.
func (s *Slots) enter(ctx context.Context) error {
	if s == nil {
		return nil
	}
	slot := make(chan struct{})
	s.mu.Lock()
	s.waiting = append(s.waiting, slot)
	s.admit()
	s.mu.Unlock()
	select {
	case <-slot:
		return nil
	case <-ctx.Done():
		s.giveUp(slot)
		return ctx.Err()
	}
}

// giveUp ends a wait. Its slot may have come at the same moment, and is for the next one.
func (s *Slots) giveUp(slot chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, slot); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return
	}
	s.taken--
	s.admit()
}

func (s *Slots) leave() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	s.admit()
}

// maxErrorText bounds the text of an [Error], in bytes.
const maxErrorText = 512

// Error is a failure that a guest can handle. It is recorded, so its text is
// stable: the same request to the same world gives the same bytes.
type Error struct {
	// Status is the result of the http import.
	Status abi.Status
	// Text is one line of valid UTF-8 for the author of the guest, at most 512
	// bytes.
	Text string
}

// Error returns "egress: ", the status and the text.
func (e *Error) Error() string {
	return fmt.Sprintf("egress: %v: %s", e.Status, e.Text)
}

// Transient reports whether the same request may succeed when it is made again.
func (e *Error) Transient() bool {
	return e.Status == abi.StatusNetwork || e.Status == abi.StatusTimeout
}

func failf(status abi.Status, format string, args ...any) *Error {
	text := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText-3], "") + "..."
	}
	return &Error{Status: status, Text: text}
}

func malformed(format string, args ...any) *Error {
	return failf(abi.StatusMalformed, format, args...)
}

// quote shows hostile text in an error: escaped, and short enough that the hint
// that follows it is not cut off.
func quote(s string) string {
	const limit = 120
	if len(s) > limit {
		return fmt.Sprintf("%+q...", s[:limit])
	}
	return fmt.Sprintf("%+q", s)
}

// networkReason names the failure on the way to a server. The texts of the
// standard library hold local ports, resolver addresses and the current time,
// so none of them is passed on.
func networkReason(err error) string {
	var (
		dns       *net.DNSError
		name      x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     *net.OpError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.As(err, &dns):
		return "the name could not be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the host"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the server reset the connection"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server closed the connection before the response was complete"
	case errors.As(err, &name):
		return "the certificate is for another host"
	case errors.As(err, &authority):
		return "the certificate is signed by an unknown authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate has expired or is not yet valid"
	case errors.As(err, &verify):
		return "the certificate is not valid"
	case errors.As(err, &record):
		return "the server does not speak TLS"
	case errors.As(err, &alert) && alert.Op == "remote error":
		return "the server refused the TLS handshake"
	}
	return "the connection failed"
}
