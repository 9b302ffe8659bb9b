package terminal

import (
	"strings"
	"testing"
)

// TestOutputStyleOfForeignText: only this program's words have one, and what is escaped on a
// terminal without colours is escaped with them.
func TestOutputStyleOfForeignText(t *testing.T) {
	const hostile = "a\x1b[31m\ue00031mb\ue001\u202e\n"
	for coloured, want := range map[bool]string{
		false: `[a\x1b[31m\ue00031mb\ue001\u202e\n] a\x1b[31m\ue00031mb\ue001\u202e\n ["\ue00031m\ue001"] end` + "\n",
		true:  "\x1b[31m" + `[a\x1b[31m\ue00031mb\ue001\u202e\n]` + "\x1b[0m" + ` a\x1b[31m\ue00031mb\ue001\u202e\n ["\ue00031m\ue001"] end` + "\n",
	} {
		var out strings.Builder
		p := &Printer{to: &out, Coloured: coloured}
		p.Printf("%s %s %q end\n", Bad.Of("["+hostile+"]"), hostile, []string{"\ue00031m\ue001"})
		if got := out.String(); got != want {
			t.Errorf("coloured %t:\n got %q\nwant %q", coloured, got, want)
		}
	}
}

func TestLinesAreWrapped(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"one two":               "one two",
		"one two three":         "one two |three",
		"oneandtwoandthree":     "oneandtw|oandthre|e",
		"é漢é漢é漢 é漢":             "é漢é漢é漢 |é漢",
		"a bcdefghijk":          "a bcdefg|hijk",
		"one two three four sx": "one two |three |four sx",
	} {
		if got := strings.Join(wrapped(text, 8), "|"); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
