package sandbox

import (
	"fmt"
	"runtime"
	"time"

	"github.com/starling-host/starling/abi"
)

// The rewriter makes a module count its own instructions in one global and
// compare the count with another, the limit. Above the limit the module calls
// refill, here. The limit is only ever moved a slice ahead, so that the host
// looks at the clock, and the Go scheduler and collector run, every
// few milliseconds for any guest. Compiled code cannot be preempted
// otherwise, and one guest that spins would stop the whole process.
const (
	// A slice is the distance that the limit moves at a time. It adapts to the guest: a
	// unit takes a fraction of a nanosecond in one loop, and a hundred in another that
	// misses all caches. The guest cannot tell where slices end, so replay need not have
	// the same ones.
	firstSlice = 500_000
	leastSlice = 20_000
	mostSlice  = 5_000_000
	sliceTime  = 2 * time.Millisecond

	// prepareFuel bounds what runs before a call: start function, _initialize
	// and starling_warmup together.
	prepareFuel = 1_000_000_000
)

// allow starts the count at zero with a new budget.
func (s *session) allow(budget uint64) {
	s.budget, s.slice = budget, firstSlice
	if s.record { // so that a refill is no part of the recording, but at its end
		s.slice = budget
	}
	s.clock.recount(s.instance.fuel.Get())
	s.instance.fuel.Set(0)
	s.instance.limit.Set(s.nextLimit(0))
}

// nextLimit returns the next limit: a slice ahead, but never past the budget, and in the
// replay of a stop never past the last count before it.
func (s *session) nextLimit(used uint64) uint64 {
	limit := s.budget
	if s.stop != nil && s.stopAt > 0 {
		limit = min(limit, s.stopAt-1)
	}
	if limit-min(used, limit) > s.slice {
		return used + s.slice
	}
	return limit
}

// refill runs when the count is above the limit: it ends the call or lets it
// continue for a slice. The count grows between any two checks, so "the first
// check above stopAt-1" names the one check that saw stopAt when the call was
// recorded, whatever the slices were then.
func (s *session) refill() {
	used, now := s.instance.fuel.Get(), time.Now()
	s.watch.spent(used)
	switch {
	case used > s.budget:
		s.end(fmt.Errorf("%w: more than %d units", abi.ErrFuel, s.budget))
	case s.stop != nil && used >= s.stopAt:
		s.end(s.stop)
	case s.attended && s.over(now):
		s.end(s.interruption())
	}
	runtime.Gosched()
	s.adapt(now)
	s.instance.limit.Set(s.nextLimit(used))
}

// adapt chooses the next slice by the time that the last one took.
func (s *session) adapt(now time.Time) {
	took := now.Sub(s.refilled)
	s.refilled = now
	switch {
	case took > 2*sliceTime:
		s.slice = max(s.slice*uint64(sliceTime)/uint64(took), leastSlice)
	case took < sliceTime:
		s.slice = min(2*s.slice, mostSlice)
	}
}

// charge adds the bytes that the host will read from or write to guest memory
// to the count, and checks like the module's own code. Without it a guest
// could make the host fill its memory with random bytes all day for the price
// of a few instructions.
func (s *session) charge(bytes uint64) {
	if bytes == 0 {
		return // the count has to grow between two checks
	}
	used := s.instance.fuel.Get() + bytes
	s.instance.fuel.Set(used)
	if used > s.instance.limit.Get() {
		s.refill()
	}
}
