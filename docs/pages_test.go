package docs_test

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/ocitest"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/runtime/agentfile"
)

func TestMain(m *testing.M) { treetest.Run(m) }

// TestExampleTool checks that the first tool in docs/write-a-tool.md is examples/greet.
func TestExampleTool(t *testing.T) {
	_, code, _ := strings.Cut(treetest.Read(t, "examples/greet/main.go"), "\n") // the comment above the package clause
	_, block, _ := strings.Cut(treetest.Read(t, "docs/write-a-tool.md"), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	if block != code {
		t.Errorf("docs/write-a-tool.md shows another tool than examples/greet/main.go:\n%s", block)
	}
}

// TestExampleAgent checks that the agent in docs/agents.md can be read.
func TestExampleAgent(t *testing.T) {
	_, block, _ := strings.Cut(treetest.Read(t, "docs/agents.md"), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	if _, err := agentfile.Parse("agent.yaml", []byte(block)); err != nil {
		t.Error(err)
	}
}

// recordedSession is the picture of a terminal that docs/img/session.sh draws.
const recordedSession = "docs/img/session.svg"

// TestPages does what a reader does with each page: it writes the files that the page shows
// and types its commands into one shell, from top to bottom. A command must succeed. One
// after "$ " must print what the page shows below it, but for what differs in every run:
// ids, digests, times, numbers. And docs/commands.md has each command of the program.
func TestPages(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	treetest.BuildHost(t, bin)
	help, err := exec.Command(filepath.Join(bin, "starling-host"), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	start, groups, _ := strings.Cut(string(help), "\nMore commands:\n")
	groups, _, _ = strings.Cut(groups, "\n\n")
	var commands []string
	for _, line := range regexp.MustCompile(`(?m)^  ([a-z]+)  `).FindAllStringSubmatch(start, -1) {
		commands = append(commands, line[1])
	}
	for _, group := range regexp.MustCompile(`(?m)^  [a-z]+ +(.*)$`).FindAllStringSubmatch(groups, -1) {
		commands = append(commands, strings.Split(group[1], ", ")...)
	}
	if len(commands) < 20 {
		t.Errorf("the help has %d commands", len(commands))
	}
	for _, command := range commands {
		if command != "help" && !regexp.MustCompile("`"+command+"[ `]").MatchString(treetest.Read(t, "docs/commands.md")) {
			t.Errorf("docs/commands.md does not have the command %s", command)
		}
	}
	for _, page := range []string{
		"README.md", recordedSession, "docs/write-a-tool.md", "docs/embed.md", "docs/serve.md", "docs/assistants.md", "docs/agents.md", "docs/network.md", "docs/commands.md", "docs/proof.md", "docs/share-tools.md",
		"docs/branching.md", "docs/budgets.md", "docs/incident.md", "tools-wasm/dice/README.md", "tools-wasm/json-transform/README.md",
	} {
		text := strings.Replace(treetest.Read(t, page), "demo\n    go test ./...\n", "demo\n", 1) // or it would run itself
		if page == recordedSession {
			text = sessionText(text)
		} else if testing.Short() && page != "README.md" {
			continue // each builds tools and waits for a disk
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			typePage(t, bin, text)
		})
	}
}

// sessionText returns what the picture of a terminal shows, as a page shows it.
func sessionText(picture string) string {
	var lines strings.Builder
	for _, line := range regexp.MustCompile(`(?m)^<text class="(?:typed|out)"[^>]*>(.*)</text>$`).FindAllStringSubmatch(picture, -1) {
		lines.WriteString(strings.TrimRight("    "+html.UnescapeString(line[1]), " ") + "\n")
	}
	return lines.String()
}

var (
	// shownFile is a file that a page shows below its name.
	shownFile = "`([^`\n]+)`:\n\n```\\w*\n((?s:.*?)\n)```\n"
	// session is a command after "$ " with the lines that it prints.
	session = `    \$ .*\n(?:(?:    [^$\n].*)?\n)*`
	// plain are lines to be typed. Documents in JSON are not.
	plain = `(?:    [^ ${}\t\n].*\n|     .*\n)+`
	steps = regexp.MustCompile("(?m)^(?:.*?" + shownFile + "|(?s:```.*?```)\n|(" + session + ")|(" + plain + "))")
)

// typePage carries out a page in a folder of its own.
func typePage(t *testing.T, bin, text string) {
	for _, program := range []string{"bash", "curl", "python3"} {
		if program == "bash" || strings.Contains(text, "    "+program+" ") {
			treetest.Needs(t, program)
		}
	}
	dir, shown := treetest.Outside(t), t.TempDir()
	text = strings.ReplaceAll(text, "registry.example.com", ocitest.Registry(t, nil))
	if strings.Contains(text, "go mod init ") {
		text = regexp.MustCompile(`(?m)^    (mkdir .*\n    go mod init .*\n    go get .*)\n`).ReplaceAllString(text, "") // what outside has done
	} else if out, err := exec.Command("cp", "-R", "guest-sdk", "tools-wasm", "examples", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script := strings.Builder{}
	script.WriteString("trap 'kill $(jobs -p) 2> /dev/null || :; wait' EXIT\n")
	var sessions []readmeCommand
	for _, step := range steps.FindAllStringSubmatch(text, -1) {
		switch {
		case step[1] != "":
			fmt.Fprintf(&script, "mkdir -p $(dirname %[1]s)\ncat > %[1]s << 'END OF FILE'\n%[2]sEND OF FILE\n", step[1], step[2])
		case step[3] != "":
			command := readmeCommands(step[3])[0]
			fmt.Fprintf(&script, "{ %s\n} > \"$SHOWN/%d\" 2>&1 || :\n", command.line, len(sessions))
			sessions = append(sessions, command)
		case step[4] != "":
			script.WriteString(step[4])
		}
	}
	if script.Len() < 100 {
		t.Error("the page shows no command")
	}
	api, host := treetest.FreePort(t), treetest.FreePort(t)
	until := func(ready string) string {
		return "& for i in $(seq 1000); do " + ready + " && break; sleep 0.02; done"
	}
	listens := until("(: < /dev/tcp/127.0.0.1/" + api + ") 2> /dev/null")
	serves := until("curl -sfo /dev/null http://127.0.0.1:" + host + "/api/v1/healthz")
	commands := strings.NewReplacer(
		"git clone https://github.com/starling-host/starling && cd starling", ":", "go install ./cmd/starling-host", ":",
		"serve --dev", "serve --dev --listen 127.0.0.1:"+host, "8300", host, "8080", api, "/tmp/", dir+"/",
	).Replace(script.String())
	commands = regexp.MustCompile(`(?m)(starling-host serve.*)&$`).ReplaceAllString(commands, "${1}"+serves)
	commands = regexp.MustCompile(`(?m)&$`).ReplaceAllString(commands, listens)
	shell := exec.CommandContext(t.Context(), "bash", "-e", "-c", commands)
	shell.Dir, shell.WaitDelay = dir, time.Second
	shell.Env = append(os.Environ(), "SHOWN="+shown, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	if out, err := shell.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, commands, out)
	}
	for i, command := range sessions {
		printed, err := os.ReadFile(filepath.Join(shown, strconv.Itoa(i)))
		if err != nil {
			continue // an earlier command has failed
		}
		if got := mask(string(printed)); !matches(mask(command.output), got) {
			t.Errorf("%s prints\n%s\nand the page says\n%s", command.line, got, mask(command.output))
		}
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
	roots       = regexp.MustCompile(`[A-Za-z0-9+/]{43}=`)
	vkeys       = regexp.MustCompile(`\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}`)
	identifiers = regexp.MustCompile(`\b([0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{16}|[0-9T:.-]{10,}Z)\b`)
	addresses   = regexp.MustCompile(`\b0x[0-9a-f]+`)
	numbers     = regexp.MustCompile(`[0-9][0-9.,]*(µs|ms|s|GiB|MiB|KiB|B)?|effects?`)
	spaces      = regexp.MustCompile(` +`)
	bars        = regexp.MustCompile(`(?m) [=|x]+( +<?[0-9][0-9.]*(µs|ms|s))?$`) // of a tree, with the duration
)

// mask replaces what differs from run to run.
func mask(s string) string {
	s = vkeys.ReplaceAllString(s, "+KEY")
	s = roots.ReplaceAllString(s, "ROOT")
	s = identifiers.ReplaceAllString(s, "ID")
	s = addresses.ReplaceAllString(s, "N")
	s = bars.ReplaceAllString(s, " BAR")
	s = numbers.ReplaceAllString(s, "N")
	s = strings.ReplaceAll(s, " to N:N:N", "") // two times of one second are one
	return strings.TrimSpace(spaces.ReplaceAllString(s, " "))
}

// matches compares line by line. A line of the page that ends with ... is the
// beginning of a longer one. The numbers of rolls may differ between the two,
// because a roll is sometimes drawn twice, so runs of equal lines count once.
func matches(want, got string) bool {
	w, g := compact(want), compact(got)
	if len(w) != len(g) {
		return false
	}
	for i := range w {
		head, cut := strings.CutSuffix(w[i], "...")
		if w[i] != g[i] && !(cut && strings.HasPrefix(g[i], strings.TrimSpace(head))) {
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

// TestSeedNamesExist checks that what docs/seed-names.md says that this project calls
// something is exported by a package of that name.
func TestSeedNamesExist(t *testing.T) {
	out, err := exec.Command("git", "grep", "-E", "^(type |func (\\([^)]*\\) )?|const |var |\t)[A-Z]", "--", "*.go", ":!*_test.go").Output()
	if err != nil {
		t.Skipf("SKIPPED: this is no checkout: %v", err)
	}
	exported := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^(?:.*/)?(\w+)/\w+\.go:(?:type |func (?:\([^)]*\) )?|const |var )([A-Z]\w*)|^(?:.*/)?(\w+)/\w+\.go:\t([A-Z]\w*) .*= `).FindAllStringSubmatch(string(out), -1) {
		exported[line[1]+line[3]+"."+line[2]+line[4]] = true
	}
	named := regexp.MustCompile("`" + `(?:\*|&)?([a-z]+\.[A-Z]\w*)`)
	seen := 0
	for line := range strings.Lines(treetest.Read(t, "docs/seed-names.md")) {
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

// TestLinks checks that the links of all pages lead to files and headings that exist, and
// that the paths that the two maps of the repository name are there.
func TestLinks(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "*.md").Output()
	if err != nil {
		t.Skipf("SKIPPED: this is no checkout: %v", err)
	}
	fences := regexp.MustCompile("(?s)\n *```.*?\n *```")
	links := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	anchors := func(page string) []string {
		var found []string
		for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(fences.ReplaceAllString(page, ""), -1) {
			name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
			found = append(found, strings.ReplaceAll(name, " ", "-"))
		}
		return found
	}
	for page := range strings.Lines(string(out)) {
		page = strings.TrimSpace(page)
		for _, link := range links.FindAllStringSubmatch(fences.ReplaceAllString(treetest.Read(t, page), ""), -1) {
			target, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(target, ":") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if sdk, found := strings.CutPrefix(target, "sdk/"); found && strings.Contains(page, "/template") { // which a new tool has
				path = filepath.Join(filepath.Dir(filepath.Dir(page)), sdk)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s, which is not there", page, link[1])
			} else if anchor != "" && !slices.Contains(anchors(treetest.Read(t, path)), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", page, link[1])
			}
		}
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, e := range entries {
		if e.IsDir() {
			folders = append(folders, regexp.QuoteMeta(e.Name())+"/")
		}
	}
	for _, page := range []string{"CONTRIBUTING.md", "docs/architecture.md"} {
		for _, path := range regexp.MustCompile("`((?:"+strings.Join(folders, "|")+")[A-Za-z0-9_./-]*)`").FindAllStringSubmatch(treetest.Read(t, page), -1) {
			if _, err := os.Stat(path[1]); err != nil {
				t.Errorf("%s names %s, which is not there", page, path[1])
			}
		}
	}
}

// TestCodeModeTableIsMeasured: the page shows rows of the report that "make
// bench-code" writes.
func TestCodeModeTableIsMeasured(t *testing.T) {
	measured := treetest.Read(t, filepath.Join("bench", "results", "codemode.md"))
	_, table, _ := strings.Cut(treetest.Read(t, filepath.Join("docs", "agents.md")), "### What a program saves\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		if rows++; !strings.Contains(measured, line) {
			t.Errorf("docs/agents.md has a row that bench/results/codemode.md has not: %s", line)
		}
	}
	if rows < 5 {
		t.Errorf("the table has %d rows", rows)
	}
}
