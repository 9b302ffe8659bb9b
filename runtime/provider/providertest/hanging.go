package providertest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/runtime/provider"
)

// hanging checks the ways out of a stream that has stopped coming.
func (s *Suite) hanging(t *testing.T, r recording) {
	for name, tc := range map[string]struct {
		stop func(cancelStream, cancelNext func(), stream provider.EventStream)
		want error
	}{
		"the stream's context": {func(cancel, _ func(), _ provider.EventStream) { cancel() }, context.Canceled},
		"the context of Next":  {func(_, cancel func(), _ provider.EventStream) { cancel() }, context.Canceled},
		"close":                {func(_, _ func(), stream provider.EventStream) { stream.Close() }, nil},
	} {
		for where, sent := range map[string]int{"at the start": 0, "in the middle": len(r.body) / 2} {
			t.Run(name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { s.hang(t, r, r.body[:sent], tc.stop, tc.want) })
			})
		}
	}
	t.Run("no response", func(t *testing.T) { synctest.Test(t, s.noResponse) })
	t.Run("over a socket", func(t *testing.T) { s.hangOverSocket(t, r) })
}

// hang reads until nothing moves any more, and then stops it. It runs in a
// bubble, which fails if a goroutine is left.
func (s *Suite) hang(t *testing.T, r recording, sent []byte, stop func(_, _ func(), _ provider.EventStream), want error) {
	p, server := s.inMemory(t, r, &reply{body: sent, hangs: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	nextCtx, cancelNext := context.WithCancel(t.Context())
	defer cancelNext()
	begun := time.Now()
	stopped := make(chan provider.EventStream, 1)
	go func() {
		synctest.Wait()
		select {
		case stream := <-stopped:
			stop(cancel, cancelNext, stream)
		default:
			cancel() // some wait for the first event before Stream returns
		}
	}()
	stream, err := p.Stream(ctx, r.Request)
	if err == nil {
		stopped <- stream
		_, err = read(nextCtx, stream)
		err = errors.Join(err, stream.Close(), stream.Close())
	} else {
		want = context.Canceled
	}
	if err == nil || want != nil && !errors.Is(err, want) || errors.Is(err, provider.ErrNetwork) && want != nil {
		t.Errorf("got %v, want %v", err, want)
	}
	if server.open.Load() != 0 {
		t.Error("the body of the response is still open")
	}
	if waited := time.Since(begun); waited > time.Second {
		t.Errorf("it took %v", waited)
	}
}

// waiting is a server that does not even begin to answer.
type waiting struct{}

// RoundTrip implements [http.RoundTripper].
func (waiting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// noResponse has the deadline of the caller pass before there is a response.
func (s *Suite) noResponse(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := Converse(ctx, s.New(t, memoryURL, &http.Client{Transport: waiting{}}), question("test-model"))
	if !errors.Is(err, context.DeadlineExceeded) || provider.Transient(err) {
		t.Errorf("got %v, want the caller's deadline and no class", err)
	}
}

// hangOverSocket closes a stream and waits until the server sees that.
func (s *Suite) hangOverSocket(t *testing.T, r recording) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer close(gone)
		s.send(w, req, r, r.body[:len(r.body)/2], func() {})
		http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := s.New(t, server.URL, server.Client()).Stream(ctx, r.Request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(ctx); err == io.EOF {
		t.Error("half of the transcript is the end of it")
	}
	if err := stream.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Error("the stream is closed, and 1 bodies open")
		server.CloseClientConnections() // or the server would wait for it, too
	}
}
