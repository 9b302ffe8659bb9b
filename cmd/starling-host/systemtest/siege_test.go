package systemtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/fairtest"
)

type siegeKind struct {
	name   string
	begin  func(headers string) string
	each   string
	closes bool // its own direction, and sends no more
}

// siegeKinds are what hostile clients do with a connection, again and again: send what
// begin returns and then each, every 100 ms, until the host closes it.
var siegeKinds = []siegeKind{
	{name: "silent"},
	{"slow headers", func(h string) string { return "GET /api/v1/tools HTTP/1.1\r\n" + h + "X: " }, "x", false},
	{"slow body", func(h string) string {
		return "POST /api/v1/runs HTTP/1.1\r\n" + h + "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
	}, " ", false},
	{"unread answers", func(h string) string { // to requests that are read one by one
		return strings.Repeat("GET /api/v1/openapi.yaml HTTP/1.1\r\n"+h+"X: "+strings.Repeat("x", 4096)+"\r\n\r\n", 300)
	}, " ", false},
	{"pipelined", func(h string) string {
		return strings.Repeat("GET /api/v1/openapi.yaml HTTP/1.1\r\n"+h+"\r\nGET /api/v1/tools HTTP/1.1\r\n"+h+"\r\n", 500)
	}, " ", false},
	{"half-closed", func(h string) string { return strings.Repeat("GET /api/v1/openapi.yaml HTTP/1.1\r\n"+h+"\r\n", 50) }, "", true},
}

// siegeTime is how long a hostile client keeps a connection that the host does not close.
const siegeTime = 10 * time.Second

// besiege keeps hostile connections open until ctx ends: of each kind that it is told,
// which is twice the index in siegeKinds, and one more with a key. It returns how many there
// were of each kind.
func (n crew) besiege(ctx context.Context) map[int]int {
	var all, first sync.WaitGroup
	var mu sync.Mutex
	opened := map[int]int{}
	first.Add(n.Hostile)
	for i := range n.Hostile {
		kind, headers := n.Kinds[i%len(n.Kinds)], "Host: h\r\n"
		if kind%2 == 1 {
			headers += "Authorization: Bearer " + n.Keys[i%len(n.Keys)] + "\r\n"
		}
		all.Go(func() {
			begun := sync.OnceFunc(first.Done)
			for ctx.Err() == nil {
				err := n.assail(ctx, siegeKinds[kind/2], headers, begun)
				mu.Lock()
				if err == nil {
					opened[kind]++
				}
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
			begun()
		})
	}
	first.Wait()
	fmt.Println(true)
	all.Wait()
	return opened
}

// assail opens one hostile connection and returns when the host has closed it. The error
// is why there was none.
func (n crew) assail(ctx context.Context, does siegeKind, headers string, begun func()) error {
	c, err := (&net.Dialer{Timeout: siegeTime}).DialContext(ctx, "tcp", strings.TrimPrefix(n.URL, "http://"))
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	_ = c.(*net.TCPConn).SetReadBuffer(4096)
	_ = c.SetReadDeadline(time.Now().Add(siegeTime))
	if does.begin == nil {
		begun()
		_, _ = c.Read(make([]byte, 1))
		return nil
	}
	err = send(c, does.begin(headers))
	begun()
	if does.closes {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	for ends := time.Now().Add(siegeTime); err == nil && time.Now().Before(ends) && ctx.Err() == nil; {
		time.Sleep(100 * time.Millisecond)
		if !does.closes {
			err = send(c, does.each)
		}
	}
	return nil
}

// send writes as much as the host takes now.
func send(c net.Conn, text string) error {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := io.WriteString(c, text)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// TestServeHostileConnections has more hostile connections than the host takes,
// of each kind alone and of all kinds, with and without keys, and requests of another
// tenant beside them, which are calls of a tool in the nightly run. None of these fails;
// each takes less than a second where the figures decide.
func TestServeHostileConnections(t *testing.T) {
	places, calls := 60, 4
	c := newCluster(t, closedPolicy, append(crowdOf(neighbours), "good")...)
	ask := func() (int, []byte, error) { return c.ask("good", "GET", "/api/v1/tools", "", nil) }
	full := os.Getenv("STARLING_NIGHTLY") != ""
	if full {
		places, calls = 4096, 100
		ask = func() (int, []byte, error) { return c.call("good", "echo", map[string]int{"x": 1}) }
	}
	c.askFreely("good")
	c.start(fmt.Sprintf("connections: {max: %d}\n", places), nil)
	if full {
		c.upload("good")
	}
	c.client.Timeout = 10 * time.Second
	rounds := map[string][]int{}
	for i, kind := range siegeKinds {
		rounds[kind.name] = []int{2 * i}
		rounds["all kinds"] = append(rounds["all kinds"], 2*i)
		if kind.begin != nil {
			rounds[kind.name+" with a key"] = []int{2*i + 1}
			rounds["all kinds"] = append(rounds["all kinds"], 2*i+1)
		}
	}
	for name, kinds := range rounds {
		t.Run(name, func(t *testing.T) {
			stop := c.let(t, crew{Hostile: places + places/8, Kinds: kinds})
			var slowest [2]time.Duration
			for i := range calls {
				if i%2 == 0 {
					c.client.CloseIdleConnections() // the next call needs a new connection
				}
				began := time.Now()
				if status, text, err := ask(); err != nil || status != http.StatusOK {
					t.Errorf("call %d: %d %s %v", i, status, text, err)
				}
				took := time.Since(began)
				slowest[i%2] = max(slowest[i%2], took)
				if fairtest.Gate() && took > time.Second {
					t.Errorf("call %d took %v", i, took)
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Logf("slowest call: %v on a new connection, %v on one that was open; hostile connections: %v", slowest[0], slowest[1], stop())
		})
	}
	if t.Failed() {
		t.Log(tail(c.stderr.String(), 2000))
	}
}
