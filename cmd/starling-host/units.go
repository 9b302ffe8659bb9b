package main

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/host/narrate"
)

// Fuel is counted, so its suffixes are powers of ten; memory comes in powers of
// two and is written as such.
var (
	fuelUnits = narrate.FuelUnits()
	sizeUnits = narrate.SizeUnits()
)

// parseCount reads a positive whole number with one of the suffixes, or none.
func parseCount(s string, units []narrate.Unit) (uint64, error) {
	digits, factor := s, uint64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.Suffix); ok {
			digits, factor = rest, u.Factor
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("must be a positive whole number, or one with a suffix like %d%s", 10, units[1].Suffix)
	}
	high, total := bits.Mul64(n, factor)
	if high != 0 || total > math.MaxInt64 {
		return 0, fmt.Errorf("must be less than 2^63")
	}
	return total, nil
}

func formatFuel(n uint64) string            { return narrate.Fuel(n) }
func formatSize(n uint64) string            { return narrate.Size(n) }
func formatDuration(d time.Duration) string { return narrate.Duration(d) }

// formatTime writes nanoseconds since 1970 as UTC with milliseconds.
func formatTime(unixNano int64) string {
	return time.Unix(0, unixNano).UTC().Format(timeLayout)
}

// timeLayout is how times are printed, in UTC.
const timeLayout = "2006-01-02T15:04:05.000Z"

func plural[N int | uint64](n N, noun string) string { return narrate.Plural(n, noun) }

func grouped(n uint64) string { return narrate.Grouped(n) }

// countFlag is a flag whose value is a number with a suffix.
type countFlag struct {
	value *uint64
	units []narrate.Unit
	name  string // of the value, in the help text
	max   uint64 // the largest accepted value, 0 for 2^63-1
}

func (f countFlag) String() string {
	if f.value == nil || *f.value == 0 {
		return ""
	}
	return narrate.Count(*f.value, f.units, "")
}

func (f countFlag) Type() string { return f.name }

func (f countFlag) Set(s string) error {
	n, err := parseCount(s, f.units)
	if err != nil {
		return err
	}
	if limit := cmp.Or(f.max, math.MaxInt64); n > limit {
		return fmt.Errorf("must be at most %s", narrate.Count(limit, f.units, ""))
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
