package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
)

// serving is a host that serves, as a process of its own.
type serving struct {
	cmd    *exec.Cmd
	client *http.Client
	key    string
	stderr lockedBuffer
}

// startServing starts "starling-host serve" and waits until it is ready. wrap, if
// it is not nil, changes how it is started.
func startServing(t *testing.T, dir, database, name string, wrap func(args []string) []string) *serving {
	t.Helper()
	socket := filepath.Join(dir, name+".sock")
	args := []string{"starling-host", "serve", "--dev", "--listen", "unix:" + socket, "--db", database, "--policy", "policy.yaml"}
	if wrap != nil {
		args = wrap(args)
	}
	s := &serving{cmd: exec.Command(args[0], args[1:]...)}
	s.cmd.Dir, s.cmd.Stderr = dir, &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for s.key == "" && lines.Scan() {
		if key, ok := strings.CutPrefix(lines.Text(), "key "); ok {
			s.key = strings.TrimSpace(key)
		}
	}
	if s.key == "" {
		t.Fatalf("the host did not start: %v\n%s", s.cmd.Wait(), &s.stderr)
	}
	s.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	t.Cleanup(func() { s.cmd.Process.Kill(); s.cmd.Wait() })
	return s
}

// ask makes a request and returns the document of the answer.
func (s *serving) ask(method, path, contentType string, body []byte) (status int, doc map[string]any, err error) {
	return s.askOnce("", method, path, contentType, body)
}

