package systemtest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/treetest"
)

// mcpClients is the folder of clients that others have written. npm installs them.
const mcpClients = "../testdata/mcpclients"

// TestMCPClients has clients that others have written use the program, over standard input
// and output and over HTTP.
func TestMCPClients(t *testing.T) {
	skipShort(t)
	modules := mcpModules(t)
	t.Parallel()
	world := httptest.NewServer(newMCPWorld())
	defer world.Close()
	host := strings.TrimPrefix(world.URL, "http://")

	// command returns what serves the modules from a new folder.
	command := func(t *testing.T) (dir string, args []string) {
		dir = t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(modules)); err != nil {
			t.Fatal(err)
		}
		return dir, []string{
			"starling-host", "mcp", "--tool", filepath.Join(dir, "tools.wasm"), "--tool", filepath.Join(dir, "changing.wasm"),
			"--db", filepath.Join(dir, "calls.db"), "--allow-host", host, "--allow-private",
		}
	}

	// The scenarios of the protocol's own suite, for the program as a server, and as the client of
	// servers behind it. Those that fail are the ones in the files of expected failures, of which
	// the suite itself refuses those that pass.
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		conformance := func(t *testing.T, dir, side string, more ...string) {
			file := "expected-failures-" + version + ".yaml"
			expected, err := os.ReadFile(filepath.Join(mcpClients, file))
			if err != nil {
				t.Fatal(err)
			}
			out, err := node(t, append([]string{
				"--import", "./globsync.mjs", "node_modules/@modelcontextprotocol/conformance/dist/index.js", side,
				"--requirements", version, "--expected-failures", file, "--output-dir", filepath.Join(dir, "results"),
			}, more...)...)
			_, summary, found := strings.Cut(string(out), "SUMMARY ===")
			if err != nil || !found {
				t.Fatalf("%v\n%s", err, out)
			}
			// What the suite does not score, such as extensions, is in the file as well.
			_, list, _ := strings.Cut(string(expected), side+":\n")
			list, _, _ = strings.Cut(list, "client:\n")
			for line := range strings.Lines(list) {
				name, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
				if ok && !strings.Contains(summary, "✗ "+name+":") && !strings.Contains(summary, "~ "+name+"\n") {
					t.Errorf("%s: %s has not failed", file, name)
				}
			}
			for line := range strings.Lines(summary) {
				name, failed := strings.CutPrefix(strings.TrimSpace(line), "✗ ")
				if name, _, ok := strings.Cut(name, ":"); failed && ok && !strings.Contains(list, "- "+name+"\n") {
					t.Errorf("%s: %s has failed", file, name)
				}
			}
			if t.Failed() {
				t.Log(summary)
			}
		}
		t.Run("conformance/server/"+version, func(t *testing.T) {
			dir, args := command(t)
			url, stop := mcpListening(t, args)
			defer stop()
			conformance(t, dir, "server", "--url", url)
		})
		t.Run("conformance/client/"+version, func(t *testing.T) {
			driver, err := filepath.Abs(mcpClients + "/gateway.mjs")
			if err != nil {
				t.Fatal(err)
			}
			conformance(t, t.TempDir(), "client", "--command", "node "+driver+" "+version, "--timeout", "240000") // forty at a time
		})
	}

	for _, transport := range []string{"stdio", "http"} {
		// served returns what a client is told of the server, and stop.
		served := func(t *testing.T) (dir string, server []string, stop func()) {
			dir, args := command(t)
			if transport == "stdio" {
				return dir, args, func() {}
			}
			url, stop := mcpListening(t, args)
			return dir, []string{url}, stop
		}

		// The call that the program cancels is recorded as cancelled, and no other.
		t.Run("sdk/"+transport, func(t *testing.T) {
			dir, server, stop := served(t)
			out, err := node(t, append([]string{"client.mjs", dir, world.URL}, server...)...)
			stop()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			db := starling.Must(starling.Open(t.Context(), filepath.Join(dir, "calls.db"), starling.Options{ReadOnly: true}))
			defer db.Close()
			page, err := db.Runs(t.Context(), eventlog.RunPageOptions{Status: eventlog.StatusCancelled})
			if err != nil || page.TotalMatching != 1 {
				t.Errorf("%d runs are cancelled, %v", page.TotalMatching, err)
			}
		})

		t.Run("inspector/"+transport, func(t *testing.T) {
			_, server, stop := served(t)
			defer stop()
			ask := func(doc any, args ...string) {
				t.Helper()
				out, err := node(t, append(append([]string{"node_modules/@modelcontextprotocol/inspector/cli/build/cli.js", "--cli"}, server...), args...)...)
				text := string(out)
				if err != nil || json.NewDecoder(strings.NewReader(text[max(0, strings.Index(text, "{")):])).Decode(doc) != nil {
					t.Errorf("%v\n%s", err, out)
				}
			}
			var list struct{ Tools []struct{ Name string } }
			if ask(&list, "--method", "tools/list"); len(list.Tools) != 10 {
				t.Errorf("tools %v", list.Tools)
			}
			var result struct{ StructuredContent struct{ Sum float64 } }
			if ask(&result, "--method", "tools/call", "--tool-name", "sum", "--tool-arg", "a=2", "b=3"); result.StructuredContent.Sum != 5 {
				t.Errorf("result %v", result)
			}
		})
	}
}

