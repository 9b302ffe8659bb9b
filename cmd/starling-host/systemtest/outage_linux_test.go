package systemtest

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

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/wasmtest"
)

// outage is a time without a database. It begins right after a message, whose answer is lost.
type outage struct {
	after   int  // messages until then
	writes  bool // of the connection that writes the events of runs, and not of all
	refused int  // attempts to connect that break, or full
}

// full is an outage that lasts until [breaker.restore]. The server refuses connections because
// its disk is full. No statement is tried again after that, and a write stops the log.
const full = -1

// outages are those that a test makes one after the other.
func outages(t *testing.T) []outage {
	skipShort(t)
	most, step := 24, 4
	if os.Getenv("STARLING_NIGHTLY") != "" {
		most, step = 60, 1
	}
	all := []outage{{1, true, full}, {1, true, 3}, {2, true, full}}
	for n := 1; n <= most; n += step {
		all = append(all, outage{n, false, full}, outage{n + 1, false, 3})
	}
	return all
}

// breaker stands before a PostgreSQL server.
type breaker struct {
	address string // of the database through the breaker

	mu    sync.Mutex
	next  outage
	begun bool // the outage has begun
	down  bool // and is not over
	open  map[net.Conn]bool
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
			go b.serve(client, server)
		}
	}()
	return b
}

// serve passes the messages of a connection on, and the answers back.
func (b *breaker) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("unix", address)
	if err != nil {
		return
	}
	defer server.Close()
	if !b.admit(client, server) {
		return
	}
	go func() {
		_, _ = io.Copy(client, server)
		client.Close()
	}()
	writes, buffer := false, make([]byte, 1<<20)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		writes = writes || bytes.Contains(buffer[:n], []byte("set_config('statement_timeout', ")) // with which it alone begins
		b.count(server, writes)
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// admit refuses a connection while the server is away.
func (b *breaker) admit(client, server net.Conn) bool {
	b.mu.Lock()
	down, o := b.down, &b.next
	if !down {
		b.open[client], b.open[server] = true, true
	} else if o.refused != full {
		o.refused--
		b.down = o.refused > 0
	}
	isFull := o.refused == full
	b.mu.Unlock()
	if down && isFull {
		backend := pgproto3.NewBackend(client, client)
		if _, err := backend.ReceiveStartupMessage(); err == nil {
			backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "53100", Message: "No space left on device"})
			_ = backend.Flush()
		}
	}
	return !down
}

// count counts a message to the server. If it is the one, it breaks all connections but that
// which brings it there.
func (b *breaker) count(server net.Conn, writes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next.after == 0 || b.next.writes && !writes {
		return
	}
	if b.next.after--; b.next.after > 0 {
		return
	}
	for c := range b.open {
		if c != server {
			c.Close()
		}
	}
	clear(b.open)
	b.begun, b.down = true, true
}

// schedule sets the next outage.
func (b *breaker) schedule(o outage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next, b.begun = o, false
}

// hasBegun reports whether the outage that was scheduled has begun.
func (b *breaker) hasBegun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// restore ends an outage.
func (b *breaker) restore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = false
}

// hasStopped is in the messages of a process whose log has stopped.
const hasStopped = "the log has stopped"

