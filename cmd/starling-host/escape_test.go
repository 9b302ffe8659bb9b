package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain text stays", "Zürich 東京 ok", "Zürich 東京 ok"},
		{"an ANSI sequence is shown", "a\x1b[31mred", `a\x1b[31mred`},
		{"a C1 control is shown", "a\u009b31m", `a\u009b31m`},
		{"a line break and a tab are shown", "a\n\tb\r", `a\n\tb\r`},
		{"a bidirectional override is shown", "a\u202eb\u2066c", `a\u202eb\u2066c`},
		{"a zero-width space and a byte order mark are shown", "a\u200bb\ufeff", `a\u200bb\ufeff`},
		{"a tag character is shown", "a\U000e0041", `a\U000e0041`},
		{"a line separator is shown", "a\u2028b", `a\u2028b`},
		{"bytes that are not UTF-8 are shown", "a\xffb\xc3", `a\xffb\xc3`},
		{"the replacement character itself stays", "a\ufffd", "a\ufffd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := printable(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestPrintableLines(t *testing.T) {
	got := printableLines("main.go:3: x\r\n\tdeclared\x1b[0m\n\nend\n\n")
	want := []string{"main.go:3: x", `    declared\x1b[0m`, "", "end"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := printableLines("\n\n"); got != nil {
		t.Errorf("got %q for nothing", got)
	}
}

// TestPrinterLetsNothingThrough is what each method of a printer makes of hostile text.
func TestPrinterLetsNothingThrough(t *testing.T) {
	type place string // a type of text that is not string
	const hostile = "\x1b[2J\u202e\r\n\u009b\u2028é\U000e0041\x7f"
	const line = `\x1b[2J\u202e\r\n\u009b\u2028é\U000e0041\x7f`
	const json = "\\u001b[2J\\u202e\\u000d\n\\u009b\\u2028é\\udb40\\udc41\\u007f"
	for _, terminal := range []bool{false, true} {
		var out strings.Builder
		p := &printer{to: &out, terminal: terminal}
		p.printf("%s %s %v %3d\n", hostile, place(hostile), &url.URL{Opaque: "x"}, 7)
		p.printf("%v\n", errors.Join(errors.New(hostile), errors.New("second")))
		io.WriteString(p.lines(), hostile+"\xff\t\n")
		want := line + " " + line + " x   7\n" + strings.Replace(line, `\r\n`, "; ", 1) + "; second\n" + json + "\\ufffd\t\n"
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Error(d)
		}
		out.Reset()
		io.WriteString(p.exact(), hostile)
		if want := map[bool]string{false: hostile, true: json}[terminal]; out.String() != want {
			t.Errorf("exact bytes to a terminal %t: %q", terminal, out.String())
		}
	}
}

// FuzzPrintable checks what the functions promise for any text: nothing that a
// terminal obeys is left, and JSON keeps its value.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff\U000e0041\n")
	f.Fuzz(func(t *testing.T, s string) {
		escaped := map[string]string{"printable": printable(s), "ascii": ascii(s), "lines": strings.Join(printableLines(s), "")}
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		(&printer{to: &out}).lines().Write(doc)
		escaped["JSON"] = out.String()
		for name, text := range escaped {
			for _, r := range text {
				if !strconv.IsPrint(r) || name == "ascii" && r >= utf8.RuneSelf {
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

func TestShorten(t *testing.T) {
	for in, want := range map[string]string{"abcdef": "abcdef", "abcdefg": "abc...", "äöüäöü": "äöüäöü", "äöüäöüß": "äöü..."} {
		if got := shorten(in, 6); got != want {
			t.Errorf("shorten(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPasteable(t *testing.T) {
	for want, args := range map[string][]string{
		"x":                              nil,
		"x a.db @last":                   {"a.db", "@last"},
		"x -- 'my runs.db' --confirm":    {"my runs.db", "--confirm"},
		`x a.db '$(touch${IFS}PWNED)'`:   {"a.db", "$(touch${IFS}PWNED)"},
		`x '\x1b[2J'\''\n;reboot' '=ls'`: {"\x1b[2J'\n;reboot", "=ls"},
	} {
		if got := pasteable("x", args...); got != want {
			t.Errorf("%q is %s, want %s", args, got, want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"starling.db": "starling.db", "": "''", "my runs.db": "'my runs.db'", "it's": `'it'\''s'`, "$(reboot)": "'$(reboot)'",
		"[::1]:80": "'[::1]:80'",
	} {
		if got := shellWord(in); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", in, got, want)
		}
	}
}