// TestMCPServersAnswerTheSame calls the tools of servers that others have written, directly and
// through mcp --server: each answer is the same JSON, but for what the gateway adds in _meta.
func TestMCPServersAnswerTheSame(t *testing.T) {
	skipShort(t)
	needsMCPClients(t)
	t.Parallel()
	out, err := node(t, "servers.mjs", t.TempDir(), "filesystem=filesystem", "memory=memory", "thinking=sequential-thinking", "everything=everything")
	if err != nil || !strings.Contains(string(out), " tools are compared") {
		t.Errorf("%v\n%s", err, out)
	}
}

// mcpModules builds the modules for the clients into a new folder. It skips the test where
// Node, or what npm installs, is missing.
func mcpModules(t *testing.T) (dir string) {
	t.Helper()
	const sdk = "../../../guest-sdk/js"
	needsMCPClients(t)
	dir = t.TempDir()
	for target, source := range map[string]string{
		"tools.wasm": mcpClients + "/tools.js", "changing.wasm": sdk + "/examples/hello/tool.ts", "changed.wasm": sdk + "/examples/lookup/tool.ts",
	} {
		module, err := guest.Find(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, target), module.Wasm, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// needsMCPClients skips the test where Node, or what npm installs, is missing.
func needsMCPClients(t *testing.T) {
	t.Helper()
	treetest.NeedsNPM(t, mcpClients)
	for _, name := range []string{"client.mjs", "gateway.mjs", "globsync.mjs", "servers.mjs", "package-lock.json"} { // so that go test knows of them
		_, _ = os.Stat(filepath.Join(mcpClients, name))
	}
}

// newMCPWorld is the world of client.mjs, which says what it has to answer.
func newMCPWorld() http.Handler {
	began, ended, release := make(chan struct{}, 9), make(chan struct{}, 9), make(chan struct{}, 9)
	await := func(c <-chan struct{}) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-c:
				_, _ = io.WriteString(w, "at "+r.URL.Path)
			case <-r.Context().Done():
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "at "+r.URL.Path) })
	mux.HandleFunc("/held", await(release))
	mux.HandleFunc("/release", func(http.ResponseWriter, *http.Request) { release <- struct{}{} })
	mux.HandleFunc("/never", func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	})
	mux.HandleFunc("/begun", await(began))
	mux.HandleFunc("/ended", await(ended))
	return mux
}

// mcpListening starts a server at a free port, and returns its URL. stop interrupts it, and
// it has to end well.
func mcpListening(t *testing.T, args []string) (url string, stop func()) {
	t.Helper()
	server := exec.Command(args[0], append(args[1:], "--listen", "127.0.0.1:0")...)
	stderr, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(6*awaitTime, func() { _ = server.Process.Kill() })
	lines, said := bufio.NewScanner(stderr), ""
	for url == "" && lines.Scan() {
		said += lines.Text() + "\n"
		if _, rest, ok := strings.Cut(lines.Text(), "serving at "); ok {
			url, _, _ = strings.Cut(rest, ";")
		}
	}
	stop = func() {
		t.Helper()
		defer late.Stop()
		_ = server.Process.Signal(syscall.SIGINT)
		for lines.Scan() {
			said += lines.Text() + "\n"
		}
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v\n%s", err, said)
		}
	}
	if url == "" {
		stop()
		t.Fatalf("the server does not say where it is:\n%s", said)
	}
	return url, stop
}

// node runs a program of the folder of clients.
func node(t *testing.T, args ...string) (out []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*awaitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Dir, cmd.Env = mcpClients, append(os.Environ(), "XDG_CONFIG_HOME="+t.TempDir()) // where servers are pinned
	return cmd.CombinedOutput()
}
