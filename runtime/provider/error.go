package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// The classes of failure. An error wraps at most one of them. An error that
// wraps none, such as a status of 400, is a mistake of the caller and is not
// worth retrying.
var (
	ErrRateLimit = errors.New("provider: rate limit") // 429
	ErrAuth      = errors.New("provider: not authorised")
	ErrServer    = errors.New("provider: server failure") // 5xx
	ErrNetwork   = errors.New("provider: network failure")
)

// Transient reports whether the same request may succeed later.
func Transient(err error) bool {
	return errors.Is(err, ErrRateLimit) || errors.Is(err, ErrServer) || errors.Is(err, ErrNetwork)
}

// WrapHTTPStatus gives err the class of an HTTP status. With status 0, when there
// was no response, it is [ClassifyTransport].
func WrapHTTPStatus(err error, status int) error {
	switch {
	case err == nil || classified(err):
		return err
	case status == 0:
		return ClassifyTransport(err)
	case status == 429:
		return wrap(ErrRateLimit, err)
	case status == 401 || status == 403:
		return wrap(ErrAuth, err)
	case status >= 500 && status <= 599:
		return wrap(ErrServer, err)
	}
	return err
}

// ClassifyTransport gives err the class [ErrNetwork] if it comes from the network.
// The end of a context is not a failure of the network.
func ClassifyTransport(err error) error {
	var network net.Error
	var address *url.Error
	if err == nil || classified(err) || ended(err) || !errors.As(err, &network) && !errors.As(err, &address) && !broken(err) {
		return err
	}
	return wrap(ErrNetwork, err)
}

func wrap(class, err error) error { return fmt.Errorf("%w: %w", class, err) }

func classified(err error) bool { return errors.Is(err, ErrAuth) || Transient(err) }

// ended reports whether the caller ended the request. A deadline of the network's
// own satisfies context.DeadlineExceeded as well; that one is a net.Error with a
// timeout and no context behind it.
func ended(err error) bool { return errors.Is(err, context.Canceled) || isContextDeadline(err) }

func isContextDeadline(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err == context.DeadlineExceeded {
			return true
		}
	}
	return false
}

// broken reports whether a connection ended before the message did.
func broken(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// RetryAfter is how long the server of a request asked not to be asked again.
type RetryAfter struct{ wait atomic.Int64 }

// Wait returns it, or zero if the server did not ask for it.
func (r *RetryAfter) Wait() time.Duration { return time.Duration(r.wait.Load()) }

type retryAfterKey struct{}

// WithRetryAfter returns a context whose requests through [HashBodies] fill the RetryAfter. If
// there are several attempts, the last one counts.
func WithRetryAfter(ctx context.Context) (context.Context, *RetryAfter) {
	r := &RetryAfter{}
	return context.WithValue(ctx, retryAfterKey{}, r), r
}

// note keeps the delay that a response asks for. A successful response asks for none.
func (r *RetryAfter) note(resp *http.Response) {
	wait := time.Duration(0)
	if resp.StatusCode >= http.StatusBadRequest {
		wait = retryAfter(resp.Header, time.Now())
	}
	r.wait.Store(int64(wait))
}

// retryAfter reads Retry-After (RFC 9110, section 10.2.3), as seconds or as a date, but
// prefers the more exact milliseconds of OpenAI and Azure.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if wait, ok := duration(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return wait
	}
	text := h.Get("Retry-After")
	if wait, ok := duration(text, time.Second); ok {
		return wait
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// duration reads a number of units, which some servers write with a fraction.
func duration(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || n < 0 {
		return 0, false
	}
	return time.Duration(min(n*float64(unit), float64(math.MaxInt64/2))), true
}
