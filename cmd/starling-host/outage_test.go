package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/pgtest"
)

// outages are the messages to the server after which it goes away: for so long that the
// command must say so after the first one, and else for three attempts to connect.
func outages(t *testing.T) []int {
	if testing.Short() {
		t.Skip("SKIPPED: takes a database away; run without -short")
	}
	if os.Getenv("STARLING_NIGHTLY") == "" {
		return []int{5, 1, 2, 3, 4, 6, 8, 10, 13, 17, 22, 30}
	}
	spread := []int{5}
	for n := 1; n <= 60; n++ {
		spread = append(spread, n)
	}
	return spread
}

// breaker stands before a PostgreSQL server. It takes the server away right after a message
// that it has passed on, so that the answer is lost, and gives it back after some attempts to
// connect, or when it is told to.
type breaker struct {
	address string // of the database through the breaker

	mu    sync.Mutex
	after int // messages until the server goes away; 0 for never
	most  int // attempts to connect for which it is away
	away  int // those that are left; 0 if it is there
	open  map[net.Conn]bool
	back  chan struct{} // closed when it is back
}

func newBreaker(t *testing.T, database string) *breaker {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	const name = ".s.PGSQL.5432"
	server, dir := filepath.Join(u.Query().Get("host"), name), t.TempDir()
	u.RawQuery = url.Values{"host": {dir}}.Encode()
	l, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b := &breaker{address: u.String(), open: map[net.Conn]bool{}}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if conn, err := net.Dial("unix", server); err != nil || !b.admit(client, conn) {
				client.Close()
			} else {
				go b.pass(client, conn)
			}
		}
	}()
	return b
}

// admit takes note of a connection, unless the server is away.
func (b *breaker) admit(client, server net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away > 0 {
		server.Close()
		if b.away--; b.away == 0 {
			close(b.back)
		}
		return false
	}
	b.open[client], b.open[server] = true, true
	return true
}

// pass passes messages on, and what the server answers.
func (b *breaker) pass(client, server net.Conn) {
	go func() {
		_, _ = io.Copy(client, server)
		client.Close()
	}()
	defer server.Close()
	buffer := make([]byte, 1<<20)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
		b.mu.Lock()
		if b.after > 0 {
			if b.after--; b.after == 0 {
				for c := range b.open {
					c.Close()
				}
				clear(b.open)
				b.away = b.most
			}
		}
		b.mu.Unlock()
	}
}

// breakAfter takes the server away after so many messages, for at most so many attempts to
// connect. The channel is closed when it is back.
func (b *breaker) breakAfter(n, most int) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.after, b.most, b.back = n, most, make(chan struct{})
	return b.back
}

// restore gives the server back with the next attempt to connect.
func (b *breaker) restore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = min(b.away, 1)
}

// migrated returns a breaker before an empty database with all tables, and the address of
// the database itself.
func migrated(t *testing.T) (b *breaker, database string) {
	t.Helper()
	database = pgtest.Database(t)
	if out, err := exec.Command("starling-host", "migrate", database).CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, out)
	}
	return newBreaker(t, database), database
}

