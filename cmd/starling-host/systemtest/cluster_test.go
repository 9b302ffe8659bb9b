package systemtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/cmd/starling-host/scripttest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/tenant"
)

func TestMain(m *testing.M) {
	beNeighbours()
	beMirrored()
	scripttest.Run(m)
}

// awaitTime is how long a test waits for an event that does not come when the program has failed.
const awaitTime = time.Minute

// compileTime is how long an upload may take: a host compiles modules when nobody else
// computes, so beside other load that takes as long as the load does. After four minutes
// it gives up itself.
const compileTime = 5 * time.Minute

// closedPolicy is a policy that allows no network.
const closedPolicy = "version: \"1.0\"\n"

// cluster is a database with tenants, and the hosts that serve them. Its files are in a folder.
type cluster struct {
	*host    // the one that was started last
	t        *testing.T
	dir      string
	database string // as hosts open it: a name in dir, or the address of a server
	master   tenant.MasterKey
	keys     map[string]string // by tenant
	env      []string          // of hosts and commands, beside this process's
	listen   string            // of the next host
	tool     string            // of testdata/tools, which upload gives to tenants
	module   []byte            // of the tool, once it is built
}

// host is a host in a process of its own.
type host struct {
	cluster *cluster
	cmd     *exec.Cmd
	url     string
	stderr  lockedBuffer
	client  *http.Client
}

// newCluster makes a database in a file of a new folder, with tenants that have this policy, as has the operator.
func newCluster(t *testing.T, policy string, tenants ...string) *cluster {
	t.Helper()
	skipShort(t)
	return newClusterIn(t, t.TempDir(), "host.db", policy, tenants...)
}

func newClusterIn(t *testing.T, dir, database, policy string, tenants ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: dir, database: database, keys: map[string]string{}, listen: "127.0.0.1:0", tool: "rogue"}
	c.must(os.WriteFile(c.path("policy.yaml"), []byte(policy), 0o600))
	var err error
	c.master, err = tenant.CreateMasterKey(c.path("host.key"))
	c.must(err)
	if store.OnServer(database) {
		c.command("migrate", database)
	}
	c.withStore(func(s *tenant.Store) {
		for _, id := range tenants {
			_, err := s.Create(t.Context(), tenant.Tenant{ID: id})
			c.must(err)
			_, err = s.SetPolicy(t.Context(), id, policy, true)
			c.must(err)
			_, key, err := s.CreateKey(t.Context(), id, "")
			c.must(err)
			c.keys[id] = key.Reveal()
		}
	})
	return c
}

// askFreely lets tenants send as many requests as they like, and nothing else.
func (c *cluster) askFreely(tenants ...string) {
	c.t.Helper()
	c.withStore(func(s *tenant.Store) {
		for _, who := range tenants {
			c.must(s.Change(c.t.Context(), who, func(t *tenant.Tenant) { t.Limits = tenant.Limits{RequestsPerSecond: -1} }))
		}
	})
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// where returns the path of the database, or its address.
func (c *cluster) where() string {
	if store.OnServer(c.database) {
		return c.database
	}
	return c.path(c.database)
}

// withStore opens the tenants in the database, which hosts may have open, too.
func (c *cluster) withStore(use func(*tenant.Store)) {
	c.t.Helper()
	log, err := store.Open(c.t.Context(), c.where(), store.Options{})
	c.must(err)
	defer log.Close()
	s, err := tenant.Open(c.t.Context(), log, tenant.Options{Masters: []tenant.MasterKey{c.master}})
	c.must(err)
	use(s)
}

// command runs a command in the folder, which has to succeed, and returns what it prints.
func (c *cluster) command(args ...string) string {
	c.t.Helper()
	cmd := exec.Command("starling-host", args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Errorf("%s: %v\n%s", args, err, tail(string(out), 3000))
	}
	return string(out)
}

// proved validates and replays the database, which must hold at least so many runs.
func (c *cluster) proved(least int) {
	c.t.Helper()
	for verb, want := range map[string]string{
		"validate": `(?m)^(\d+) runs?: (\d+) valid, 0 invalid$`,
		"replay":   `(?m)^(\d+) runs?: (\d+) identical$`,
	} {
		args := []string{verb, c.database, "--key-file", "host.key"}
		if verb == "replay" {
			args = append(args, "--all")
		}
		out := c.command(args...)
		found := regexp.MustCompile(want).FindStringSubmatch(out)
		if found == nil || found[1] != found[2] {
			c.t.Errorf("%s: %s", verb, tail(out, 2000))
			continue
		}
		var n int
		if fmt.Sscan(found[1], &n); n < least {
			c.t.Errorf("%s: the database holds %d runs, and %d were promised", verb, n, least)
		}
	}
}

// start starts a host and waits until it serves. more is added to its file. wrap, if it is not nil, changes
// the command.
func (c *cluster) start(more string, wrap func([]string) []string) *host {
	c.t.Helper()
	return c.startWith("listen: \""+c.listen+"\"\ndatabase: \""+c.database+"\"\nkey_file: host.key\npolicy: policy.yaml\n"+more, wrap)
}

// startWith is start with a file of its own.
func (c *cluster) startWith(file string, wrap func([]string) []string) *host {
	c.t.Helper()
	c.must(os.WriteFile(c.path("host.yaml"), []byte(file), 0o600))
	args := []string{"starling-host", "serve", "--config", "host.yaml"}
	if wrap != nil {
		args = wrap(args)
	}
	h := &host{cluster: c, cmd: exec.Command(args[0], args[1:]...)}
	c.host = h
	h.cmd.Dir, h.cmd.Env, h.cmd.Stderr = c.dir, append(os.Environ(), c.env...), &h.stderr
	out, err := h.cmd.StdoutPipe()
	c.must(err)
	c.must(h.cmd.Start())
	c.t.Cleanup(h.kill)
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		c.t.Fatalf("the host did not start: %v\n%s", err, &h.stderr)
	}
	go io.Copy(io.Discard, lines)
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	h.client = &http.Client{Timeout: compileTime, Transport: transport}
	h.url = strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(first, "API")), "/api/v1")
	if socket, ok := strings.CutPrefix(c.listen, "unix:"); ok {
		h.url = "http://host"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return h
}

