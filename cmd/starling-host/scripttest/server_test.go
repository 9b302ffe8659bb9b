package scripttest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/starling-host/starling/internal/ocitest"
)

// server is the world of a script.
type server struct {
	http *httptest.Server

	mu        sync.Mutex
	asked     map[string]bool // paths
	hung      map[string]bool // paths below /once that were left without an answer
	changed   *sync.Cond      // of asked
	customers int             // requests for one
}

func newServer() *server {
	s := &server{asked: map[string]bool{}, hung: map[string]bool{}}
	s.changed = sync.NewCond(&s.mu)
	s.http = httptest.NewServer(s)
	return s
}

// ServeHTTP answers every third request for a customer with 500, takes orders, describes requests below /echo,
// and leaves /hang, and /once the first time, without an answer until the client
// goes away.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, isCustomer := strings.CutPrefix(r.URL.Path, "/customers/")
	fails := s.note(r.URL.Path, isCustomer)
	switch {
	case r.URL.Path == "/hang", s.firstTime(r.URL.Path):
		<-r.Context().Done()
	case fails:
		http.Error(w, "try again", http.StatusInternalServerError)
	case isCustomer:
		fmt.Fprintf(w, "customer %s", id)
	case r.URL.Path == "/orders":
		fmt.Fprintf(w, "has a key: %t", r.Header.Get("Idempotency-Key") != "")
	case strings.HasPrefix(r.URL.Path, "/echo/"):
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"request":%q,"key":%q,"body":%q}`, r.Method+" "+r.RequestURI, r.Header.Get("X-Key"), body)
	}
}

// firstTime reports whether a path below /once is asked for the first time.
func (s *server) firstTime(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := strings.HasPrefix(path, "/once/") && !s.hung[path]
	s.hung[path] = s.hung[path] || first
	return first
}

// note remembers a request and reports whether it is to fail.
func (s *server) note(path string, isCustomer bool) (fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[path] = true
	s.changed.Broadcast()
	if isCustomer {
		s.customers++
	}
	return isCustomer && s.customers%3 == 0
}

// awaitTime is how long a script waits for a request that does not come, because
// the program that should make it has failed.
const awaitTime = time.Minute

// await returns when the server has been asked for a path since it was last
// awaited, and false if that does not happen.
func (s *server) await(path string) bool {
	late := false
	timer := time.AfterFunc(awaitTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.changed.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.asked[path] && !late {
		s.changed.Wait()
	}
	defer delete(s.asked, path)
	return s.asked[path]
}

// registryKey is where a script keeps its registry.
const registryKey = "registry"

func registryCommand(ts *testscript.TestScript, _ bool, args []string) {
	s, _ := ts.Value(registryKey).(**httptest.Server)
	switch {
	case len(args) == 1 && args[0] == "start":
		*s = httptest.NewServer(ocitest.NewRegistry(nil))
		ts.Defer((*s).Close)
		ts.Setenv("REGISTRY", strings.TrimPrefix((*s).URL, "http://"))
	case len(args) == 1 && args[0] == "stop":
		(*s).Close()
	default:
		ts.Fatalf("usage: registry start|stop")
	}
}

// serverKey is where a script keeps its server.
const serverKey = "server"

func serverCommand(ts *testscript.TestScript, _ bool, args []string) {
	s, _ := ts.Value(serverKey).(**server)
	switch {
	case len(args) == 1 && args[0] == "start":
		*s = newServer()
		ts.Defer((*s).http.Close)
		ts.Setenv("URL", (*s).http.URL)
		ts.Setenv("HOST", strings.TrimPrefix((*s).http.URL, "http://"))
	case len(args) == 1 && args[0] == "stop":
		(*s).http.Close()
	case len(args) == 2 && args[0] == "await":
		if !(*s).await(args[1]) {
			ts.Fatalf("nobody has asked for %s", args[1])
		}
	default:
		ts.Fatalf("usage: server start|stop|await PATH")
	}
}
