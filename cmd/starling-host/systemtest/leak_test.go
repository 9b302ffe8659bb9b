package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/hostiletest"
	"github.com/starling-host/starling/serve/tenant"
)

// usage is what a host has of its machine.
type usage struct {
	Cache       int // bytes of SQLite's page caches, given back
	Heap        int // bytes of Go's objects that are alive, which are some of Memory
	Memory      int // bytes that are in no file, without the caches
	Goroutines  int
	Threads     int // of which each process has one, and Go never ends the others
	Descriptors int
	Code        int // of the descriptors: one for each module that is loaded
	Workers     int // processes
	WorkerBytes int // of theirs in no file, together; it depends on whose modules they have
}

// measureSocket is where the measured host, which is in the tests of package main, says what it uses.
const measureSocket = "measure.sock"

// resting asks the host what it uses until what ends by itself has ended: it has the
// same number of goroutines and descriptors for longer than a process lingers.
func (c *cluster) resting() (u usage) {
	c.t.Helper()
	c.client.CloseIdleConnections()
	for same, tries := 0, 0; same < 75 && tries < 1000; tries++ {
		before := u
		c.must(json.Unmarshal(c.measured("/"), &u))
		if same++; u.Goroutines != before.Goroutines || u.Descriptors != before.Descriptors {
			same = 0
		}
		time.Sleep(20 * time.Millisecond)
	}
	return u
}

// atRest returns what the host uses when it rests, with the large modules of tenants
// loaded: which of those that nobody calls are, depends on who has called last.
func (c *cluster) atRest(tenants ...string) usage {
	c.t.Helper()
	for _, who := range tenants {
		if status, text, err := c.call(who, "echo", map[string]string{}); err != nil || status != http.StatusOK {
			c.t.Fatalf("%s: %d %s %v", who, status, text, err)
		}
	}
	return c.resting()
}

// measured asks the measured host.
func (c *cluster) measured(path string) []byte {
	c.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.path(measureSocket))
	}}}
	answer, err := client.Get("http://host" + path)
	c.must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	c.must(err)
	return text
}

// attack is one way to do harm to a host: a request, and after which timeout its client
// hangs up. Zero means that it waits for the response.
type attack struct {
	method, path, contentType, body string

	timeout time.Duration
}

func callOf(tool, input string) attack {
	return attack{"POST", "/api/v1/tools/" + tool + "/call", "application/json", `{"input":` + input + `}`, 0}
}

func uploadOf(name string, module []byte) attack {
	return attack{"POST", "/api/v1/modules?name=" + name, "application/wasm", string(module), 0}
}

// by makes the attack as a tenant. A client that hangs up has no status.
func (a attack) by(c *cluster, who string) (status int, text []byte, err error) {
	ctx := c.t.Context()
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	status, text, err = c.askWith(ctx, who, a.method, a.path, []byte(a.body), "Content-Type", a.contentType)
	if ctx.Err() != nil {
		return 0, nil, nil
	}
	return status, text, err
}

// attacks are those of modules and those of clients. A tenant is given the modules
// that they need.
func (c *cluster) attacks(who, slow string) []attack {
	c.t.Helper()
	all := c.familiesOf(who)
	for _, tool := range []string{"spin", "fill", "flood", "huge", "trap"} {
		all = append(all, callOf(tool, `{}`))
	}
	send := callOf("send", fmt.Sprintf(`{"URL":%q}`, slow))
	all = append(all, send)
	for _, patience := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		for _, a := range []attack{callOf("spin", `{}`), callOf("echo", `{}`), send} {
			a.timeout = patience
			all = append(all, a)
		}
	}
	for _, load := range hostiletest.Loads()[:8] {
		all = append(all, uploadOf("load", load.Modules()[0]))
	}
	echo := callOf("echo", `{}`)
	for _, body := range []string{strings.Repeat("[", 10_000), strings.Repeat(" ", 2<<20), `{"input":{},"x":1}`} {
		echo.body = body
		all = append(all, echo)
	}
	return append(all, callOf("nobody", `{}`), attack{method: "DELETE", path: "/api/v1/../../etc/passwd"})
}

// familiesOf uploads the hostile families, each with a name of its own, and returns
// the attacks that are to call them.
func (c *cluster) familiesOf(who string) (all []attack) {
	c.t.Helper()
	for i, run := range hostiletest.Runs() {
		name := fmt.Sprintf("evil-%02d", i) // as long as what it takes the place of
		module := bytes.Replace(run.Wasm, []byte(`"hostile"`), []byte(`"`+name+`"`), 1)
		switch status, text, err := uploadOf(name, module).by(c, who); {
		case err == nil && status == http.StatusCreated:
			all = append(all, callOf(name, hostiletest.Attack))
		case !run.Always:
			c.t.Fatalf("%s: %d %s %v", run.Name, status, text, err)
		}
	}
	return all
}

