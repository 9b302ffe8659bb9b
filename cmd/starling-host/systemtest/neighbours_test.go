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
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/serve/tenant"
)

// stamp is a text in the module that may be any other of its length, so that there
// are as many modules as one likes.
const stamp = "stamp-0000000000"

// request is what a neighbour asks of the host.
type request struct {
	Method, Path, Type string
	Body               []byte // every stamp in it becomes another one each time
	Unread             bool   // the answer stays in the connection, for a while
}

// crew is what the process of the neighbours is told: to make the requests one
// after the other, again and again, with each key as many times at once; or to keep so
// many hostile connections open.
type crew struct {
	URL      string
	Keys     []string
	Each     int
	Requests []request
	Hostile  int
	Kinds    []int // of them, see siegeKinds
}

// refused is how long a neighbour waits that was told to ask less often.
const refused = 10 * time.Millisecond

// crewMark is the variable that makes a test program the process of the neighbours.
const crewMark = "STARLING_TEST_NEIGHBOURS"

// loose lets the neighbours loose until the function that it returns is called,
// which returns how often they had an answer of each status. They are a process of
// their own that gives way to every other: clients are elsewhere, and what is
// measured is what the host makes of their requests.
func (c *cluster) loose(t *testing.T, requests []request) (stop func() map[int]int) {
	all := crew{Each: tenant.DefaultLimits().Running, Requests: requests}
	for _, who := range noisy() {
		all.Keys = append(all.Keys, c.keys[who])
	}
	return c.let(t, all)
}

// let starts the process of the neighbours.
func (c *cluster) let(t *testing.T, all crew) (stop func() map[int]int) {
	t.Helper()
	all.URL = c.url
	if all.Keys == nil {
		for _, who := range crowdOf(neighbours) {
			all.Keys = append(all.Keys, c.keys[who])
		}
	}
	told, err := json.Marshal(all)
	c.must(err)
	self, err := os.Executable()
	c.must(err)
	cmd := exec.Command("nice", "-n", "19", self)
	cmd.Env, cmd.Stderr = append(os.Environ(), crewMark+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	c.must(err)
	out, err := cmd.StdoutPipe()
	c.must(err)
	c.must(cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	_, err = in.Write(append(told, '\n'))
	c.must(err)
	says := json.NewDecoder(out)
	c.must(says.Decode(new(bool))) // they have begun
	return func() (answers map[int]int) {
		in.Close()
		c.must(says.Decode(&answers))
		c.must(cmd.Wait())
		return answers
	}
}

// beNeighbours is the process of the neighbours, if this is that.
func beNeighbours() {
	if os.Getenv(crewMark) == "" {
		return
	}
	in := json.NewDecoder(os.Stdin)
	var all crew
	if err := in.Decode(&all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	json.NewEncoder(os.Stdout).Encode(all.work(ctx))
	os.Exit(0)
}

// work makes requests until ctx ends, and returns how often there was an answer of
// each status, zero for none.
func (n crew) work(ctx context.Context) map[int]int {
	if n.Hostile > 0 {
		return n.besiege(ctx)
	}
	fmt.Println(true)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(n.Keys) * n.Each}}
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for _, key := range n.Keys {
		for range n.Each {
			all.Go(func() {
				for ctx.Err() == nil {
					for _, r := range n.Requests {
						status := n.ask(ctx, client, key, r)
						mu.Lock()
						answers[status]++
						mu.Unlock()
					}
				}
			})
		}
	}
	all.Wait()
	return answers
}

// ask makes one request and returns the status of its answer. Who is refused waits a
// moment: to be refused is no harm that the host knows of.
func (n crew) ask(ctx context.Context, client *http.Client, key string, q request) int {
	another := fmt.Sprintf("stamp-%010d", rand.Int64N(1e10))
	r, err := http.NewRequestWithContext(ctx, q.Method, n.URL+q.Path, bytes.NewReader(bytes.ReplaceAll(q.Body, []byte(stamp), []byte(another))))
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", q.Type)
	r.Header.Set("Accept", "application/json, text/event-stream") // as MCP asks for
	if q.Unread {
		return leave(ctx, r)
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, answer.Body)
	if answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable {
		time.Sleep(refused)
	}
	return answer.StatusCode
}

// leave makes a request, and leaves its answer unread until the host has written what it can.
func leave(ctx context.Context, r *http.Request) int {
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		return 0
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	if r.Write(conn) == nil {
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
	}
	return 0
}
