package starling_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/host/agentfile"
)

func readme(t *testing.T) string { return document(t, "README.md") }

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// buildHost builds starling-host into a folder.
func buildHost(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "starling-host"), "./cmd/starling-host").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// TestReadmeTool checks that the tool in the README is one that compiles.
func TestReadmeTool(t *testing.T) {
	_, code, _ := strings.Cut(document(t, "examples/greet/main.go"), "\n") // the comment above the package clause
	_, block, _ := strings.Cut(readme(t), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	if block != code {
		t.Errorf("README.md shows another tool than examples/greet/main.go:\n%s", block)
	}
}

// TestReadmeAgent checks that the agent in the README is one that can be read.
func TestReadmeAgent(t *testing.T) {
	_, block, _ := strings.Cut(readme(t), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	if _, err := agentfile.Parse("agent.yaml", []byte(block)); err != nil {
		t.Error(err)
	}
}

// TestReadmeSession runs the commands of the README, in order, and compares
// what they print with what the README says, but for what differs in every
// run: ids, digests, times, numbers.
func TestReadmeSession(t *testing.T) {
	dir := t.TempDir()
	buildHost(t, dir)
	bin := filepath.Join(dir, "starling-host")
	db := filepath.Join(t.TempDir(), "starling.db")
	commands := readmeCommands(readme(t))
	if len(commands) == 0 {
		t.Fatal("README.md shows no command")
	}
	for _, c := range commands {
		line := strings.ReplaceAll(c.line, "starling.db", db)
		if strings.Contains(line, " run ") {
			line += " --db " + db
		}
		cmd := exec.Command("sh", "-c", strings.Replace(line, "starling-host", bin, 1))
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, stderr.Bytes())
		}
		got := mask(strings.ReplaceAll(stdout.String()+stderr.String(), db, "starling.db"))
		if want := mask(c.output); !matches(want, got) {
			t.Errorf("%s prints\n%s\nand the README says\n%s", c.line, got, want)
		}
	}
}

// TestPastedCommands pastes what each section of the README, and each page that needs no
// server, shows to be typed into one shell, in order, as a reader does: a line that needs
// what an earlier one has ended fails.
func TestPastedCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds the modules of all examples")
	}
	t.Parallel()
	bin := t.TempDir()
	buildHost(t, bin)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	listens := regexp.MustCompile(`(?m)&$`)
	wait := "& for i in $(seq 500); do (: < /dev/tcp/127.0.0.1/" + port + ") 2> /dev/null && break; sleep 0.02; done"
	seen := 0
	sections := strings.Split(readme(t), "\n## ")[1:]
	for _, page := range []string{"docs/branching.md", "docs/budgets.md", "tools-wasm/dice/README.md", "tools-wasm/json-transform/README.md"} {
		sections = append(sections, document(t, page))
	}
	for _, section := range sections {
		title, text, _ := strings.Cut(section, "\n")
		lines := strings.Join(regexp.MustCompile(`(?m)(^    [^ ${}\t].*\n|^     .*\n)+`).FindAllString(regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, ""), -1), "")
		if !regexp.MustCompile(`(?m)^    starling-host `).MatchString(lines) || strings.Contains(text, "\n    $ ") || strings.Contains(lines, "serve --dev") {
			continue // others show sessions, which TestReadmeSession runs, or a server, which goes on
		}
		seen++
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if out, err := exec.Command("cp", "-R", "go.mod", "go.sum", "abi", "guest-sdk", "tools-wasm", "examples", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			script := strings.NewReplacer("8080", port, "/tmp/", dir+"/").Replace(lines)
			shell := exec.CommandContext(t.Context(), "bash", "-e", "-c", "trap 'kill $(jobs -p) 2> /dev/null || :' EXIT\n"+listens.ReplaceAllLiteralString(script, wait))
			shell.Dir, shell.WaitDelay = dir, time.Second
			shell.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			if out, err := shell.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\n%s", err, script, out)
			}
		})
	}
	if seen < 7 {
		t.Errorf("%d sections show commands", seen)
	}
}

