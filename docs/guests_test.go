package docs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/treetest"
)

// TestGuestsInC builds the tools that guest-sdk/README.md shows in C by the commands that
// it shows, runs them, and compares what is printed.
func TestGuestsInC(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	text := treetest.Read(t, "guest-sdk/README.md")
	dir := t.TempDir()
	compilesForWASI(t, dir)
	sources := regexp.MustCompile("(?s)```c\n// ([a-z]+\\.c): .*?```").FindAllStringSubmatch(text, -1)
	commands := readmeCommands(text)
	if len(sources) == 0 || len(commands) == 0 {
		t.Fatalf("%d tools and %d commands", len(sources), len(commands))
	}
	for _, s := range sources {
		code := strings.TrimSuffix(strings.TrimPrefix(s[0], "```c\n"), "```")
		if err := os.WriteFile(filepath.Join(dir, s[1]), []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	treetest.BuildHost(t, dir)
	for _, c := range commands {
		cmd := exec.Command("sh", "-c", c.line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		var said strings.Builder
		cmd.Stderr = &said
		printed, err := cmd.Output()
		if got := mask(string(printed)); err != nil || got != mask(c.output) {
			t.Errorf("%s: %v, prints\n%s\nand the README says\n%s\n%s", c.line, err, got, mask(c.output), said.String())
		}
	}
}

// compilesForWASI skips the test where clang, or what it needs for WASI, is missing.
func compilesForWASI(t *testing.T, dir string) {
	t.Helper()
	probe := filepath.Join(dir, "probe.c")
	if err := os.WriteFile(probe, []byte("#include <stdio.h>\nint main(void) { return puts(\"\"); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("clang", "--target=wasm32-wasi", "-o", filepath.Join(dir, "probe.wasm"), probe).CombinedOutput()
	if err != nil {
		t.Skipf("SKIPPED: there is no clang for WASI (Debian: clang lld wasi-libc libclang-rt-dev-wasm32): %v\n%s", err, out)
	}
}

// TestGuestsInJavaScript runs the commands of guest-sdk/js/README.md on the tools that it
// shows, and compares what is printed.
func TestGuestsInJavaScript(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	treetest.NeedsJS(t)
	text := treetest.Read(t, "guest-sdk/js/README.md")
	for _, block := range regexp.MustCompile("(?s)```(?:js|ts)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`name: "([a-z]+)"`).FindStringSubmatch(block[1])
		files, _ := filepath.Glob(filepath.Join("guest-sdk/js", "examples", name[1]+".*"))
		if len(files) != 1 || treetest.Read(t, files[0]) != block[1] {
			t.Errorf("README.md shows another tool than %v:\n%s", files, block[1])
		}
	}
	dir := t.TempDir()
	treetest.BuildHost(t, dir)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"build.mjs": "build.mjs", "examples": "examples", "starling-build": "build.mjs"} {
		if err := os.Symlink(filepath.Join(here, "guest-sdk/js", target), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(line string) string {
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		var said strings.Builder
		cmd.Stderr = &said
		printed, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, said.String())
		}
		return string(printed)
	}
	commands := readmeCommands(text)
	if len(commands) == 0 {
		t.Fatal("README.md shows no command")
	}
	for _, c := range commands {
		if got := mask(run(c.line)); got != mask(c.output) {
			t.Errorf("%s prints\n%s\nand the README says\n%s", c.line, got, mask(c.output))
		}
	}

	if got := run("starling-host doctor"); !regexp.MustCompile(`(?m)^ok +starling-build +quickjs-wasi [0-9.]+, Node [0-9.]+, /`).MatchString(got) {
		t.Errorf("the doctor says\n%s", got)
	}
	treetest.Write(t, filepath.Join(dir, "folder", "tool.js"), treetest.Read(t, "guest-sdk/js/examples/greet.js"))
	if got := run(`starling-host run folder '{"name":"Ada"}'`); !strings.HasPrefix(got, `{"greeting":"Hello, Ada. `) {
		t.Errorf("the tool in a folder prints %s", got)
	}

	_, block, _ := strings.Cut(text, "```mjs\n")
	block, _, _ = strings.Cut(block, "```")
	if err := os.WriteFile(filepath.Join(dir, "greet.test.mjs"), []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run("node --test --test-reporter=tap"); !strings.Contains(got, "# pass 1\n") {
		t.Errorf("the test in README.md prints\n%s", got)
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"name":"Ada of %s"}`, r.URL.Path)
	}))
	run("node build.mjs examples/customer.ts")
	got := run(fmt.Sprintf(`starling-host run customer.wasm '{"id":"42","base_url":"%s"}' --allow-host %s --allow-private`,
		server.URL, server.Listener.Addr()))
	server.Close()
	if want := `{"id":"42","name":"Ada of /customers/42"}`; strings.TrimSpace(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, engine := range []string{"", " --engine interpreter"} {
		if got := run("starling-host replay starling.db @last" + engine); !strings.HasPrefix(got, "identical: ") {
			t.Errorf("replay%s: %s", engine, got)
		}
	}
}
