package provider

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		seconds, milliseconds string
		want                  time.Duration
	}{
		{"", "", 0},
		{"7", "", 7 * time.Second},
		{"1.5", "", 1500 * time.Millisecond},
		{"7", "250", 250 * time.Millisecond},
		{"7", "soon", 7 * time.Second},
		{"Mon, 23 Nov 2026 12:00:30 GMT", "", 30 * time.Second},
		{"Mon, 23 Nov 2026 11:00:00 GMT", "", 0},
		{"-1", "", 0}, {"NaN", "", 0}, {"tomorrow", "", 0},
		{"1e300", "", time.Duration(1 << 62)},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.seconds)
		h.Set("Retry-After-Ms", c.milliseconds)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q, %q: %v, want %v", c.seconds, c.milliseconds, got, c.want)
		}
	}
}

// TestRetryAfterOfTheLastResponse: a successful answer cancels the delay of an earlier failure.
func TestRetryAfterOfTheLastResponse(t *testing.T) {
	status := http.StatusTooManyRequests
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(status)
	}))
	defer server.Close()
	ctx, after := WithRetryAfter(t.Context())
	for _, want := range []time.Duration{3 * time.Second, 0} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := HashBodies(server.Client()).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if after.Wait() != want {
			t.Errorf("status %d: %v, want %v", status, after.Wait(), want)
		}
		status = http.StatusOK
	}
}
