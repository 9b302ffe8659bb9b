// Package figures says what was measured.
package figures

import "slices"

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
