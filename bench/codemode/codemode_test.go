package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestQuick runs all parts for a moment: every contender gives the right answer, both ways
// of the task make the same calls, and their runs replay. It looks at no time.
func TestQuick(t *testing.T) {
	parts := "calls,starts"
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("SKIPPED: there is no node")
	}
	if _, err := os.Stat("node_modules"); err == nil {
		parts = "task," + parts
	} else {
		t.Log("without the part task, which needs npm ci in bench/codemode")
	}
	text, err := run(t.Context(), settings{rounds: 1, slice: time.Millisecond, starts: 1}, parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| run_js: sandbox, fuel, recorded in SQLite |", "| run_py, recorded in SQLite |", "| Node's `vm` |"} {
		if !strings.Contains(text, row) {
			t.Errorf("the report lacks %q:\n%s", row, text)
		}
	}
	if strings.HasPrefix(parts, "task,") && !strings.Contains(text, "| turns of the model | 11 | 3 |") {
		t.Errorf("the ways do not take 11 and 3 turns:\n%s", text)
	}
}
