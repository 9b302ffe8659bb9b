package fairtest

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// Gate reports whether the figures decide, as in CI, where the tests have the machine to
// themselves. Otherwise they are only logged.
func Gate() bool { return os.Getenv("STARLING_GATES") != "" }

// A ratio compares two figures measured at the same time, and the middle of several rounds
// counts. A promise may be measured again, because the machine is sometimes busy otherwise.
const (
	rounds   = 3
	attempts = 5
)

// Promise bounds the p99 of calls beside others: by a multiple of the p99 alone, or by an
// acceptable absolute value.
type Promise struct {
	Times float64
	Good  time.Duration
}

// Hold measures rounds, and fails the test if the promise is not kept. If the figures do
// not decide, it measures one round.
func (p Promise) Hold(t *testing.T, measure func() Round) {
	t.Helper()
	if !Gate() {
		t.Log(measure())
		return
	}
	for attempt := 1; ; attempt++ {
		var all []Round
		for range rounds {
			all = append(all, measure())
			t.Log(all[len(all)-1])
		}
		ratio, worst := judge(all)
		t.Logf("p99 beside / alone: %.2f, at most %s", ratio, worst)
		if p.kept(ratio, worst) {
			return
		}
		if attempt == attempts {
			t.Fatalf("p99 is %.1f times what it is alone", ratio)
		}
	}
}

func (p Promise) kept(ratio float64, worst time.Duration) bool {
	return ratio <= p.Times || worst <= p.Good
}

// judge returns the middle ratio of an odd number of rounds, and the worst p99 beside
// others.
func judge(all []Round) (ratio float64, worst time.Duration) {
	var ratios []float64
	for _, r := range all {
		ratios = append(ratios, r.ratio())
		worst = max(worst, percentile(r.Beside, 99))
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2], worst
}

// Round has the durations of calls, in any order.
type Round struct{ Alone, Beside []time.Duration }

// String implements [fmt.Stringer].
func (r Round) String() string {
	return fmt.Sprintf("p50 %s alone, %s beside; p99 %s and %s, %.2f times",
		percentile(r.Alone, 50), percentile(r.Beside, 50), percentile(r.Alone, 99), percentile(r.Beside, 99), r.ratio())
}

func (r Round) ratio() float64 {
	return float64(percentile(r.Beside, 99)) / float64(percentile(r.Alone, 99))
}

// percentile returns the given percentile.
func percentile(took []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)*percent/100].Round(10 * time.Microsecond)
}
