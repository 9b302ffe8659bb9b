package provider_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
)

var classes = []error{provider.ErrRateLimit, provider.ErrAuth, provider.ErrServer, provider.ErrNetwork}

func TestClasses(t *testing.T) {
	said := errors.New("what the vendor said")
	timeout := &url.Error{Op: "Post", URL: "http://h", Err: &net.DNSError{Err: "i/o timeout", IsTimeout: true}}
	for _, tc := range []struct {
		name   string
		err    error
		status int
		want   error
	}{
		{"429", said, 429, provider.ErrRateLimit},
		{"401", said, 401, provider.ErrAuth},
		{"403", said, 403, provider.ErrAuth},
		{"500", said, 500, provider.ErrServer},
		{"599", said, 599, provider.ErrServer},
		{"400", said, 400, nil},
		{"404", said, 404, nil},
		{"600", said, 600, nil},
		{"no response, no network", said, 0, nil},
		{"dial", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 0, provider.ErrNetwork},
		{"timeout of the network", timeout, 0, provider.ErrNetwork},
		{"cut", io.ErrUnexpectedEOF, 0, provider.ErrNetwork},
		{"reset", fmt.Errorf("read: %w", syscall.ECONNRESET), 0, provider.ErrNetwork},
		{"cancelled", &url.Error{Op: "Post", URL: "http://h", Err: context.Canceled}, 0, nil},
		{"deadline", &url.Error{Op: "Post", URL: "http://h", Err: context.DeadlineExceeded}, 0, nil},
		{"already classified", fmt.Errorf("%w: x", provider.ErrAuth), 500, provider.ErrAuth},
	} {
		got := provider.WrapHTTPStatus(tc.err, tc.status)
		if !errors.Is(got, tc.err) {
			t.Errorf("%s: %v is not the original error", tc.name, got)
		}
		for _, class := range classes {
			if errors.Is(got, class) != (class == tc.want) {
				t.Errorf("%s: %v, want the class %v", tc.name, got, tc.want)
			}
		}
	}
	if provider.WrapHTTPStatus(nil, 500) != nil || provider.ClassifyTransport(nil) != nil {
		t.Error("no error became one")
	}
}

// TestProviderErrorAfterDeadline has net/http report the end of a context, which is the
// caller's doing, and a timeout of its own, which is not.
func TestProviderErrorAfterDeadline(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer s.Close()
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if _, err := http.DefaultClient.Do(req); errors.Is(provider.ClassifyTransport(err), provider.ErrNetwork) {
		t.Errorf("the caller's deadline: %v", provider.ClassifyTransport(err))
	}
	client := http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 10 * time.Millisecond}}
	if _, err := client.Get(s.URL); !errors.Is(provider.ClassifyTransport(err), provider.ErrNetwork) {
		t.Errorf("the transport's timeout: %v", provider.ClassifyTransport(err))
	}
}

func TestHashBodies(t *testing.T) {
	const body = "data: {}\n\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }))
	defer s.Close()
	ctx, sum := provider.WithBodyHash(t.Context())
	if sum.Sum() != nil {
		t.Error("a hash before there is a response")
	}
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	resp, err := provider.HashBodies(nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if want := canon.Sum([]byte(body)); string(sum.Sum()) != string(want[:]) {
		t.Errorf("got %x, want %s", sum.Sum(), want)
	}
}

func TestToolUseObject(t *testing.T) {
	for args, want := range map[string]string{"": "{}", `{"a":1}`: `{"a":1}`, `"{broken"`: `{"arguments":"{broken"}`, `[1]`: `{"arguments":[1]}`} {
		if got := (provider.ToolUse{Args: []byte(args)}).Object(); string(got) != want {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}
