package main

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// unit is a suffix and what it multiplies by.
type unit struct {
	suffix string
	factor uint64
}

// Fuel is counted, so its suffixes are powers of ten; memory comes in powers of
// two and is written as such.
var (
	fuelUnits = []unit{{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}}
	sizeUnits = []unit{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}
)

// parseCount reads a positive whole number with one of the suffixes, or none.
func parseCount(s string, units []unit) (uint64, error) {
	digits, factor := s, uint64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			digits, factor = rest, u.factor
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("must be a positive whole number, or one with a suffix like %d%s", 10, units[1].suffix)
	}
	high, total := bits.Mul64(n, factor)
	if high != 0 || total > math.MaxInt64 {
		return 0, fmt.Errorf("must be less than 2^63")
	}
	return total, nil
}

// formatCount writes n with the largest suffix that leaves at least 1 and as
// few decimals as n has, at most one.
func formatCount(n uint64, units []unit, plain string) string {
	for i := len(units) - 1; i >= 0; i-- {
		if u := units[i]; n >= u.factor {
			text := strconv.FormatFloat(float64(n)/float64(u.factor), 'f', 1, 64)
			return strings.TrimSuffix(text, ".0") + u.suffix
		}
	}
	return strconv.FormatUint(n, 10) + plain
}

func formatFuel(n uint64) string { return formatCount(n, fuelUnits, "") }
func formatSize(n uint64) string { return formatCount(n, sizeUnits, "B") }

// formatDuration rounds to what a reader can use: three digits or so.
func formatDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// formatTime writes nanoseconds since 1970 as UTC with milliseconds.
func formatTime(unixNano int64) string {
	return time.Unix(0, unixNano).UTC().Format("2006-01-02T15:04:05.000Z")
}

// plural writes a count and its noun: 1 event, 2 events.
func plural[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// grouped writes n with its digits in groups of three.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// countFlag is a flag whose value is a number with a suffix.
type countFlag struct {
	value *uint64
	units []unit
	name  string // of the value, in the help text
	max   uint64 // the largest accepted value, 0 for 2^63-1
}

func (f countFlag) String() string {
	if f.value == nil || *f.value == 0 {
		return ""
	}
	return formatCount(*f.value, f.units, "")
}

func (f countFlag) Type() string { return f.name }

func (f countFlag) Set(s string) error {
	n, err := parseCount(s, f.units)
	if err != nil {
		return err
	}
	if limit := cmp.Or(f.max, math.MaxInt64); n > limit {
		return fmt.Errorf("must be at most %s", formatCount(limit, f.units, ""))
	}
	*f.value = n
	return nil
}

// choiceFlag is a flag that takes one of a few words.
type choiceFlag struct {
	value   *string
	choices []string
}

func (f choiceFlag) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}

func (f choiceFlag) Type() string { return strings.Join(f.choices, "|") }

func (f choiceFlag) Set(s string) error {
	for _, c := range f.choices {
		if s == c {
			*f.value = s
			return nil
		}
	}
	return fmt.Errorf("must be %s", strings.Join(f.choices, " or "))
}
