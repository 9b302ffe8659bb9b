package display_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/internal/display"
)

func TestAmounts(t *testing.T) {
	for got, want := range map[string]string{
		display.Fuel(999):                  "999",
		display.Fuel(1500):                 "1.5k",
		display.Fuel(20e9):                 "20G",
		display.Size(512):                  "512B",
		display.Size(64 << 20):             "64MiB",
		display.Size(1536):                 "1.5KiB",
		display.Digits(0):                  "0",
		display.Digits(999):                "999",
		display.Digits(1234567):            "1,234,567",
		display.Plural(1, "event"):         "1 event",
		display.Plural(0, "event"):         "0 events",
		display.Duration(12_345_678):       "12.3ms",
		display.Duration(90 * time.Second): "1m30s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"Zürich 東京 ok":   "Zürich 東京 ok",
		"a\n\tb\r":       `a\n\tb\r`,
		"a\x1b[31mred":   `a\x1b[31mred`, // an ANSI sequence
		"a\u009b31m":     `a\u009b31m`,   // a C1 control
		"a\u202eb\u2066": `a\u202eb\u2066`,
		"a\u200bb\ufeff": `a\u200bb\ufeff`,
		"\U000e0041x":    `\U000e0041x`, // a tag character
		"a\u2028b":       `a\u2028b`,
		"a\xffb\xc3":     `a\xffb\xc3`,
		"a\ufffd":        "a\ufffd",
	} {
		if got := display.Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
	if got := display.PrintableError(errors.Join(errors.New("a\x1b"), errors.New("b\n\n c"))); got != `a\x1b; b; c` {
		t.Errorf("joined errors read %q", got)
	}
	for in, want := range map[string]string{"abcdef": "abcdef", "abcdefg": "abc...", "äöüäöü": "äöüäöü", "äöüäöüß": "äöü..."} {
		if got := display.Shorten(in, 6); got != want {
			t.Errorf("Shorten(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzPrintable checks what the functions promise for any text: nothing that a
// terminal obeys is left, and JSON keeps its value.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff\U000e0041\n")
	f.Fuzz(func(t *testing.T, s string) {
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		escaped := map[string]string{
			"Printable": display.Printable(s), "ASCII": display.ASCII(s), "JSON": string(display.PrintableJSON(doc)),
			"text": strings.ReplaceAll(display.PrintableText(s), "\n", ""),
		}
		for name, text := range escaped {
			for _, r := range text {
				if !strconv.IsPrint(r) || name == "ASCII" && r >= utf8.RuneSelf {
					t.Errorf("%s left %U in %q", name, r, text)
				}
			}
		}
		var before, after string
		if json.Unmarshal(doc, &before) != nil || json.Unmarshal([]byte(escaped["JSON"]), &after) != nil || before != after {
			t.Errorf("JSON changed from %q to %q", before, after)
		}
	})
}

func TestPeriod(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	for want, ago := range map[string][2]time.Duration{
		"09:00:00 09:30:00":                       {time.Hour, 30 * time.Minute},
		"09:00:00 ":                               {time.Hour, time.Hour - time.Millisecond},
		"2026-03-01 09:00:00 10:00:00":            {25 * time.Hour, 24 * time.Hour},
		"2026-03-01 09:00:00 2026-03-02 09:00:00": {25 * time.Hour, time.Hour},
	} {
		if from, to := display.Period(now.Add(-ago[0]), now.Add(-ago[1]), now); from+" "+to != want {
			t.Errorf("got %s %s, want %s", from, to, want)
		}
	}
}

// TestShorten cuts a text to any width, even one without room for the dots.
func TestShorten(t *testing.T) {
	for width, want := range []string{"", ".", "..", "...", "é...", "éxyza", "éxyza"} {
		if got := display.Shorten("éxyza", width); got != want {
			t.Errorf("to %d: %q, want %q", width, got, want)
		}
	}
	if got := display.Shorten("ab", -1); got != "" {
		t.Errorf("to -1: %q", got)
	}
}

// TestFit cuts a text to cells of a terminal, in which wide characters take two and accents none.
func TestFit(t *testing.T) {
	for text, want := range map[string]string{"東京都千代田区": "東...", "e\u0301xyzab": "e\u0301xyzab", "Wien": "Wien", "": ""} {
		if got := display.Fit(text, 6); got != want || display.Cells(got) > 6 {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := display.Fit("東京", 0); got != "" {
		t.Errorf("to no cell: %q", got)
	}
}

func TestCommand(t *testing.T) {
	for want, args := range map[string][]string{
		"x":                              nil,
		"x a.db @last":                   {"a.db", "@last"},
		"x -- 'my runs.db' --confirm":    {"my runs.db", "--confirm"},
		`x a.db '$(touch${IFS}PWNED)'`:   {"a.db", "$(touch${IFS}PWNED)"},
		`x '\x1b[2J'\''\n;reboot' '=ls'`: {"\x1b[2J'\n;reboot", "=ls"},
	} {
		if got := display.Command("x", args...); got != want {
			t.Errorf("%q is %s, want %s", args, got, want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"starling.db": "starling.db", "": "''", "my runs.db": "'my runs.db'", "it's": `'it'\''s'`, "$(reboot)": "'$(reboot)'",
		"[::1]:80": "'[::1]:80'",
	} {
		if got := display.ShellWord(in); got != want {
			t.Errorf("display.ShellWord(%q) = %s, want %s", in, got, want)
		}
	}
}