// TestServeOutlivesAnOutageAtEveryMessage takes the database away from a host after the n-th
// message, and gives it back. Whatever the client of a run was told, it asks again with the
// same key: the same process makes the run, and no run is made twice or found to be wrong.
func TestServeOutlivesAnOutageAtEveryMessage(t *testing.T) {
	spread := outages(t)
	t.Parallel()
	b, database := migrated(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: \"1.0\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServing(t, dir, b.address, "host", nil)
	s.upload(t, commandModule("1", 0))
	_, tools, err := s.ask("GET", "/tools", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	tool := tools["items"].([]any)[0].(map[string]any)["name"]
	runs, last := map[string]bool{}, ""
	for round, n := range append([]int{0}, spread...) { // 0 breaks nothing
		most := 3
		if round == 1 {
			most = 1 << 30
		}
		back, wasBack := b.breakAfter(n, most), n == 0
		for deadline, i := time.Now().Add(2*awaitTime), 0; !wasBack || i == 0; i++ {
			key := fmt.Sprintf("message-%d-%d", n, i)
			for id := ""; ; {
				method, path, body := "POST", "/runs", fmt.Appendf(nil, `{"tool":%q,"input":{}}`, tool)
				if id != "" {
					method, path, body = "GET", "/runs/"+id, nil
				}
				status, doc, err := s.askOnce(map[bool]string{true: key}[id == ""], method, path, "application/json", body)
				if err == nil && status == http.StatusNotFound || err == nil && status < 500 && status >= 400 && status != http.StatusTooManyRequests {
					t.Fatalf("message %d: %s %s: %d %v", n, method, path, status, doc)
				}
				if err == nil && status < 400 {
					if id, _ = doc["run_id"].(string); doc["status"] == "completed" {
						runs[id], last = true, id
						break
					}
					if doc["status"] == "failed" || doc["status"] == "cancelled" {
						t.Fatalf("message %d: the run has %v", n, doc)
					}
				}
				if status >= 500 || err != nil && !gone(err) {
					status, doc, _ := s.ask("POST", "/runs/"+last+"/replay", "application/json", []byte("{}"))
					if status == http.StatusOK && doc["verdict"] != "identical" || strings.Contains(fmt.Sprint(doc), "corrupt") {
						t.Errorf("message %d: a replay with the database away: %d %v", n, status, doc)
					}
					b.restore()
				}
				if gone(err) || time.Now().After(deadline) {
					t.Fatalf("message %d: %d %v %v\n%s", n, status, doc, err, &s.stderr)
				}
				time.Sleep(5 * time.Millisecond)
			}
			select {
			case <-back:
				wasBack = true
			default:
			}
		}
	}
	if status, doc, err := s.ask("POST", "/runs/"+last+"/replay", "application/json", []byte("{}")); err != nil || status != http.StatusOK || doc["verdict"] != "identical" {
		t.Errorf("run %s: %d %v %v", last, status, doc, err)
	}
	s.stop(t)
	t.Logf("%d runs", len(runs))
	proved(t, dir, database, len(runs))
	var listed bytes.Buffer
	list := exec.Command("starling-host", "runs", database, "-o", "json", "--limit", "1000")
	list.Stdout = &listed
	if err := list.Run(); err != nil || strings.Count(listed.String(), `"run_id"`) != len(runs) {
		t.Errorf("%v: of %d runs the database has\n%s", err, len(runs), tail(listed.String(), 2000))
	}
}

// TestMCPOutlivesAnOutageAtEveryMessage does the same to "mcp" on standard input and output:
// a call that is answered with a result is a recorded run, any other answer says that the call
// was not made, and the same process serves when the database is back.
func TestMCPOutlivesAnOutageAtEveryMessage(t *testing.T) {
	spread := outages(t)
	t.Parallel()
	b, database := migrated(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "one.wasm"), commandModule("1", 0), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr lockedBuffer
	cmd := exec.Command("starling-host", "mcp", "--db", b.address, "--tool", "one.wasm", "--log")
	cmd.Dir, cmd.Stderr = dir, &stderr
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	defer session.Close()
	call := func(name string, arguments any) (string, bool) {
		t.Helper()
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
		if err != nil {
			return err.Error(), false
		}
		text, _ := json.Marshal(result)
		return string(text), !result.IsError
	}
	answered, last := 0, ""
	for round, n := range append([]int{0}, spread...) { // 0 breaks nothing
		most := 3
		if round == 1 {
			most = 1 << 30
		}
		back, wasBack := b.breakAfter(n, most), n == 0
		for deadline, made := time.Now().Add(2*awaitTime), false; !wasBack || !made; {
			text, ok := call("one", map[string]any{})
			if made = ok; ok {
				answered++
				_, id, _ := strings.Cut(text, `"starling/run_id":"`)
				last, _, _ = strings.Cut(id, `"`)
			}
			if strings.Contains(text, "client is closing") || time.Now().After(deadline) {
				t.Fatalf("message %d: %s\n%s", n, text, &stderr)
			}
			text, ok = call("validate_run", map[string]any{"run_id": last})
			if ok && !strings.Contains(text, `"ok":true`) || strings.Contains(text, "corrupt") {
				t.Errorf("message %d: a check with the database away: %s", n, text)
			}
			if !ok {
				b.restore()
			}
			select {
			case <-back:
				wasBack = true
			default:
				time.Sleep(5 * time.Millisecond)
			}
		}
	}
	if err := session.Close(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
	t.Logf("%d calls were answered with a result", answered)
	for _, command := range []string{"validate", "replay --all"} {
		out, err := exec.Command("starling-host", append(strings.Fields(command), database)...).CombinedOutput()
		if err != nil && bytes.Contains(out, []byte("invalid")) || !bytes.Contains(out, []byte("runs: ")) {
			t.Errorf("%s: %v\n%s", command, err, tail(string(out), 2000))
		}
	}
}
