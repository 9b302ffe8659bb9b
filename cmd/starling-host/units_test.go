package main

import (
	"testing"
	"time"

	"github.com/starling-host/starling/internal/display"
)

func TestParseCount(t *testing.T) {
	for _, c := range []struct {
		in    string
		units []display.Unit
		want  uint64 // 0: refused
	}{
		{"1", display.FuelUnits(), 1},
		{"10M", display.FuelUnits(), 10e6},
		{"2G", display.FuelUnits(), 2e9},
		{"3k", display.FuelUnits(), 3000},
		{"4T", display.FuelUnits(), 4e12},
		{"9223372036854775807", display.FuelUnits(), 1<<63 - 1},
		{"9223372036854775808", display.FuelUnits(), 0},
		{"99999999T", display.FuelUnits(), 0},
		{"18446744073709551616", display.FuelUnits(), 0},
		{"0", display.FuelUnits(), 0},
		{"0M", display.FuelUnits(), 0},
		{"-1", display.FuelUnits(), 0},
		{"+1", display.FuelUnits(), 0},
		{"1.5M", display.FuelUnits(), 0},
		{"1_000", display.FuelUnits(), 0},
		{"M", display.FuelUnits(), 0},
		{"", display.FuelUnits(), 0},
		{" 1", display.FuelUnits(), 0},
		{"10m", display.FuelUnits(), 0},
		{"64MiB", display.SizeUnits(), 64 << 20},
		{"4GiB", display.SizeUnits(), 4 << 30},
		{"1024", display.SizeUnits(), 1024},
		{"64MB", display.SizeUnits(), 0},
	} {
		got, err := display.ParseCount(c.in, c.units)
		if (err != nil) != (c.want == 0) || got != c.want {
			t.Errorf("parseCount(%q) = %d, %v; want %d", c.in, got, err, c.want)
		}
	}
}

func TestFormat(t *testing.T) {
	for got, want := range map[string]string{
		display.Fuel(999):                                "999",
		display.Fuel(1500):                               "1.5k",
		display.Fuel(20e9):                               "20G",
		display.Size(512):                                "512B",
		display.Size(64 << 20):                           "64MiB",
		display.Size(1536):                               "1.5KiB",
		display.Digits(0):                                "0",
		display.Digits(999):                              "999",
		display.Digits(1000):                             "1,000",
		display.Digits(1234567):                          "1,234,567",
		display.Plural(1, "event"):                       "1 event",
		display.Plural(0, "event"):                       "0 events",
		display.Time(time.UnixMilli(1_700_000_000_123)):  "2023-11-14T22:13:20.123Z",
		display.Duration(12_345_678):                     "12.3ms",
		display.Duration(90 * time.Second):               "1m30s",
		display.Duration(1234 * time.Microsecond * 1000): "1.234s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFlagValues(t *testing.T) {
	var n uint64
	f := counted(&n, display.SizeUnits(), "SIZE", 1<<30)
	if err := f.Set("2GiB"); err == nil || n != 0 {
		t.Errorf("2GiB is above the maximum: %v, %d", err, n)
	}
	if err := f.Set("64MiB"); err != nil || n != 64<<20 {
		t.Errorf("got %v, %s", err, f)
	}
	word := "text"
	c := choice(&word, "text", "json")
	if err := c.Set("yaml"); err == nil || err.Error() != "must be text or json" || word != "text" {
		t.Errorf("got %v, %s", err, word)
	}
	if err := c.Set("json"); err != nil || word != "json" {
		t.Errorf("got %v, %s", err, word)
	}
}