// The measurement of TestHostileCallsLeaveNothing.
const (
	clients = 8  // at a time
	series  = 20 // calls of one attack, so that most of them find a process with its module
)

// make has so many calls made, three in ten of them attacks, each of which is made so
// often in a row. It waits until all of their runs have ended.
func (c *cluster) make(calls, inRow int, attacks []attack) {
	c.t.Helper()
	next := make(chan int)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for i := range next {
				if i%10 < 3 {
					c.attack(attacks[(i/10*3+i%10)/inRow%len(attacks)])
				} else {
					c.echo()
				}
			}
		})
	}
	for i := range calls {
		next <- i
	}
	close(next)
	all.Wait()
	c.settle("good", "bad")
}

// fillCache has the host write more than SQLite keeps of it (64 MiB), because what it
// has once had for that is not all given back.
func (c *cluster) fillCache() {
	c.t.Helper()
	for range 150 {
		if status, _, err := c.call("good", "echo", map[string]string{"x": strings.Repeat("x", 200<<10)}); err != nil || status != http.StatusOK {
			c.t.Fatal(status, err)
		}
	}
}

// attack makes an attack, which is the host's daily work and not its failure.
func (c *cluster) attack(a attack) {
	if status, text, err := a.by(c, "bad"); err != nil || status >= http.StatusInternalServerError {
		c.t.Errorf("%s %s: %d %s %v", a.method, a.path, status, tail(string(text), 300), err)
	}
}

// echo makes a call that means well.
func (c *cluster) echo() {
	input := map[string]string{"x": strings.Repeat("x", rand.IntN(8<<10))}
	if status, text, err := c.call("good", "echo", input); err != nil || status != http.StatusOK || !bytes.Contains(text, []byte(`"completed"`)) {
		c.t.Errorf("echo: %d %s %v", status, tail(string(text), 300), err)
	}
}

// TestHostileCallsLeaveNothing has a host answer 5,000 calls, 30% of which are attacks. Then it has no more memory and no more objects than before, within a fifth,
// and no goroutine, no descriptor and no thread more.
func TestHostileCallsLeaveNothing(t *testing.T) {
	switch {
	case os.Getenv("STARLING_NIGHTLY") == "":
		t.Skip("NIGHTLY: takes minutes")
	case runtime.GOOS != "linux":
		t.Skip("SKIPPED: what a process uses is read from /proc, which Linux has")
	}
	const calls, rounds = 5000, 2
	tar := newTar(t)
	c := newCluster(t, policyFor(t, tar), "good", "bad")
	c.askFreely("good", "bad")
	c.withStore(func(s *tenant.Store) {
		_, err := s.SetPolicy(t.Context(), "bad", strings.Replace(policyFor(t, tar), "deadline: 2s", "deadline: 30ms", 1), true)
		c.must(err)
	})
	measured := c.path("measured-host") // by this name the tests of package main are one
	if out, err := exec.Command("go", "test", "-c", "-o", measured, "github.com/starling-host/starling/cmd/starling-host").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.start("", func(args []string) []string { return append([]string{measured}, args[1:]...) })
	c.upload("good", "bad")
	attacks := c.attacks("bad", tar.URL)
	round := (10*len(attacks) + 2) / 3 // calls in which every attack is made once
	c.make(rounds*round, 1, attacks)
	c.fillCache()
	before := c.atRest("good", "bad")
	c.make(calls, series, attacks)
	after := c.atRest("good", "bad")
	t.Logf("%d attacks\nbefore %+v\nafter  %+v", len(attacks), before, after)
	after.compare(t, before)
	if t.Failed() {
		t.Logf("%s", c.measured("/stacks"))
	}
}

// compare holds what a host uses to what it used before.
func (u usage) compare(t *testing.T, before usage) {
	for _, of := range []struct {
		what        string
		after, most int
	}{
		{"bytes", u.Memory, before.Memory * 6 / 5},
		{"bytes of objects", u.Heap, before.Heap * 6 / 5},
		{"threads", u.Threads - u.Workers, before.Threads - before.Workers + clients},                              // each may be where a thread waits for a file
		{"goroutines", u.Goroutines - 2*u.Workers, before.Goroutines - 2*before.Workers},                           // of each: one that attends it, one that reads what it says last
		{"descriptors", u.Descriptors - 4*u.Workers - u.Code, before.Descriptors - 4*before.Workers - before.Code}, // of each: three pipes, and the process
		{"loaded modules", u.Code, 32},                                                                             // daemon.Config.MaxIdleModules
		{"processes", u.Workers, 2 * runtime.GOMAXPROCS(0)},                                                        // worker.Config.MaxIdle
	} {
		if of.after > of.most {
			t.Errorf("%d %s, and at most %d were to be left", of.after, of.what, of.most)
		}
	}
}
