package starling

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

// Unit is a suffix and what it multiplies by.
type Unit struct {
	Suffix string
	Factor uint64
}

// FuelUnits are those of fuel, which is counted: powers of ten, the smallest first.
func FuelUnits() []Unit { return []Unit{{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}} }

// SizeUnits are those of memory, which comes in powers of two.
func SizeUnits() []Unit { return []Unit{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}} }

// FormatCount writes n with the largest suffix that leaves at least 1 and as few
// decimals as n has, at most one. Without any, plain is the suffix.
func FormatCount(n uint64, units []Unit, plain string) string {
	for i := len(units) - 1; i >= 0; i-- {
		if u := units[i]; n >= u.Factor {
			text := strconv.FormatFloat(float64(n)/float64(u.Factor), 'f', 1, 64)
			return strings.TrimSuffix(text, ".0") + u.Suffix
		}
	}
	return strconv.FormatUint(n, 10) + plain
}

// FormatFuel writes an amount of fuel, such as 20G.
func FormatFuel(n uint64) string { return FormatCount(n, FuelUnits(), "") }

// FormatSize writes a number of bytes, such as 1.5MiB.
func FormatSize(n uint64) string { return FormatCount(n, SizeUnits(), "B") }

// DescribeBudget writes which bound of a run's budget was passed, and by how much, such as
// "output_tokens, 12 of 10".
func DescribeBudget(p event.BudgetExceeded) string {
	amount := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	return fmt.Sprintf("%s, %s of %s", p.Limit, amount(p.Actual), amount(p.Cap))
}

// FormatDuration rounds to what a reader can use: three digits or so.
func FormatDuration(d time.Duration) string {
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

// GroupDigits writes n with its digits in groups of three: 478,693.
func GroupDigits(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