// askOnce makes a request with an idempotency key, if the key is not empty.
func (s *serving) askOnce(key, method, path, contentType string, body []byte) (status int, doc map[string]any, err error) {
	r, err := http.NewRequest(method, "http://host/api/v1"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	if len(body) > 0 {
		r.Header.Set("Content-Type", contentType)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	return answer.StatusCode, doc, json.NewDecoder(answer.Body).Decode(&doc)
}

// order asks for a run of the tool, which is promised when an id is returned.
func (s *serving) order(key, url string, items int) (runID string, err error) {
	body := fmt.Appendf(nil, `{"tool":"order","input":{"url":%q,"items":%d}}`, url, items)
	status, doc, err := s.askOnce(key, "POST", "/runs", "application/json", body)
	if err != nil {
		return "", err
	}
	if status != http.StatusAccepted {
		return "", fmt.Errorf("status %d: %v", status, doc)
	}
	return doc["run_id"].(string), nil
}

// list returns a page of runs. A host that has too much to do, or has just got its
// database back, is asked again, also if it has left a request without an answer.
func (s *serving) list(t *testing.T, query string) map[string]any {
	t.Helper()
	for deadline := time.Now().Add(awaitTime); ; time.Sleep(20 * time.Millisecond) {
		status, doc, err := s.ask("GET", "/runs?"+query, "", nil)
		if err == nil && status == http.StatusOK {
			return doc
		}
		later := err != nil && !gone(err) || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
		if !later || time.Now().After(deadline) {
			t.Fatalf("%d, %v, %v\n%s", status, doc, err, &s.stderr)
		}
	}
}

// finish waits until no run is in progress.
func (s *serving) finish(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for len(s.list(t, "status=open&limit=1")["items"].([]any)) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("runs are still in progress\n%s", &s.stderr)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// kill ends the process as a crash does.
func (s *serving) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// stop ends the process as an operator does.
func (s *serving) stop(t *testing.T) {
	t.Helper()
	s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the host ended with %v\n%s", err, &s.stderr)
	}
}

// scene prepares a folder with a policy that lets tools order, and builds the tool.
func scene(t *testing.T, s *shop) (dir string, module []byte) {
	t.Helper()
	dir = t.TempDir()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	policy := fmt.Sprintf("version: \"1.0\"\npermissions:\n  network:\n    allow:\n      - {host: %q, ports: [%s], schemes: [http], private: true}\n", host, port)
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := guest.Find(t.Context(), filepath.Join("testdata", "tools", "order"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, m.Wasm
}

// upload gives the tenant the tool.
func (s *serving) upload(t *testing.T, module []byte) {
	t.Helper()
	patient := serving{key: s.key, client: &http.Client{Timeout: compileTime, Transport: s.client.Transport}}
	status, doc, err := patient.ask("POST", "/modules?name=order", "application/wasm", module)
	if err != nil || status != http.StatusCreated {
		t.Fatalf("%d, %v, %v\n%s", status, doc, err, &s.stderr)
	}
}

// promised is what clients know of the runs that they have asked for.
type promised struct {
	mu   sync.Mutex
	keys int               // of requests: request-0 and so on
	runs map[string]string // ids by the keys of requests that were answered
}

// newKey returns the key of a new request.
func (p *promised) newKey() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys++
	return fmt.Sprintf("request-%d", p.keys-1)
}

// keep takes note of an answer, which has to be the same as before.
func (p *promised) keep(t *testing.T, key, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other, again := p.runs[key]; again && other != id {
		t.Errorf("%s made run %s and run %s", key, other, id)
	}
	p.runs[key] = id
}

// of returns the ids as the tools see them.
func (p *promised) of(tenant string) []string {
	var full []string
	for _, id := range p.runs {
		full = append(full, tenant+"/"+id)
	}
	return full
}

// load has clients ask for runs until the function that it returns is called or the
// host dies.
func (p *promised) load(t *testing.T, s *serving, url string, clients, items int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil && p.ask(ctx, t, s, p.newKey(), url, items) {
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// ask asks for one run until it is promised, and returns false if the host is gone.
func (p *promised) ask(ctx context.Context, t *testing.T, s *serving, key, url string, items int) bool {
	for ctx.Err() == nil {
		id, err := s.order(key, url, items)
		if gone(err) {
			return false
		}
		if err == nil {
			p.keep(t, key, id)
			return true
		}
		time.Sleep(5 * time.Millisecond) // it has too much to do, or is going
	}
	return true
}

// repeat makes the requests without an answer again, because nobody knows whether
// they had arrived, and some of the others. Each must have made one run.
func (p *promised) repeat(t *testing.T, s *serving, url string, items int) {
	t.Helper()
	for i := range p.keys {
		key := fmt.Sprintf("request-%d", i)
		if _, answered := p.runs[key]; answered && i%10 != 0 {
			continue
		}
		if !p.ask(t.Context(), t, s, key, url, items) {
			t.Fatalf("the host is gone\n%s", &s.stderr)
		}
	}
	if got := s.list(t, "limit=1")["total"]; got != float64(p.keys) {
		t.Errorf("%d requests made %v runs, and not one each", p.keys, got)
	}
}

// gone reports whether an error means that the host is.
func gone(err error) bool {
	var network *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &network) && !network.Timeout()
}

// TestKilledHostLosesNoRun kills a host under load, 5 times (STARLING_NIGHTLY: 100). Every
// run that was promised comes to its end, a request that is sent again with its key
// makes no second run, no order whose answer was recorded is sent again, and every
// run validates and replays.
func TestKilledHostLosesNoRun(t *testing.T) {
	skipShort(t)
	t.Parallel()
	kills := 3
	if os.Getenv("STARLING_NIGHTLY") != "" {
		kills = 100
	}
	const items = 3
	s := openShop(t, "")
	dir, module := scene(t, s)
	runs := promised{runs: map[string]string{}}
	for i := range kills {
		host := startServing(t, dir, "host.db", "host", nil)
		if i == 0 {
			host.upload(t, module)
		}
		stop := runs.load(t, host, s.URL, 4, items)
		s.await(t, 1+rand.IntN(30))
		host.kill()
		stop()
		s.remember(openRuns(t, dir, "host.db"))
	}
	host := startServing(t, dir, "host.db", "host", nil)
	runs.repeat(t, host, s.URL, items)
	host.finish(t)
	host.stop(t)
	t.Logf("%d kills, %d runs, %d orders", kills, len(runs.runs), s.taken)
	s.check(t, runs.of("dev"), items)
	proved(t, dir, "host.db", len(runs.runs))
}

// openRuns returns the events of the runs that have no end.
func openRuns(t *testing.T, dir, database string) []event.Event {
	t.Helper()
	read := readFlags{keyFile: filepath.Join(dir, keyFileOf(database))}
	if !onServer(database) {
		database = filepath.Join(dir, database)
	}
	log, err := read.open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	page, err := log.ListRunsPage(t.Context(), eventlog.RunPageOptions{Status: eventlog.StatusOpen, Limit: eventlog.MaxPageLimit})
	if err != nil {
		t.Fatal(err)
	}
	var events []event.Event
	for _, r := range page.Runs {
		run, err := log.Read(t.Context(), r.RunID)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, run...)
	}
	return events
}

// proved validates and replays a database, which must hold at least so many runs.
func proved(t *testing.T, dir, database string, least int) {
	t.Helper()
	for verb, want := range map[string]string{
		"validate": `(?m)^(\d+) runs?: (\d+) valid, 0 invalid$`,
		"replay":   `(?m)^(\d+) runs?: (\d+) identical$`,
	} {
		args := []string{verb, database, "--key-file", keyFileOf(database)}
		if verb == "replay" {
			args = append(args, "--all")
		}
		cmd := exec.Command("starling-host", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		found := regexp.MustCompile(want).FindStringSubmatch(string(out))
		if err != nil || found == nil || found[1] != found[2] {
			t.Errorf("%s: %v\n%s", verb, err, tail(string(out), 2000))
			continue
		}
		var n int
		if fmt.Sscan(found[1], &n); n < least {
			t.Errorf("%s: the database holds %d runs, and %d were promised", verb, n, least)
		}
	}
}

// keyFileOf is where "serve --dev" keeps the master key.
func keyFileOf(database string) string {
	if onServer(database) {
		return "starling.key"
	}
	return strings.TrimSuffix(database, ".db") + ".key"
}

func tail(s string, n int) string { return s[max(len(s)-n, 0):] }
