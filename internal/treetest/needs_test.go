package treetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Programs that come with a target, or that a machine with Go alone lacks. A test that runs one asks [Needs] first.
const optional = `cargo|chromium|clang|clang\+\+|curl|fish|initdb|ip|llvm-symbolizer|mandoc|nginx|node|npm|npx|openssl|psql|python3|qemu-[a-z0-9]+-static|rustc|strace|unshare|wasm-ld|zsh`

var (
	runs  = regexp.MustCompile(`exec\.(?:LookPath\(|Command\(|CommandContext\([^,"]*, )"(?:` + optional + `)"`)
	looks = regexp.MustCompile(`exec\.LookPath\(`)
	asks  = regexp.MustCompile(`\.Needs(?:NPM|JS)?\(t`)

	// A program may be there without its target, so scripts ask for the target: [has:c].
	looksInScript = regexp.MustCompile(`(?m)^\[!?exec:(?:clang|rustc|node|chromium)`)
	runsInScript  = regexp.MustCompile(`(?m)^!? ?exec (` + optional + `) `)
)

// asksItself are test files that find programs in ways of their own.
var asksItself = map[string]string{
	"eventlog/receipt/outside_test.go":      "uses each library that is there",
	"host/internal/component/guest_test.go": "asks for one version of clang",
	"serve/gateway/server_test.go":          "looks for sh",
}

// TestTestsAskForWhatTheyNeed: go test ./... passes with any of the optional programs missing, or without the target that
// a test needs of it. So each test that runs one asks whether it works.
func TestTestsAskForWhatTheyNeed(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files", "*_test.go", "*.txtar").Output()
	if err != nil {
		t.Skipf("SKIPPED: this is no checkout: %v", err)
	}
	for _, name := range strings.Fields(string(out)) {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil || strings.HasPrefix(name, "bench/") || strings.HasPrefix(name, "release/") { // which are for the night
			continue
		}
		if strings.HasSuffix(name, ".txtar") {
			script, _, _ := bytes.Cut(text, []byte("\n-- "))
			if found := looksInScript.Find(script); found != nil {
				t.Errorf("%s: %s: write [!has:PROGRAM], which tries it", name, found)
			}
			if found := runsInScript.FindSubmatch(script); found != nil && !bytes.Contains(script, []byte("[!has:")) && !bytes.Contains(script, append([]byte("[!exec:"), found[1]...)) {
				t.Errorf("%s: runs %s without asking for it", name, found[1])
			}
			continue
		}
		bare := looks.Match(text) || runs.Match(text) && !asks.Match(text)
		if _, ok := asksItself[name]; ok {
			if !bare {
				t.Errorf("%s need not be listed", name)
			}
		} else if bare {
			t.Errorf("%s: runs %s: ask treetest.Needs first", name, runs.Find(text))
		}
	}
}

func TestWhatIsNotHereIsNamed(t *testing.T) {
	if err := Has("nothing"); err == nil {
		t.Error("an unknown program is here")
	}
	t.Setenv("PATH", t.TempDir())
	if err := Has("mandoc"); err == nil || !strings.Contains(err.Error(), "Debian: mandoc") {
		t.Error("a program that is not in PATH is here:", err)
	}
}
