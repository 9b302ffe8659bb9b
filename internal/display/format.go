package display

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Unit is a suffix with its factor.
type Unit struct {
	Suffix string
	Factor uint64
}

// FuelUnits are the units of fuel, which is counted: powers of ten, the smallest first.
func FuelUnits() []Unit { return []Unit{{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}} }

// SizeUnits are the units of memory, which comes in powers of two.
func SizeUnits() []Unit { return []Unit{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} }

// Count writes n with the largest suffix that leaves at least 1 and as few
// decimals as n has, at most one. Without any, plain is the suffix.
func Count(n uint64, units []Unit, plain string) string {
	for i := len(units) - 1; i >= 0; i-- {
		if u := units[i]; n >= u.Factor {
			text := strconv.FormatFloat(float64(n)/float64(u.Factor), 'f', 1, 64)
			return strings.TrimSuffix(text, ".0") + u.Suffix
		}
	}
	return strconv.FormatUint(n, 10) + plain
}

// ParseCount reads a positive whole number below 2^63, with or without a suffix.
func ParseCount(s string, units []Unit) (uint64, error) {
	digits, factor := s, uint64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.Suffix); ok {
			digits, factor = rest, u.Factor
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("must be a positive whole number, or one with a suffix like 10%s", units[1].Suffix)
	}
	high, total := bits.Mul64(n, factor)
	if high != 0 || total > math.MaxInt64 {
		return 0, errors.New("must be less than 2^63")
	}
	return total, nil
}

// Fuel writes an amount of fuel, such as 20G.
func Fuel(n uint64) string { return Count(n, FuelUnits(), "") }

// Size writes a number of bytes, such as 1.5MiB.
func Size(n uint64) string { return Count(n, SizeUnits(), "B") }

// SizeOf writes the bytes used and their bound, such as "1.5MiB of 8MiB". A negative bound means no bound.
func SizeOf(used, bound int64) string {
	if bound < 0 {
		return Size(uint64(max(used, 0))) + ", no bound"
	}
	return Size(uint64(max(used, 0))) + " of " + Size(uint64(bound))
}

// Duration rounds to a useful precision: three digits or so.
func Duration(d time.Duration) string {
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

// Plural writes a count and its noun: 1 event, 2 events.
func Plural[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Counted is [Plural] of what was counted only to a bound: a greater number says that there are more.
func Counted(n, bound int, noun string) string {
	if n > bound {
		return "more than " + Plural(bound, noun)
	}
	return Plural(n, noun)
}

// Digits writes n with its digits in groups of three: 478,693.
func Digits(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Period returns two times in UTC. The first one is without a date if that is today, and the last one
// if it is the date of the first. The last one is empty if both are in the same second.
func Period(first, last, now time.Time) (from, to string) {
	form := func(t, before time.Time) string {
		if text := t.UTC().Format(time.DateTime); text[:len(time.DateOnly)] != before.UTC().Format(time.DateOnly) {
			return text
		}
		return t.UTC().Format(time.TimeOnly)
	}
	if from = form(first, now); last.Unix() > first.Unix() {
		to = form(last, first)
	}
	return from, to
}

// Age writes a duration in four characters.
func Age(d time.Duration) string {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if d >= 2*unit.d {
			return fmt.Sprintf("%d%s", d/unit.d, unit.name)
		}
	}
	return fmt.Sprintf("%ds", max(d/time.Second, 0))
}

// Dollars is an amount with as many digits as small ones need.
func Dollars(usd float64) string {
	text := fmt.Sprintf("%.6f", usd)
	for strings.HasSuffix(text, "0") && len(text) > len("0.00") {
		text = strings.TrimSuffix(text, "0")
	}
	return text
}

// Time writes a time in UTC, with milliseconds.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
