package main

import (
	"os"
	"strings"
	"testing"
)

// Each command of the prompt has a line of help that fits a terminal, and its name is in the manual.
func TestDebugCommandsAreDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../docs/debug.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range debugCommands {
		if line := c.help(); len(line) > 80 {
			t.Errorf("%d characters: %s", len(line), line)
		}
		name, _, _ := strings.Cut(c.name, " ")
		if name != "help" && name != "quit" && !strings.Contains(string(manual), "`"+name) {
			t.Errorf("docs/debug.md does not name %s", name)
		}
	}
}
