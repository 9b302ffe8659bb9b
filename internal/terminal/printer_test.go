package terminal

import (
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrintableLines(t *testing.T) {
	got := PrintableLines("main.go:3: x\r\n\tdeclared\x1b[0m\n\nend\n\n")
	want := []string{"main.go:3: x", `    declared\x1b[0m`, "", "end"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := PrintableLines("\n\n"); got != nil {
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
		p := &Printer{to: &out, Terminal: terminal}
		p.Printf("%s %s %v %3d\n", hostile, place(hostile), &url.URL{Opaque: "x"}, 7)
		p.Printf("%v\n", errors.Join(errors.New(hostile), errors.New("second")))
		io.WriteString(p.Lines(), hostile+"\xff\t\n")
		want := line + " " + line + " x   7\n" + strings.Replace(line, `\r\n`, "; ", 1) + "; second\n" + json + "\\ufffd\t\n"
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Error(d)
		}
		out.Reset()
		io.WriteString(p.Exact(), hostile)
		if want := map[bool]string{false: hostile, true: json}[terminal]; out.String() != want {
			t.Errorf("exact bytes to a terminal %t: %q", terminal, out.String())
		}
	}
}
