package systemtest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

// shop is the server that the tool "order" sends its orders to. It notices when
// what is known to have happened is asked for again.
type shop struct {
	*httptest.Server

	mu     sync.Mutex
	orders map[string][]string // by path, the idempotency keys of the requests
	taken  int                 // orders in all
	more   *sync.Cond          // taken has grown
	known  map[string]bool     // paths whose answer is in a log
	again  []string            // paths of those that were asked for again
}

func openShop(t *testing.T, listen string) *shop {
	s := &shop{orders: map[string][]string{}, known: map[string]bool{}}
	s.more = sync.NewCond(&s.mu)
	s.Server = httptest.NewUnstartedServer(s)
	if listen != "" {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		s.Listener.Close()
		s.Listener = l
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders[r.URL.Path] = append(s.orders[r.URL.Path], r.Header.Get("Idempotency-Key"))
	if s.known[r.URL.Path] {
		s.again = append(s.again, r.URL.Path)
	}
	s.taken++
	s.more.Broadcast()
	fmt.Fprintf(w, "order %d", s.taken)
}

// await waits until the shop has had so many more orders, each of which has to come
// within awaitTime.
func (s *shop) await(t *testing.T, more int) {
	t.Helper()
	late := false
	timer := time.AfterFunc(awaitTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.more.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for until := s.taken + more; s.taken < until; timer.Reset(awaitTime) {
		if s.more.Wait(); late {
			t.Fatalf("nobody has ordered for %s, and %d more orders were to come", awaitTime, until-s.taken)
		}
	}
}

// remember takes note of the orders whose answers events hold.
func (s *shop) remember(events []event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ev := range events {
		if p, err := ev.AsSideEffectRecorded(); err == nil && len(p.Request) > 0 && p.Error == nil {
			if path, ok := orderPath(string(p.Request)); ok {
				s.known[path] = true
			}
		}
	}
}

// orderPath returns the path that a request was for.
func orderPath(request string) (string, bool) {
	line, _, _ := strings.Cut(request, " HTTP/")
	_, target, ok := strings.Cut(line, "http://")
	_, path, found := strings.Cut(target, "/")
	return "/" + path, ok && found
}

// check returns what is wrong with the orders: each run was to order so many items.
func (s *shop) check(t *testing.T, runs []string, items int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range s.again {
		t.Errorf("%s was ordered again although its answer was recorded", path)
	}
	for _, run := range runs {
		for i := range items {
			keys := s.orders[fmt.Sprintf("/%s/%d", run, i)]
			if len(keys) == 0 {
				t.Errorf("item %d of run %s was never ordered", i, run)
			}
			if slices.ContainsFunc(keys, func(k string) bool { return k == "" || k != keys[0] }) {
				t.Errorf("item %d of run %s was ordered under the keys %q", i, run, keys)
			}
		}
	}
}
