package systemtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/fairtest"
	"github.com/starling-host/starling/serve/tenant"
)

const (
	neighbours = 8               // hostile tenants
	deadline   = 2 * time.Second // of every call of a tool
)

// callsInRound is how many calls are timed at once. Without STARLING_GATES the figures
// decide nothing, and the calls only show that the neighbours do what they are meant to.
func callsInRound() int {
	if fairtest.Gate() {
		return 600
	}
	return 5
}

// noisy are the hostile tenants of a round, of which two show what they do.
func noisy() []string {
	if fairtest.Gate() {
		return crowdOf(neighbours)
	}
	return crowdOf(2)
}

// harm is what the neighbours do, each with as many requests at once as it may have
// calls.
type harm struct {
	name     string
	requests []request
	answers  []int  // that they may have; zero is none, as at the end
	says     string // a part of the answer to the first request, if given: that it does such harm
	bounded  bool   // the figure is promised, and not just printed
	lasting  bool   // it is measured when the neighbours have been at it for a while
}

// harms are what tenants may do for as long as they like. Short calls are what a host
// is for: eight tenants that make as many as they may ask for as much as it has, and
// how much longer those of a ninth take then is not promised. It is measured once the
// processes are there that such calls need.
func harms(tar, maze *httptest.Server, module []byte) []harm {
	calling := func(name, tool, input, says string, bounded bool) harm {
		call := request{Method: "POST", Path: "/api/v1/tools/" + tool + "/call", Type: "application/json", Body: []byte(input)}
		return harm{name, []request{call}, []int{0, http.StatusOK, http.StatusTooManyRequests}, says, bounded, !bounded}
	}
	return []harm{
		calling("processor", "spin", `{}`, "deadline exceeded", true),
		calling("memory", "fill", `{}`, "deadline exceeded", true),
		calling("effects", "flood", `{}`, "more than 1000 effects", true),
		calling("log", "chatter", `{"input":{"Endless":true}}`, "deadline exceeded", true),
		calling("slow egress", "send", fmt.Sprintf(`{"input":{"URL":%q}}`, tar.URL), "deadline exceeded", true),
		calling("responses that are long to search", "send", fmt.Sprintf(`{"input":{"URL":%q,"Header":[["X",%q]]}}`, maze.URL, placeholders()), "could not be searched", true),
		calling("short calls with long logs", "chatter", `{}`, "xxxx", false),
		{"compiler", []request{
			{Method: "DELETE", Path: "/api/v1/modules/rogue"},
			{Method: "POST", Path: "/api/v1/modules?name=rogue", Type: "application/wasm", Body: module},
		}, []int{0, http.StatusCreated, http.StatusNoContent, http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests}, "", true, false},
	}
}

// TestServeNoisyNeighbours has a tenant of a host call a tool alone and beside
// tenants that take what they can for as long as they may, in turn, and compares
// how long its slowest calls take.
func TestServeNoisyNeighbours(t *testing.T) {
	tar, maze := newTar(t), newMaze(t)
	c := newCluster(t, policyFor(t, tar, maze), append(noisy(), "good")...)
	c.askFreely("good") // it is the one that measures
	c.withStore(func(s *tenant.Store) {
		for _, who := range noisy() {
			c.must(hideInMaze(t.Context(), s, who, maze))
		}
	})
	c.start("", nil)
	c.upload(append(noisy(), "good")...)
	for _, h := range harms(tar, maze, c.module) {
		t.Run(h.name, func(t *testing.T) { h.compare(t, c) })
	}
}

// compare fails if calls take too long beside the neighbours, as far as that is
// promised.
func (h harm) compare(t *testing.T, c *cluster) {
	if first := h.requests[0]; h.says != "" {
		status, text, err := c.ask(noisy()[0], first.Method, first.Path, first.Type, first.Body)
		if err != nil || !strings.Contains(string(text), h.says) {
			t.Fatalf("a neighbour does no such harm: %d %s %v", status, text, err)
		}
	}
	if !h.bounded {
		t.Log(h.measure(t, c))
		return
	}
	promised := fairtest.Promise{Times: 3, Good: 25 * time.Millisecond}
	promised.Hold(t, func() fairtest.Round { return h.measure(t, c) })
}

