package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReceiptSnippets checks that the code in receipts.md is that of examples/receipts, which the tests
// of package receipt run on other people's libraries.
func TestReceiptSnippets(t *testing.T) {
	page, err := os.ReadFile("docs/receipts.md")
	if err != nil {
		t.Fatal(err)
	}
	for language, file := range map[string]string{"js": "verify.mjs", "python": "verify.py"} {
		code, err := os.ReadFile("examples/receipts/" + file)
		if err != nil {
			t.Fatal(err)
		}
		has := map[string]bool{}
		for line := range strings.Lines(string(code)) {
			has[strings.TrimSpace(line)] = true
		}
		snippet := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
		if snippet == nil {
			t.Fatalf("receipts.md has no %s", language)
		}
		for line := range strings.Lines(string(snippet[1])) {
			if line = strings.TrimSpace(line); !has[line] {
				t.Errorf("%s has no line %s", file, line)
			}
		}
	}
}
