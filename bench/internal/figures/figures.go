// Package figures has what the benchmarks share: how they time a call, and what they compute of the
// times.
package figures

import (
	"context"
	"slices"
	"time"

	"github.com/starling-host/starling/abi"
)

// Timed makes calls for about as long as slice, and returns the time of one in nanoseconds.
func Timed(slice time.Duration, one func() ([]byte, error)) (float64, error) {
	n := 0
	began := time.Now()
	for elapsed := time.Duration(0); elapsed < slice; elapsed = time.Since(began) {
		for range 1 + n/8 { // so that reading the clock is no part of it
			if _, err := one(); err != nil {
				return 0, err
			}
			n++
		}
	}
	return float64(time.Since(began).Nanoseconds()) / float64(n), nil
}

// NoWorld is an outside that no guest of a benchmark asks for anything.
type NoWorld struct{}

func (NoWorld) Now(context.Context) int64     { return 0 }
func (NoWorld) Random(context.Context) uint64 { return 0 }
func (NoWorld) Seed(context.Context) [32]byte { return [32]byte{} }
func (NoWorld) HTTP(context.Context, []byte) ([]byte, abi.Status, time.Duration) {
	return nil, abi.StatusDenied, 0
}

// Median returns the middle one of the values, of which there is at least one.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile returns the value below which that part of the values is.
func Quantile(values []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

// Ratio returns the median of the ratios of values that were measured one after the
// other, so that whatever else the machine did met both.
func Ratio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return Median(ratios)
}

// Verdict is the last column of a table of goals.
func Verdict(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}