// measure makes calls alone and beside the neighbours.
func (h harm) measure(t *testing.T, c *cluster) fairtest.Round {
	alone := c.times(t)
	stop := c.loose(t, h.requests)
	if h.lasting {
		c.times(t)
	}
	beside := c.times(t)
	answers := stop()
	c.settle(noisy()...)
	for status, n := range answers {
		if !slices.Contains(h.answers, status) {
			t.Errorf("%d requests of the neighbours were answered with %d, so they do no such harm", n, status)
		}
	}
	t.Logf("the neighbours' answers: %v", answers)
	return fairtest.Round{Alone: alone, Beside: beside}
}

// times calls the tool of the good tenant and returns how long each call took.
func (c *cluster) times(t *testing.T) []time.Duration {
	t.Helper()
	return c.timesOf(t, callsInRound())
}

// timesOf is times for so many calls.
func (c *cluster) timesOf(t *testing.T, calls int) []time.Duration {
	t.Helper()
	took := make([]time.Duration, calls)
	for i := range took {
		began := time.Now()
		if status, text, err := c.call("good", "echo", map[string]int{"x": 1}); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s %v\n%s", status, text, err, tail(c.stderr.String(), 2000))
		}
		took[i] = time.Since(began)
	}
	return took
}

// settle waits until no run of the tenants is in progress: those that have hung up
// have calls that go on until their time is over.
func (c *cluster) settle(tenants ...string) {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for _, who := range tenants {
		for {
			status, text, err := c.ask(who, "GET", "/api/v1/runs?status=open&limit=1", "", nil)
			if err == nil && status == http.StatusOK && bytes.Contains(text, []byte(`"items":[]`)) {
				break
			}
			if time.Now().After(deadline) {
				c.t.Fatalf("runs of %s go on: %d %s %v", who, status, text, err)
			}
			time.Sleep(25 * time.Millisecond)
		}
	}
}

// newTar is a server that does not answer.
func newTar(t *testing.T) *httptest.Server {
	closing := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-closing:
		}
	}))
	t.Cleanup(func() { close(closing); s.Close() })
	return s
}

// newMaze is a server whose responses take as long to search for the secrets of its
// neighbours as such a search may.
func newMaze(t *testing.T) *httptest.Server {
	page := bytes.Repeat([]byte("%"), 1<<20)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(page) }))
	t.Cleanup(s.Close)
	return s
}

// mazeSecrets is how many secrets a neighbour has for the maze.
const mazeSecrets = 10

// hideInMaze gives a neighbour the secrets, of which each place in the maze could be the
// beginning.
func hideInMaze(ctx context.Context, s *tenant.Store, who string, maze *httptest.Server) error {
	for i := range mazeSecrets {
		secret := tenant.Secret{Name: fmt.Sprintf("S%d", i), Audience: []string{maze.Listener.Addr().String()}, Place: tenant.PlaceHeader}
		value := fmt.Sprintf("%s-%d-", strings.Repeat("%", 1<<10), i) // not sent if its end opened an escape
		if err := s.SetSecret(ctx, who, secret, tenant.NewValue(value)); err != nil {
			return err
		}
	}
	return nil
}

// placeholders has a request send all of them.
func placeholders() (all string) {
	for i := range mazeSecrets {
		all += fmt.Sprintf("{{secret:S%d}} ", i)
	}
	return strings.TrimSpace(all)
}

// policyFor is a policy that lets tools ask the servers, send the last of them the secrets
// of the maze, and bounds their calls.
func policyFor(t *testing.T, servers ...*httptest.Server) string {
	var rules, secrets string
	for _, s := range servers {
		host, port, err := net.SplitHostPort(s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		rules += fmt.Sprintf("      - {host: %q, ports: [%s], schemes: [http], private: true, methods: [GET, POST]}\n", host, port)
	}
	for i := range mazeSecrets {
		secrets += fmt.Sprintf("  - {name: S%d, audience: [%q], header: X}\n", i, servers[len(servers)-1].Listener.Addr())
	}
	return fmt.Sprintf("version: \"1.0\"\npermissions:\n  network:\n    allow:\n%ssecrets:\n%sresources:\n  limits: {deadline: %s}\n", rules, secrets, deadline)
}
