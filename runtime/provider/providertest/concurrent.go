package providertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// concurrent asks one provider for all recordings at once, several times. The
// server finishes no response before it has begun them all.
func (s *Suite) concurrent(t *testing.T, recordings []recording) {
	streams := 8 * len(recordings)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewServer(s.library(recordings, &gate{size: int64(streams), open: make(chan struct{}), ctx: ctx}))
	defer server.Close()
	p := s.New(t, server.URL, server.Client())
	var readers sync.WaitGroup
	for n := range streams {
		i := n % len(recordings)
		readers.Go(func() {
			req := *recordings[i].Request
			req.Model = modelName(i)
			got, err := Converse(ctx, p, &req)
			if err != nil {
				t.Error(err)
				cancel() // the others would wait for this one
			}
			expect(t, got, recordings[i].wanted(recordings[i].body))
		})
	}
	readers.Wait()
}

// modelName selects the recording for a request.
func modelName(i int) string { return fmt.Sprintf("recording-%03d", i) }

// library is a server of all recordings, which waits at the gate in the middle of
// each.
func (s *Suite) library(recordings []recording, g *gate) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		for i, r := range recordings {
			if strings.Contains(req.URL.Path+string(body), modelName(i)) {
				s.send(w, req, r, r.body, g.pass)
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
	}
}

// gate opens when the expected number of goroutines wait at it.
type gate struct {
	size    int64
	waiting atomic.Int64
	open    chan struct{}
	ctx     context.Context // opens it, too
}

func (g *gate) pass() {
	if g.waiting.Add(1) == g.size {
		close(g.open)
	}
	select {
	case <-g.open:
	case <-g.ctx.Done():
	}
}
