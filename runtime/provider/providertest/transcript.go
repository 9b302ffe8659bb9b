package providertest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/runtime/provider"
)

// headers returns the headers of a response of status 200.
func (s *Suite) headers(r recording) http.Header {
	h := http.Header{}
	for name, values := range r.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	h.Set("Content-Type", s.ContentType)
	return h
}

// inMemory returns a provider whose requests get what rep points to, and its
// server.
func (s *Suite) inMemory(t testing.TB, r recording, rep *reply) (provider.Provider, *memory) {
	m := &memory{header: s.headers(r), reply: rep}
	return s.New(t, memoryURL, &http.Client{Transport: m}), m
}

func (s *Suite) transcript(t *testing.T, r recording) {
	t.Run("over a socket", func(t *testing.T) { s.overSocket(t, r) })
	t.Run("in pieces", func(t *testing.T) { s.inPieces(t, r) })
	t.Run("cut", func(t *testing.T) { s.cut(t, r, io.EOF) })
	t.Run("connection lost", func(t *testing.T) { s.cut(t, r, io.ErrUnexpectedEOF, fmt.Errorf("read: %w", syscall.ECONNRESET)) })
}

func (s *Suite) overSocket(t *testing.T, r recording) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { s.send(w, req, r, r.body, func() {}) }))
	defer server.Close()
	got, err := Converse(t.Context(), s.New(t, server.URL, server.Client()), r.Request)
	if err != nil {
		t.Error(err)
	}
	expect(t, got, r.wanted(r.body))
}

// send writes a part of a recording in two pieces, and does something in between.
func (s *Suite) send(w http.ResponseWriter, req *http.Request, r recording, body []byte, between func()) {
	io.Copy(io.Discard, req.Body)
	for name, values := range s.headers(r) {
		w.Header()[name] = values
	}
	w.Write(body[:len(body)/2])
	http.NewResponseController(w).Flush()
	between()
	w.Write(body[len(body)/2:])
}

// inPieces has the body arrive a few bytes at a time, and divided in two at every
// place.
func (s *Suite) inPieces(t *testing.T, r recording) {
	replies := []reply{{body: r.body}, {body: r.body, lastWithEnd: true}}
	for _, size := range []int{1, 2, 3, 5, 7, 64, 1021} {
		replies = append(replies, reply{body: r.body, size: size}, reply{body: r.body, size: size, lastWithEnd: true})
	}
	for _, at := range places(r) {
		replies = append(replies, reply{body: r.body, first: at})
	}
	want := r.wanted(r.body)
	var rep reply
	p, server := s.inMemory(t, r, &rep)
	for _, rep = range replies {
		got, err := Converse(t.Context(), p, r.Request)
		if err != nil || !reflect.DeepEqual(got, want) || server.open.Load() != 0 {
			t.Fatalf("first %d, then %d bytes: %v, %d bodies open (-want +got):\n%s", rep.first, rep.size, err, server.open.Load(), cmp.Diff(want, got))
		}
	}
}

// cut makes the body stop at every place, with the ends in turn. The stream must
// not take that for the end of the response, and must have given only its first
// chunks.
func (s *Suite) cut(t *testing.T, r recording, ends ...error) {
	last := bytes.LastIndex(r.body, []byte(r.Terminal))
	if last < 0 || r.Terminal == "" {
		t.Fatalf("the body does not have the terminal event %q", r.Terminal)
	}
	var rep reply
	p, server := s.inMemory(t, r, &rep)
	for i, at := range places(r) {
		rep = reply{body: r.body[:at], end: ends[i%len(ends)]}
		got, err := Converse(t.Context(), p, r.Request)
		if at > last && err == nil {
			uncounted := func(chunks []provider.StreamChunk) []provider.StreamChunk { // counts may come last
				return slices.DeleteFunc(slices.Clone(chunks), func(c provider.StreamChunk) bool { return c.Kind == provider.ChunkUsage })
			}
			expect(t, uncounted(got), uncounted(r.wanted(r.body[:at])))
		} else if !expectClass(t, err, provider.ErrNetwork) || !isStart(got, r.Want) {
			t.Fatalf("cut after %d of %d bytes: %v", at, len(r.body), cmp.Diff(r.Want, got))
		}
		if server.open.Load() != 0 {
			t.Fatalf("cut after %d bytes: the body is still open", at)
		}
	}
}

// isStart reports whether got are the first chunks of want, and not the end.
func isStart(got, want []provider.StreamChunk) bool {
	return len(got) == 0 || len(got) < len(want) && reflect.DeepEqual(got, want[:len(got)])
}

// maxPlaces bounds how often one recording is divided.
const maxPlaces = 4096

// places are offsets in a recording: all of a short one, else some and those
// around its terminal event.
func places(r recording) []int {
	step := len(r.body)/maxPlaces + 1
	var list []int
	for at := 0; at < len(r.body); at += step {
		list = append(list, at)
	}
	if terminal := bytes.LastIndex(r.body, []byte(r.Terminal)); step > 1 && terminal >= 0 {
		for at := max(0, terminal-step); at <= terminal; at++ {
			list = append(list, at)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
