package debug

import (
	"bufio"
	"errors"
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
	for _, c := range commands() {
		if line := c.help(); len(line) > 80 {
			t.Errorf("%d characters: %s", len(line), line)
		}
		name, _, _ := strings.Cut(c.name, " ")
		if name != "help" && name != "quit" && !strings.Contains(string(manual), "`"+name) {
			t.Errorf("docs/debug.md does not name %s", name)
		}
	}
}

// A line that is too long does not end a session, and a misspelt command finds the right one.
func TestDebugInput(t *testing.T) {
	p := &Prompt{Stdin: strings.NewReader(strings.Repeat("a", 100_000) + "\ninfo\n")}
	next, _ := p.reader()
	if _, err := next(); !errors.Is(err, bufio.ErrBufferFull) {
		t.Errorf("a long line: %v", err)
	}
	if line, err := next(); line != "info" || err != nil {
		t.Errorf("the line behind it is %q, %v", line, err)
	}
	if _, err := findCommand("brek"); err == nil || !strings.Contains(err.Error(), "did you mean break?") {
		t.Errorf("brek: %v", err)
	}
}
