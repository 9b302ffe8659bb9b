package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/internal/daemon"
)

// signalWorkers sends a signal to the worker processes of this one.
func signalWorkers(t *testing.T, signal unix.Signal) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		var pid, parent int
		var state byte
		_, _ = fmt.Sscanf(string(b), "%d", &pid)
		_, err = fmt.Sscanf(string(b[strings.LastIndexByte(string(b), ')')+1:]), " %c %d", &state, &parent)
		if err == nil && parent == os.Getpid() && unix.Kill(pid, signal) == nil {
			sent++
		}
	}
	if sent == 0 && signal != unix.SIGCONT { // the host may have killed those that were stopped
		t.Error("there is no worker process")
	}
}

// until loads a page until it has one of the texts, and returns it.
func (b *browser) until(path string, texts ...string) string {
	b.w.t.Helper()
	page := ""
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		_, page = b.load(http.MethodGet, path, nil)
		for _, text := range texts {
			if strings.Contains(page, text) {
				return page
			}
		}
	}
	b.w.t.Fatalf("%s never has %q: %s", path, texts, page)
	return ""
}

// TestFlameGraphsAreMadeInWorkers, which may die or hang of it: the page says so, and neither the host
// nor another tenant notices.
func TestFlameGraphsAreMadeInWorkers(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config) {
		c.CPU = guest.NewScheduler(2)
		processes, err := guest.NewProcesses(context.Background(), guest.ProcessConfig{Scheduler: c.CPU, Compiler: guest.Compiler{CPU: 5 * time.Minute, Foreground: true}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { processes.Close(context.Background()) })
		c.Isolated, c.Calls.Fuel, c.Requests.Replays = processes, 1_000_000_000, 1
	})
	w.upload("alice", "say", canary)
	w.load("alice", "spin", spinning())
	w.upload("bob", "say", "hello")
	run := func(who, tool string) string {
		t.Helper()
		_, answer, _ := w.ask(t.Context(), who, "POST", "/api/v1/runs", "", `{"tool":"`+tool+`"}`)
		found := aRun.FindStringSubmatch(answer)
		if found == nil {
			t.Fatalf("%s calls %s: %s", who, tool, answer)
		}
		if _, answer, _ = w.ask(t.Context(), who, "GET", "/api/v1/runs/"+found[1]+"/stream", "", ""); !strings.Contains(answer, "event: done") {
			t.Fatalf("%s calls %s: %s", who, tool, answer)
		}
		return "/inspect/runs/" + found[1] + "/fuel"
	}
	b := w.browser("alice")
	short, long := run("alice", "say"), run("alice", "spin")
	execute := func(page, what string) {
		t.Helper()
		if code, text := b.load(http.MethodPost, page, url.Values{"what": {what}}); code != http.StatusOK {
			t.Fatalf("%s: %d %s", page, code, text)
		}
	}
	execute(short, "")
	if page := b.until(short, "Execute again"); !strings.Contains(page, `aria-label="say: `) || strings.Contains(page, "not the one on record") {
		t.Errorf("no flame graph: %s", page)
	}
	execute(long, "")
	b.until(long, "Executed ")
	replay := strings.TrimSuffix(strings.Replace(run("bob", "say"), "/inspect/", "/api/v1/", 1), "fuel") + "replay"
	if code, answer, _ := w.ask(t.Context(), "bob", "POST", replay, "", ""); code != http.StatusOK || !strings.Contains(answer, `"identical"`) {
		t.Errorf("beside it, bob cannot replay: %d %s", code, answer)
	}
	signalWorkers(t, unix.SIGKILL)
	if page := b.until(long, "Execute again"); !strings.Contains(page, "its process ended") || strings.Contains(page, "not the one on record") {
		t.Errorf("the page does not say that the process died: %s", page)
	}
	run("bob", "say")
	execute(long, "")
	b.until(long, "Executed ")
	signalWorkers(t, unix.SIGSTOP)
	execute(long, "cancel")
	b.until(long, "Cancelled.")
	signalWorkers(t, unix.SIGCONT)
	run("bob", "say")
}
