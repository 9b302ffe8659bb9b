package provider

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// RetryAfter is how long the server of a request asked not to be asked again.
type RetryAfter struct{ wait atomic.Int64 }

// Wait returns it, or zero if the server did not ask for it.
func (r *RetryAfter) Wait() time.Duration { return time.Duration(r.wait.Load()) }

type retryAfterKey struct{}

// WithRetryAfter returns a context with which a request through [HashBodies] fills the
// RetryAfter. Of several attempts the last one counts.
func WithRetryAfter(ctx context.Context) (context.Context, *RetryAfter) {
	r := &RetryAfter{}
	return context.WithValue(ctx, retryAfterKey{}, r), r
}

// note keeps what a response asks for. One that is no failure asks for nothing.
func (r *RetryAfter) note(resp *http.Response) {
	wait := time.Duration(0)
	if resp.StatusCode >= http.StatusBadRequest {
		wait = retryAfter(resp.Header, time.Now())
	}
	r.wait.Store(int64(wait))
}

// retryAfter reads Retry-After (RFC 9110, section 10.2.3), as seconds or as a date, and
// before that the milliseconds with which OpenAI and Azure say the same more exactly.
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
