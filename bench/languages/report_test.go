package main

import (
	"os"
	"strings"
	"testing"

	guestsdk "github.com/starling-host/starling/guest-sdk"
)

const page = "../../docs/languages.md"

// TestPage checks that the tables of the page have every language.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(text), begin)
	tables, _, _ = strings.Cut(tables, end)
	for _, l := range guestsdk.Languages() {
		rows := 0
		for line := range strings.Lines(tables) {
			if title, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.Contains(", "+title+",", " "+l.Title+",") {
				rows++
			}
		}
		if rows != 2 {
			t.Errorf("%s has %d rows for %s, want 2\nhint: make bench-languages", page, rows, l.Title)
		}
	}
}

// TestReplace replaces the tables of a page and nothing else.
func TestReplace(t *testing.T) {
	got, err := replace("# Page\n"+begin+"old\n"+end+"More.\n", "new\n")
	if want := "# Page\n" + begin + "new\n" + end + "More.\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, text := range []string{"# Page\n", begin + "old\n", end + begin} {
		if got, err := replace(text, "new\n"); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestReport checks that what was not measured is a dash.
func TestReport(t *testing.T) {
	l, p := newSubject("Go"), newSubject("`node -e`")
	l.wasm[transform], l.fuel[first], l.fuel[hello] = make([]byte, 2048), 1234567, 99
	l.nanos[first], l.nanos[transform], p.nanos[transform] = []float64{3e9, 2e9, 1e9}, []float64{1e6, 2e6}, []float64{1e8, 4e8}
	text := report([]*subject{l, p}, settings{}, 1)
	for _, want := range []string{
		"| Go | 2KiB | 2s | - | 1,234,567 | - | - | - |\n",
		"| Go | 99 | - | - | - | 2ms | 1 | - | - | - | - |\n",
		"| `node -e` | - | - | - | - | 400ms | 200 | - | - | - | - |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
