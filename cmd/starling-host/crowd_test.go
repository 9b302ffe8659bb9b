package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/tenant"
)

// crowd is a host in a process of its own, and tenants with a policy and, once it is
// uploaded, the module testdata/tools/rogue each.
type crowd struct {
	t        *testing.T
	dir      string
	module   []byte
	master   tenant.MasterKey
	database string            // the default is a file in dir
	keys     map[string]string // by tenant
	env      []string          // of the host and of commands, beside this process's
	cmd      *exec.Cmd
	url      string
	stderr   lockedBuffer
	client   *http.Client
}

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

// compileTime is how long an upload may take: a host compiles modules when nobody else
// computes, so beside other load that takes as long as the load does. After four minutes
// it gives up itself.
const compileTime = 5 * time.Minute

// askFreely lets a tenant send as many requests as it likes, and nothing else.
func askFreely(t *tenant.Tenant) { t.Limits = tenant.Limits{RequestsPerSecond: -1} }

// skipShort skips a test that starts a host or builds tools, which takes seconds.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
}

// newCrowd makes the tenants, whose policies are that text, as is the operator's.
func newCrowd(t *testing.T, policy string, tenants ...string) *crowd {
	t.Helper()
	skipShort(t)
	return newCrowdIn(t, t.TempDir(), policy, tenants...)
}

func newCrowdIn(t *testing.T, dir, policy string, tenants ...string) *crowd {
	t.Helper()
	c := &crowd{t: t, dir: dir, keys: map[string]string{}}
	c.client = &http.Client{Timeout: compileTime, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	must := c.must
	must(os.WriteFile(c.path("policy.yaml"), []byte(policy), 0o600))
	var err error
	c.master, err = tenant.CreateMasterKey(c.path("host.key"))
	must(err)
	c.withStore(func(s *tenant.Store) {
		for _, id := range tenants {
			_, err := s.Create(t.Context(), tenant.Tenant{ID: id})
			must(err)
			_, err = s.SetPolicy(t.Context(), id, policy, true)
			must(err)
			_, key, err := s.CreateKey(t.Context(), id, "")
			must(err)
			c.keys[id] = key.Reveal()
		}
	})
	return c
}

func (c *crowd) path(name string) string { return filepath.Join(c.dir, name) }

func (c *crowd) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// withStore opens the tenants in the database, which a host may have open, too.
func (c *crowd) withStore(use func(*tenant.Store)) {
	c.t.Helper()
	log, err := store.OpenFile(c.t.Context(), c.path("host.db"), store.FileOptions{})
	c.must(err)
	defer log.Close()
	s, err := tenant.Open(c.t.Context(), log, tenant.Options{Masters: []tenant.MasterKey{c.master}})
	c.must(err)
	use(s)
}

// start starts the host. more is added to its file. wrap, if it is not nil, changes
// the command.
func (c *crowd) start(more string, wrap func([]string) []string) {
	c.t.Helper()
	file := "listen: 127.0.0.1:0\ndatabase: " + cmp.Or(c.database, "host.db") + "\nkey_file: host.key\npolicy: policy.yaml\n" + more
	c.must(os.WriteFile(c.path("host.yaml"), []byte(file), 0o600))
	args := []string{"starling-host", "serve", "--config", "host.yaml"}
	if wrap != nil {
		args = wrap(args)
	}
	c.cmd = exec.Command(args[0], args[1:]...)
	c.cmd.Dir, c.cmd.Env, c.cmd.Stderr = c.dir, append(os.Environ(), c.env...), &c.stderr
	out, err := c.cmd.StdoutPipe()
	c.must(err)
	c.must(c.cmd.Start())
	c.t.Cleanup(func() { c.cmd.Process.Kill(); c.cmd.Wait() })
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		c.t.Fatalf("the host did not start: %v\n%s", err, c.stderr.String())
	}
	go io.Copy(io.Discard, lines)
	c.url = strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(first, "API")), "/api/v1")
}

// ask makes a request as a tenant and returns all of the answer's body.
func (c *crowd) ask(who, method, path, contentType string, body []byte) (status int, text []byte, err error) {
	return c.askWith(c.t.Context(), who, method, path, contentType, body)
}

func (c *crowd) askWith(ctx context.Context, who, method, path, contentType string, body []byte) (status int, text []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.keys[who])
	if len(body) > 0 {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// upload gives tenants the module.
func (c *crowd) upload(tenants ...string) {
	c.t.Helper()
	if c.module == nil {
		m, err := guest.Find(c.t.Context(), filepath.Join("testdata", "tools", "rogue"))
		c.must(err)
		c.module = m.Wasm
	}
	for _, who := range tenants {
		if status, text, err := c.ask(who, "POST", "/api/v1/modules?name=rogue", "application/wasm", c.module); err != nil || status != http.StatusCreated {
			c.t.Fatalf("%s: %d %s %v\n%s", who, status, text, err, c.stderr.String())
		}
	}
}

// call calls a tool of a tenant and waits for the answer.
func (c *crowd) call(who, tool string, input any) (status int, text []byte, err error) {
	body, err := json.Marshal(map[string]any{"input": input})
	if err != nil {
		return 0, nil, err
	}
	return c.ask(who, "POST", "/api/v1/tools/"+tool+"/call", "application/json", body)
}

// crowdOf names so many tenants.
func crowdOf(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("bad%d", i))
	}
	return names
}
