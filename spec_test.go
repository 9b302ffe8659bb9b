package starling_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/treetest"
)

// TestTiersOfTheSpec checks that each promise in SPEC.md names its tier, and that a test
// of the tier "check" does the same under -short as without.
func TestTiersOfTheSpec(t *testing.T) {
	files, err := exec.Command("git", "grep", "-l", "^func Test", "--", "*_test.go").Output()
	if err != nil {
		t.Skipf("SKIPPED: this is no checkout: %v", err)
	}
	body := regexp.MustCompile(`(?m)^func (Test\w+)\(.*(\n(\t.*)?)*`)
	skips := regexp.MustCompile(`testing\.Short\(\)|\b(skipShort|newCrowd|smallDisk|outages)\(t`) // or what calls it, in cmd
	shortened := map[string]bool{}
	for file := range strings.FieldsSeq(string(files)) {
		for _, f := range body.FindAllStringSubmatch(treetest.Read(t, file), -1) {
			shortened[f[1]] = shortened[f[1]] || skips.MatchString(f[0])
		}
	}
	tier := regexp.MustCompile(`^(check|test|ci|nightly)\b`)
	name := regexp.MustCompile(`\bTest[A-Z]\w+|\b\w+\.txtar`)
	promises := 0
	for _, table := range strings.Split(treetest.Read(t, "SPEC.md"), "| promise | test | tier |\n|---|---|---|\n")[1:] {
		rows, _, _ := strings.Cut(table, "\n\n")
		for row := range strings.Lines(rows) {
			cells := strings.Split(strings.Trim(row, "|\n"), " | ")
			if promises++; len(cells) != 3 {
				t.Errorf("not three cells: %s", row)
				continue
			}
			held := tier.FindString(strings.TrimSpace(cells[2]))
			if held == "" && !strings.Contains(row, "nothing is promised") {
				t.Errorf("no tier: %s", row)
			}
			for _, test := range name.FindAllString(cells[1], -1) {
				if text, err := os.ReadFile("cmd/starling-host/testdata/script/" + test); err == nil {
					shortened[test] = bytes.Contains(text, []byte("\n[short] skip"))
				}
				if held == "check" && shortened[test] {
					t.Errorf("%s does less under -short than SPEC.md says", test)
				}
			}
		}
	}
	if promises < 100 {
		t.Errorf("%d promises were found", promises)
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
		for _, name := range named.FindAllString(treetest.Read(t, file), -1) {
			if !names[name] {
				t.Errorf("%s names %s, which is not there", file, name)
			}
		}
	}
}
