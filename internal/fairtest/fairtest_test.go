package fairtest

import (
	"testing"
	"time"
)

// took returns a hundred calls of a millisecond, but for the slowest.
func took(slowest time.Duration) []time.Duration {
	all := make([]time.Duration, 100)
	for i := range all {
		all[i] = time.Millisecond
	}
	all[17] = slowest
	return all
}

// TestTheMiddleRoundDecides: neither a round that was disturbed nor one that was lucky
// says how many times as long calls take, and only one p99 that is too long is too long.
func TestTheMiddleRoundDecides(t *testing.T) {
	round := func(alone, beside time.Duration) Round {
		return Round{took(alone * time.Millisecond), took(beside * time.Millisecond)}
	}
	ratio, worst := judge([]Round{round(2, 90), round(10, 5), round(4, 12)})
	if ratio != 3 || worst != 90*time.Millisecond {
		t.Errorf("%.2f times, at most %s", ratio, worst)
	}
	for _, c := range []struct {
		times float64
		good  time.Duration
		kept  bool
	}{{3, 25, true}, {2, 90, true}, {2.9, 89, false}} {
		if p := (Promise{c.times, c.good * time.Millisecond}); p.kept(ratio, worst) != c.kept {
			t.Errorf("%+v is kept: %v", p, !c.kept)
		}
	}
	const want = "p50 1ms alone, 1ms beside; p99 4ms and 12ms, 3.00 times"
	if got := round(4, 12).String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
