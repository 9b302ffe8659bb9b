package display_test

import (
	"errors"
	"testing"
	"time"

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
		"plain é 漢":   "plain é 漢",
		"a\nb\tc":     `a\nb\tc`,
		"\x1b[2J":     `\x1b[2J`,
		"a\u202eb":    `a\u202eb`,
		"\u200bhid":   `\u200bhid`,
		"bad \xff":    `bad \xff`,
		"\U000e0041x": `\U000e0041x`,
	} {
		if got := display.Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
	if got := display.PrintableError(errors.Join(errors.New("a\x1b"), errors.New("b\n\n c"))); got != `a\x1b; b; c` {
		t.Errorf("joined errors read %q", got)
	}
	if got := display.Shorten("abcdef", 5); got != "ab..." {
		t.Errorf("got %q", got)
	}
}
