package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/host/tenant"
)

// The measurement of TestNobodyWaitsForNeighbours.
const (
	neighbours    = 8 // hostile tenants
	callsInRound  = 60
	callsOfOthers = 4 * time.Second // may take so long
)

// harm is what each neighbour does, in as many goroutines as it may have calls, until
// ctx ends.
type harm struct {
	name string
	do   func(ctx context.Context, c *crowd, who string)
}

// calling is to call a tool again and again.
func calling(tool, input string) func(context.Context, *crowd, string) {
	return func(ctx context.Context, c *crowd, who string) {
		for ctx.Err() == nil {
			status, _, _ := c.askWith(ctx, who, "POST", "/api/v1/tools/"+tool+"/call", "application/json", []byte(input))
			if status == http.StatusTooManyRequests {
				time.Sleep(10 * time.Millisecond) // so that this process leaves some of the machine to others
			}
		}
	}
}

// TestNobodyWaitsForNeighbours has a tenant of a host call a tool alone and beside
// tenants that take what they can for as long as they may. No call waits until one
// of theirs has ended. It prints how the p99 beside them compares with that alone.
func TestNobodyWaitsForNeighbours(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes most of a minute")
	}
	tar := newTar(t)
	c := newCrowd(t, policyFor(t, tar), append(crowdOf(neighbours), "good")...)
	c.withStore(func(s *tenant.Store) {
		c.must(s.SetLimits(t.Context(), "good", tenant.Limits{RequestsPerSecond: -1})) // it is the one that measures
	})
	c.start("", nil)
	c.upload(append(crowdOf(neighbours), "good")...)
	for _, h := range []harm{
		{"processor", calling("spin", `{}`)},
		{"memory", calling("fill", `{}`)},
		{"effects", calling("flood", `{}`)},
		{"slow egress", calling("send", fmt.Sprintf(`{"input":{"URL":%q}}`, tar.URL))},
	} {
		t.Run(h.name, func(t *testing.T) {
			alone := c.p99(t)
			stop := h.start(t, c)
			beside := c.p99(t)
			stop()
			t.Logf("p99 alone %s, beside %s", alone.Round(10*time.Microsecond), beside.Round(10*time.Microsecond))
			if beside > callsOfOthers/2 {
				t.Error("calls wait for those of others")
			}
		})
	}
}

// start lets the neighbours loose until the function that it returns is called.
func (h harm) start(t *testing.T, c *crowd) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, who := range crowdOf(neighbours) {
		for range tenant.DefaultLimits().Running {
			all.Go(func() { h.do(ctx, c, who) })
		}
	}
	return func() { cancel(); all.Wait(); c.settle(crowdOf(neighbours)...) }
}

// settle waits until no run of the tenants is in progress: those that have hung up
// have calls that go on until their time is over.
func (c *crowd) settle(tenants ...string) {
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

// p99 calls the tool of the good tenant and returns how long one call of a hundred
// took at least.
func (c *crowd) p99(t *testing.T) time.Duration {
	t.Helper()
	took := make([]time.Duration, callsInRound)
	for i := range took {
		began := time.Now()
		if status, text, err := c.call("good", "echo", map[string]int{"x": 1}); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s %v\n%s", status, text, err, tail(c.stderr.String(), 2000))
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
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

// policyFor is a policy that lets tools ask the server, for four seconds.
func policyFor(t *testing.T, s *httptest.Server) string {
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("version: \"1.0\"\npermissions:\n  network:\n    allow:\n      - {host: %q, ports: [%s], schemes: [http], private: true, methods: [GET, POST]}\nresources:\n  limits: {deadline: 4s}\n", host, port)
}