// TestServePostgresOutage takes the database away from a host after each of some numbers of
// messages. It gives the database back once the host says that it is not ready, refuses
// runs and cannot replay one. The same process has to become ready again, and each run that a
// client asks for until it is accepted is made once, and is valid.
func TestServePostgresOutage(t *testing.T) {
	all := outages(t)
	t.Parallel()
	database := pgtest.Database(t)
	c := newClusterIn(t, t.TempDir(), database, closedPolicy, "alice")
	c.askFreely("alice")
	b := newBreaker(t, database)
	c.database = b.address
	c.tool, c.module = "one", wasmtest.Saying("one", "1")
	s := c.start("", nil)
	s.upload("alice")
	order := []byte(`{"tool":"one","input":{}}`)
	runs := map[string]string{} // ids by the keys of their requests; empty until accepted
	// completed takes the run of a key one request further.
	completed := func(key string) bool {
		t.Helper()
		method, path, body := "POST", "/runs", order
		if id := runs[key]; id != "" {
			method, path, body = "GET", "/runs/"+id, nil
		}
		status, doc, err := s.document(key, method, path, body)
		switch {
		case err == nil && status < 400:
			runs[key], _ = doc["run_id"].(string)
		case gone(err), err == nil && status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests:
			t.Fatalf("%s: %s %s: %d %v %v\n%s", key, method, path, status, doc, err, &s.stderr)
		}
		if doc["status"] == "failed" || doc["status"] == "cancelled" {
			t.Fatalf("%s: the run has %v", key, doc)
		}
		return doc["status"] == "completed"
	}
	replay := func(id string) (int, map[string]any) {
		t.Helper()
		status, doc, err := s.document("", "POST", "/runs/"+id+"/replay", []byte("{}"))
		if err != nil {
			t.Fatalf("replay: %v\n%s", err, &s.stderr)
		}
		return status, doc
	}
	ready := func() bool {
		status, _, err := s.document("", "GET", "/readyz", nil)
		return err == nil && status == http.StatusOK
	}
	until(t, "the first run", &s.stderr, func() bool { return completed("first") })
	for i, o := range all {
		var open []string
		b.schedule(o)
		until(t, "no outage", &s.stderr, func() bool {
			key := fmt.Sprintf("run-%d-%d", i, len(open))
			open = append(open, key)
			until(t, key, &s.stderr, func() bool { return completed(key) || b.hasBegun() })
			return b.hasBegun()
		})
		if o.refused == full {
			until(t, "the host remains ready", &s.stderr, func() bool { return !ready() })
			key := fmt.Sprintf("refused-%d", i)
			if completed(key); runs[key] != "" {
				t.Errorf("outage %d: a run was accepted", i)
			}
			open = append(open, key)
			if status, doc := replay(runs["first"]); status != http.StatusServiceUnavailable {
				t.Errorf("outage %d: a replay: %d %v", i, status, doc)
			}
			b.restore()
		}
		for _, key := range open {
			until(t, fmt.Sprintf("outage %d is over, and run %s %q does not end", i, key, runs[key]), &s.stderr, func() bool { return completed(key) })
		}
		until(t, "the host is not ready again", &s.stderr, ready)
	}
	if status, doc := replay(runs["first"]); status != http.StatusOK || doc["verdict"] != "identical" {
		t.Errorf("a replay: %d %v", status, doc)
	}
	s.kill()
	if !strings.Contains(s.stderr.String(), hasStopped) {
		t.Errorf("in no outage the log has stopped\n%s", tail(s.stderr.String(), 4000))
	}
	t.Logf("%d runs", len(runs))
	c.database = database
	c.proved(len(runs))
	if listed := c.command("runs", database, "-o", "json", "--limit", "1000"); strings.Count(listed, `"run_id"`) != len(runs) {
		t.Errorf("of %d runs the database has\n%s", len(runs), tail(listed, 2000))
	}
}

// TestMCPPostgresOutage does the same to "mcp" on standard input and output. A call that is
// answered with a result is a recorded run.
func TestMCPPostgresOutage(t *testing.T) {
	all := outages(t)
	t.Parallel()
	database := pgtest.Database(t)
	c := newClusterIn(t, t.TempDir(), database, closedPolicy)
	b := newBreaker(t, database)
	c.must(os.WriteFile(c.path("one.wasm"), wasmtest.Saying("one", "1"), 0o600))
	var stderr lockedBuffer
	cmd := exec.Command("starling-host", "mcp", "--db", b.address, "--tool", "one.wasm", "--log")
	cmd.Dir, cmd.Stderr = c.dir, &stderr
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
			t.Fatalf("%s: %v\n%s", name, err, &stderr)
		}
		text, _ := json.Marshal(result)
		return string(text), !result.IsError
	}
	var ids []string
	last := ""
	made := func() (ok bool) {
		t.Helper()
		if last, ok = call("one", map[string]any{}); ok {
			_, id, _ := strings.Cut(last, `"starling/run_id":"`)
			id, _, _ = strings.Cut(id, `"`)
			ids = append(ids, id)
		}
		return ok
	}
	valid := func() (ok bool) {
		t.Helper()
		last, ok = call("validate_run", map[string]any{"run_id": ids[0]})
		if ok && !strings.Contains(last, `"ok":true`) || strings.Contains(last, "corrupt") {
			t.Errorf("a check with the database away: %s", last)
		}
		return ok
	}
	stopped := 0
	until(t, "the first call", &stderr, made)
	for i, o := range all {
		b.schedule(o)
		until(t, "no outage", &stderr, func() bool {
			if !made() && strings.Contains(last, hasStopped) {
				stopped++
			}
			return b.hasBegun()
		})
		if o.refused == full {
			until(t, "calls go on with the database away", &stderr, func() bool { return !made() })
			if valid() {
				t.Errorf("outage %d: a run was checked with the database away: %s", i, last)
			}
			b.restore()
		}
		until(t, fmt.Sprintf("outage %d is over, and no call succeeds", i), &stderr, made)
		until(t, fmt.Sprintf("outage %d is over, and no run can be checked", i), &stderr, valid)
	}
	if err := session.Close(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
	if stopped == 0 {
		t.Errorf("in no outage the log has stopped\n%s", &stderr)
	}
	t.Logf("%d calls were answered with a result", len(ids))
	for _, command := range []string{"validate", "replay --all"} {
		out, err := exec.Command("starling-host", append(strings.Fields(command), database)...).CombinedOutput()
		if err != nil && bytes.Contains(out, []byte("invalid")) || !bytes.Contains(out, []byte("runs: ")) {
			t.Errorf("%s: %v\n%s", command, err, tail(string(out), 2000))
		}
	}
}