type readmeCommand struct{ line, output string }

// readmeCommands returns the commands after "    $ ", each with the indented
// lines that follow it.
func readmeCommands(text string) []readmeCommand {
	var found []readmeCommand
	for _, block := range regexp.MustCompile(`(?m)^    \$ .*\n((    [^$].*)?\n)*`).FindAllString(text, -1) {
		line, output, _ := strings.Cut(strings.TrimRight(block, "\n")+"\n", "\n")
		output = regexp.MustCompile(`(?m)^    `).ReplaceAllString(output, "")
		found = append(found, readmeCommand{strings.TrimPrefix(line, "    $ "), output})
	}
	return found
}

var (
	identifiers = regexp.MustCompile(`\b([0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{16}|[0-9T:.-]{10,}Z)\b`)
	numbers     = regexp.MustCompile(`[0-9][0-9.,]*(µs|ms|s|GiB|MiB|KiB|B)?|effects?`)
	spaces      = regexp.MustCompile(` +`)
)

// mask replaces what differs from run to run.
func mask(s string) string {
	s = identifiers.ReplaceAllString(s, "ID")
	s = numbers.ReplaceAllString(s, "N")
	return strings.TrimSpace(spaces.ReplaceAllString(s, " "))
}

// matches compares line by line. A line of the README that ends with ... is the
// beginning of a longer one. The numbers of rolls may differ between the two,
// because a roll is sometimes drawn twice, so runs of equal lines count once.
func matches(want, got string) bool {
	w, g := compact(want), compact(got)
	if len(w) != len(g) {
		return false
	}
	for i := range w {
		head, cut := strings.CutSuffix(w[i], "...")
		if w[i] != g[i] && !(cut && strings.HasPrefix(g[i], head)) {
			return false
		}
	}
	return true
}

func compact(s string) []string {
	var lines []string
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestNamesOfGoExist checks that what docs/seed-names.md says that this project calls
// something is exported by a package of that name.
func TestNamesOfGoExist(t *testing.T) {
	out, err := exec.Command("git", "grep", "-E", `^(type |func (\([^)]*\) )?|const |var |\t)[A-Z]`, "--", "*.go", ":!*_test.go").Output()
	if err != nil {
		t.Skipf("SKIPPED: this is no checkout: %v", err)
	}
	exported := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^(?:.*/)?(\w+)/\w+\.go:(?:type |func (?:\([^)]*\) )?|const |var |\t)([A-Z]\w*)`).FindAllStringSubmatch(string(out), -1) {
		exported[line[1]+"."+line[2]] = true
	}
	named := regexp.MustCompile("`" + `(?:\*|&)?([a-z]+\.[A-Z]\w*)`)
	seen := 0
	for line := range strings.Lines(document(t, "docs/seed-names.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, name := range named.FindAllStringSubmatch(cells[2], -1) {
			seen++
			if !exported[name[1]] {
				t.Errorf("docs/seed-names.md names %s, which is not there", name[1])
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d names were found", seen)
	}
}

// TestNamedTestsExist checks that the tests, examples and benchmarks that documents
// name are there.
func TestNamedTestsExist(t *testing.T) {
	out, err := exec.Command("git", "grep", "-hoE", `^func (Test|Benchmark|Fuzz|Example)[A-Za-z0-9_]+`, "--", "*_test.go").Output()
	if err != nil {
		t.Skipf("SKIPPED: this is no checkout: %v", err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		names[strings.TrimSpace(strings.TrimPrefix(line, "func "))] = true
	}
	named := regexp.MustCompile(`\b(Test|Benchmark|Fuzz|Example)[A-Z][A-Za-z0-9_]+`)
	for _, file := range []string{"SPEC.md", "docs/seed-defects.md"} {
		for _, name := range named.FindAllString(document(t, file), -1) {
			if !names[name] {
				t.Errorf("%s names %s, which is not there", file, name)
			}
		}
	}
}
