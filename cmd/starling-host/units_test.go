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
		{"1", fuelUnits, 1},
		{"10M", fuelUnits, 10e6},
		{"2G", fuelUnits, 2e9},
		{"3k", fuelUnits, 3000},
		{"4T", fuelUnits, 4e12},
		{"9223372036854775807", fuelUnits, 1<<63 - 1},
		{"9223372036854775808", fuelUnits, 0},
		{"99999999T", fuelUnits, 0},
		{"18446744073709551616", fuelUnits, 0},
		{"0", fuelUnits, 0},
		{"0M", fuelUnits, 0},
		{"-1", fuelUnits, 0},
		{"+1", fuelUnits, 0},
		{"1.5M", fuelUnits, 0},
		{"1_000", fuelUnits, 0},
		{"M", fuelUnits, 0},
		{"", fuelUnits, 0},
		{" 1", fuelUnits, 0},
		{"10m", fuelUnits, 0},
		{"64MiB", sizeUnits, 64 << 20},
		{"4GiB", sizeUnits, 4 << 30},
		{"1024", sizeUnits, 1024},
		{"64MB", sizeUnits, 0},
	} {
		got, err := display.ParseCount(c.in, c.units)
		if (err != nil) != (c.want == 0) || got != c.want {
			t.Errorf("parseCount(%q) = %d, %v; want %d", c.in, got, err, c.want)
		}
	}
}

func TestFormat(t *testing.T) {
	for got, want := range map[string]string{
		formatFuel(999):                  "999",
		formatFuel(1500):                 "1.5k",
		formatFuel(20e9):                 "20G",
		formatSize(512):                  "512B",
		formatSize(64 << 20):             "64MiB",
		formatSize(1536):                 "1.5KiB",
		grouped(0):                       "0",
		grouped(999):                     "999",
		grouped(1000):                    "1,000",
		grouped(1234567):                 "1,234,567",
		plural(1, "event"):               "1 event",
		plural(0, "event"):               "0 events",
		formatTime(1_700_000_000_123e6):  "2023-11-14T22:13:20.123Z",
		formatDuration(12_345_678):       "12.3ms",
		formatDuration(90 * time.Second): "1m30s",
		formatDuration(1234 * time.Microsecond * 1000): "1.234s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFlagValues(t *testing.T) {
	var n uint64
	f := counted(&n, sizeUnits, "SIZE", 1<<30)
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
