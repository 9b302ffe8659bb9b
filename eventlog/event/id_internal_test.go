package event

import (
	"testing"
	"time"
)

// TestTheIDOfARunHasATimeThatULIDsHold: a clock may be wrong.
func TestTheIDOfARunHasATimeThatULIDsHold(t *testing.T) {
	for at, want := range map[time.Time]uint64{
		time.UnixMilli(-1): 0, time.UnixMilli(5): 5, time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC): 1<<48 - 1,
	} {
		if got := millisecond(at); got != want {
			t.Errorf("%v: %d, want %d", at, got, want)
		}
	}
}
