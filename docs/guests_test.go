package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/guest"
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
	treetest.Needs(t, "c")
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

// TestGuestsInJavaScript runs the commands of guest-sdk/js/README.md on the tools that it
// shows, and compares what is printed. There is no Node, and no other program.
func TestGuestsInJavaScript(t *testing.T) {
	text := treetest.Read(t, "guest-sdk/js/README.md")
	dir := t.TempDir()
	for _, block := range regexp.MustCompile("(?s)```ts\n(.*?)```").FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`name: "([a-z]+)"`).FindStringSubmatch(block[1])[1]
		if treetest.Read(t, filepath.Join("guest-sdk/js/examples", name, "tool.ts")) != block[1] {
			t.Errorf("README.md shows another tool than examples/%s:\n%s", name, block[1])
		}
		treetest.Write(t, filepath.Join(dir, name, "tool.ts"), block[1])
	}
	typeResults(t, dir, text, "")
}

// TestFilesPage gives tools in Python and JavaScript the files of docs/files.md.
func TestFilesPage(t *testing.T) {
	typeResults(t, t.TempDir(), treetest.Read(t, "docs/files.md"), "/usr/bin:/bin")
}

// typeResults carries out the commands of a page in a folder, where other programs are only those of a path,
// and compares what they print on standard output.
func typeResults(t *testing.T, dir, text, path string) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	bin := t.TempDir()
	treetest.BuildHost(t, bin)
	commands := readmeCommands(text)
	if len(commands) == 0 {
		t.Fatal("the page shows no command")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = bin
	}
	for _, c := range commands {
		cmd := exec.Command("/bin/sh", "-c", c.line)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + bin + ":" + path, "HOME=" + bin, "XDG_CACHE_HOME=" + cache}
		var said strings.Builder
		cmd.Stderr = &said
		printed, err := cmd.Output()
		if got := mask(string(printed)); err != nil || got != mask(c.output) {
			t.Errorf("%s: %v, prints\n%s\nand the page says\n%s\n%s", c.line, err, got, mask(c.output), said.String())
		}
	}
}

// TestDebugTutorial types what docs/debug.md shows: the commands, and each hunt for a mistake.
func TestDebugTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	bin := t.TempDir()
	treetest.BuildHost(t, bin)
	text, tutorial, _ := strings.Cut(treetest.Read(t, "docs/debug.md"), "\n## Tutorial")
	hunts := strings.Split(tutorial, "\n### ")[1:]
	if len(hunts) != 4 {
		t.Errorf("%d hunts", len(hunts))
	}
	typePage(t, bin, "    starling-host run tools-wasm/dice '{\"rolls\":1}'\n"+text)
	for _, hunt := range hunts {
		language, _, _ := strings.Cut(hunt, ":")
		t.Run(language, func(t *testing.T) {
			for _, c := range guest.Compilers(t.Context()) {
				if c.Language == language && c.Err != nil {
					t.Skipf("SKIPPED: needs a compiler: %v", c.Err)
				}
			}
			typePage(t, bin, hunt)
		})
	}
}