// kill ends the process as a crash does.
func (h *host) kill() {
	h.cmd.Process.Kill()
	h.cmd.Wait()
}

// stop ends the process as an operator does.
func (h *host) stop() {
	h.cluster.t.Helper()
	h.cmd.Process.Signal(syscall.SIGTERM)
	if err := h.cmd.Wait(); err != nil {
		h.cluster.t.Errorf("the host ended with %v\n%s", err, tail(h.stderr.String(), 2000))
	}
}

// ask makes a request as a tenant and returns all of the answer's body.
func (h *host) ask(who, method, path, contentType string, body []byte) (status int, text []byte, err error) {
	return h.askWith(h.cluster.t.Context(), who, method, path, body, "Content-Type", contentType)
}

// askWith is ask with a context, and with headers in pairs of a name and a value. Those without a value are
// left out.
func (h *host) askWith(ctx context.Context, who, method, path string, body []byte, headers ...string) (status int, text []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, h.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+h.cluster.keys[who])
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	answer, err := h.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// document makes a request of the API as the tenant alice, with an idempotency key if it is not empty, and
// returns the document of the answer. The host has less time than for an upload.
func (h *host) document(key, method, path string, body []byte) (status int, doc map[string]any, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	contentType := ""
	if len(body) > 0 {
		contentType = "application/json"
	}
	status, text, err := h.askWith(ctx, "alice", method, "/api/v1"+path, body, "Content-Type", contentType, "Idempotency-Key", key)
	if err != nil {
		return status, nil, err
	}
	return status, doc, json.Unmarshal(text, &doc)
}

// upload gives tenants the tool.
func (h *host) upload(tenants ...string) {
	c := h.cluster
	c.t.Helper()
	if c.module == nil {
		m, err := guest.Find(c.t.Context(), filepath.Join("..", "testdata", "tools", c.tool))
		c.must(err)
		c.module = m.Wasm
	}
	for _, who := range tenants {
		if status, text, err := h.ask(who, "POST", "/api/v1/modules?name="+c.tool, "application/wasm", c.module); err != nil || status != http.StatusCreated {
			c.t.Fatalf("%s: %d %s %v\n%s", who, status, text, err, &h.stderr)
		}
	}
}

// call calls a tool of a tenant and waits for the answer.
func (h *host) call(who, tool string, input any) (status int, text []byte, err error) {
	body, err := json.Marshal(map[string]any{"input": input})
	if err != nil {
		return 0, nil, err
	}
	return h.ask(who, "POST", "/api/v1/tools/"+tool+"/call", "application/json", body)
}

// list returns a page of alice's runs. A host that has too much to do, or has just got its
// database back, is asked again, also if it has left a request without an answer.
func (h *host) list(query string) map[string]any {
	t := h.cluster.t
	t.Helper()
	for deadline := time.Now().Add(awaitTime); ; time.Sleep(20 * time.Millisecond) {
		status, doc, err := h.document("", "GET", "/runs?"+query, nil)
		if err == nil && status == http.StatusOK {
			return doc
		}
		later := err != nil && !gone(err) || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
		if !later || time.Now().After(deadline) {
			t.Fatalf("%d, %v, %v\n%s", status, doc, err, &h.stderr)
		}
	}
}

// finish waits until no run of alice is in progress.
func (h *host) finish() {
	h.cluster.t.Helper()
	deadline := time.Now().Add(3 * awaitTime)
	for len(h.list("status=open&limit=1")["items"].([]any)) > 0 {
		if time.Now().After(deadline) {
			h.cluster.t.Fatalf("runs are still in progress\n%s", &h.stderr)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// until repeats a step until it succeeds, and fails the test if it does not within awaitTime.
func until(t *testing.T, what string, stderr fmt.Stringer, step func() bool) {
	t.Helper()
	for deadline := time.Now().Add(awaitTime); !step(); time.Sleep(5 * time.Millisecond) {
		if t.Failed() || time.Now().After(deadline) {
			t.Fatalf("%s\n%s", what, tail(stderr.String(), 4000))
		}
	}
}

// skipShort skips a test that starts a host or builds tools, which takes seconds.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
}

// crowdOf names so many tenants.
func crowdOf(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("bad%d", i))
	}
	return names
}

func tail(s string, n int) string { return s[max(len(s)-n, 0):] }

// lockedBuffer is a buffer that several goroutines use.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
