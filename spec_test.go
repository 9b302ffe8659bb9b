package starling_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestTiersOfTheSpec checks that each promise in SPEC.md names its tier, and that a test
// of the tier "check" does the same under -short as without.
func TestTiersOfTheSpec(t *testing.T) {
	files, err := exec.Command("git", "grep", "-l", "^func Test", "--", "*_test.go").Output()
	if err != nil {
		t.Skipf("SKIPPED: this is no checkout: %v", err)
	}
	body := regexp.MustCompile(`(?m)^func (Test\w+)\(.*(\n(\t.*)?)*`)
	shortened := map[string]bool{}
	for file := range strings.FieldsSeq(string(files)) {
		for _, f := range body.FindAllStringSubmatch(document(t, file), -1) {
			shortened[f[1]] = shortened[f[1]] || strings.Contains(f[0], "testing.Short()")
		}
	}
	tier := regexp.MustCompile(`^(check|test|ci|nightly)\b`)
	name := regexp.MustCompile(`\bTest[A-Z]\w+`)
	promises := 0
	for _, table := range strings.Split(document(t, "SPEC.md"), "| promise | test | tier |\n|---|---|---|\n")[1:] {
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
