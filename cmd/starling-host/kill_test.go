package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/host/registry"
)

// kills is how often TestKilledHosts kills a host. The variable STARLING_KILLS asks
// for more.
const kills = 5

// TestKilledHosts kills a host again and again while clients have runs made. Every
// run that was acknowledged ends, a request that is sent again with its key makes
// no second run, and all that is recorded validates and replays.
func TestKilledHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for a while")
	}
	rounds := kills
	if n, err := strconv.Atoi(os.Getenv("STARLING_KILLS")); err == nil {
		rounds = n
	}
	h := newKilledHost(t)
	h.start()
	h.upload("draw")
	for range rounds {
		h.load(4, 5+rand.IntN(30))
		h.kill()
		h.start()
	}
	for _, key := range h.keys { // those without an answer, too: nobody knows whether they had arrived
		if _, err := h.ask(key); err != nil {
			t.Fatal(err)
		}
	}
	for key, id := range h.acknowledged {
		if got := h.get("/runs/" + id + "/stream"); !strings.Contains(got, `"status":"completed"`) {
			t.Errorf("request %s, run %s: %s", key, id, got)
		}
		if got := h.do("POST", "/runs/"+id+"/replay", "", nil, ""); !strings.Contains(got, `"verdict":"identical"`) {
			t.Errorf("request %s: %s", key, got)
		}
	}
	if got, want := h.get("/runs?limit=1"), fmt.Sprintf(`"total":%d`, len(h.keys)); !strings.Contains(got, want) {
		t.Errorf("%d requests made other runs than one each: %s", len(h.keys), got)
	}
	t.Logf("%d kills, %d requests", rounds, len(h.keys))
	h.kill()
	h.run("validate", "host.db")
}

// killedHost is a host in a process of its own, and what its clients know.
type killedHost struct {
	t   *testing.T
	dir string
	env []string
	key string // of the tenant
	url string
	cmd *exec.Cmd

	mu           sync.Mutex
	keys         []string          // of all requests
	acknowledged map[string]string // runs by the keys of requests that were answered
}

func newKilledHost(t *testing.T) *killedHost {
	h := &killedHost{t: t, dir: t.TempDir(), acknowledged: map[string]string{}}
	h.env = append(os.Environ(), "XDG_CACHE_HOME="+h.dir)
	h.run("tenant", "keygen", "host.key")
	h.key = strings.TrimSpace(h.run("tenant", "create", "acme", "--db", "host.db", "--key-file", "host.key", "--requests-per-second", "none", "--waiting", "none"))
	file := "listen: 127.0.0.1:0\ndatabase: host.db\nkey_file: host.key\nworkers: 4\nqueue: {attempts: 10k}\n"
	if err := os.WriteFile(filepath.Join(h.dir, "host.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	return h
}

func (h *killedHost) command(args ...string) *exec.Cmd {
	cmd := exec.Command("starling-host", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = h.dir, h.env, h.t.Output()
	return cmd
}

// run runs a command that must succeed and returns what it prints.
func (h *killedHost) run(args ...string) string {
	h.t.Helper()
	out, err := h.command(args...).Output()
	if err != nil {
		h.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

func (h *killedHost) start() {
	h.t.Helper()
	h.cmd = h.command("serve", "--config", "host.yaml")
	out, err := h.cmd.StdoutPipe()
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		h.t.Fatalf("the host does not start: %v", err)
	}
	h.url = strings.TrimSpace(strings.TrimPrefix(first, "API"))
}

// kill ends the host without a warning.
func (h *killedHost) kill() {
	if h.cmd == nil {
		return
	}
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
	h.cmd = nil
}

// load has clients make requests until so many are acknowledged.
func (h *killedHost) load(clients, most int) {
	enough := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	before := h.count()
	for range clients {
		wg.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
				}
				if _, err := h.ask(h.newKey()); err != nil {
					h.t.Error(err)
					once.Do(func() { close(enough) })
				}
				if h.count() >= before+most {
					once.Do(func() { close(enough) })
				}
			}
		})
	}
	<-enough
	h.kill() // while requests are on their way
	wg.Wait()
}

func (h *killedHost) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acknowledged)
}

func (h *killedHost) newKey() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := fmt.Sprintf("request-%d", len(h.keys))
	h.keys = append(h.keys, key)
	return key
}

// ask makes one request. That nobody answers is no error.
func (h *killedHost) ask(key string) (id string, err error) {
	answer := h.do("POST", "/runs", "application/json", strings.NewReader(`{"tool":"draw"}`), key)
	if answer == "" {
		return "", nil
	}
	var run struct {
		ID string `json:"run_id"`
	}
	if err := json.Unmarshal([]byte(answer), &run); err != nil || run.ID == "" {
		return "", fmt.Errorf("request %s: %s", key, answer)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if other, again := h.acknowledged[key]; again && other != run.ID {
		return "", fmt.Errorf("request %s made run %s and run %s", key, other, run.ID)
	}
	h.acknowledged[key] = run.ID
	return run.ID, nil
}

func (h *killedHost) upload(name string) {
	h.t.Helper()
	m, err := registry.Open(h.t.Context(), filepath.Join("testdata", "tools", name))
	if err != nil {
		h.t.Fatal(err)
	}
	if got := h.do("POST", "/modules?name="+name, "application/wasm", strings.NewReader(string(m.Wasm)), ""); !strings.Contains(got, `"digest"`) {
		h.t.Fatal(got)
	}
}

func (h *killedHost) get(path string) string { return h.do("GET", path, "", nil, "") }

// do makes a request and returns the body of the answer, or nothing if there is
// none or not all of one.
func (h *killedHost) do(method, path, contentType string, body io.Reader, key string) string {
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, body)
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+h.key)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return ""
	}
	return string(text)
}
