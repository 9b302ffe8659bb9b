package worker

import (
	"context"
	"sync"
	"time"

	"github.com/starling-host/starling/host/internal/scheduler"
)

// A call that computes for long is demoted: its process gets the lowest priority that the
// system has. So a short call is answered as if there were no long ones beside it, and an
// otherwise idle machine gives the long ones all of its time. It is the feedback queue of
// time-sharing systems (Corbato and others, 1962), with the system's scheduler for the
// queue. A tenant gains nothing by many calls that are just short enough: they share CPU
// slots.
const (
	// effectPause is how long, at least, the host waits before each effect of a demoted call
	// while others hold CPU slots, because the host itself, which performs the effect, is not
	// demoted. An idle system rounds it up to a millisecond. Many effects count as
	// computing. Together, demoted calls have a quarter of the processors for their
	// effects.
	effectPause = 200 * time.Microsecond
	manyEffects = 20 // in a stretch

	// demotedStartTimeout bounds the start of a process that is demoted from the
	// beginning, and its loading.
	demotedStartTimeout = 10 * time.Second

	stretch  = 10 * time.Millisecond // between two readings of a call's usage; the second one decides
	niceness = 5                     // of a new process, so that modules never starve the host
	lowest   = 19                    // of a demoted one, and of compilers
)

// demote lowers the priority of the process for good, because the system lets no process raise its
// priority again. The process is kept only while its calls are long: starting another one takes
// milliseconds from other calls.
func (p *process) demote() {
	if !p.demoted.Swap(true) {
		lowerPriority(p.os.Pid)
	}
}

// within returns how long to wait for a process. A demoted process gets less than
// usual, because another one can be started instead.
func (p *process) within(usual time.Duration) time.Duration {
	if p.demoted.Load() {
		return min(usual, demotedStartTimeout)
	}
	return usual
}

// spent reports whether the process is unusable for another call: it has ended, it is
// demoted and its last call was short, or it has used much of its processor time.
func (p *process) spent() bool {
	return !p.alive() || p.demoted.Load() && p.calls > 0 && !p.watch.wasLong() || processorTime(p.os.Pid) > lifetime/2
}

// lifetime is the processor time that a process may use in its life, beside what the fuel of
// one call can take. The system ends a process that uses more: something in it computes
// outside of any call. An honest process is replaced before that.
const lifetime = time.Hour

// leastFuel is the least fuel that a call burns in a second of a slow processor.
const leastFuel = 1e6

// processorBound is the processor time after which the system ends a process whose calls have the
// given limit of fuel.
func processorBound(fuel uint64) time.Duration {
	return lifetime + time.Duration(min(fuel/leastFuel, 1e9))*time.Second
}

// callSlot is the CPU slot of a call that computes. It is released when the call ends,
// waits for an exchange, or has taken longer than a stretch. A computing call is then
// demoted soon; a sleeping one no longer holds the slot. The call of a demoted process
// needs no slot: it computes only when other processes are idle.
type callSlot struct {
	scheduler *scheduler.Scheduler

	mu      sync.Mutex      // guards what follows
	process *process        // nil until there is one
	slot    *scheduler.Slot // nil for no slot
}

// acquire waits for a slot, if the call needs one. The error is the scheduler's.
func (s *callSlot) acquire(ctx context.Context) error {
	if !s.needed() {
		return nil
	}
	slot, err := s.scheduler.Acquire(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.slot = slot
	s.mu.Unlock()
	if !s.needed() { // it was demoted before it held the slot
		s.release()
	}
	return nil
}

func (s *callSlot) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process == nil || !s.process.demoted.Load()
}

// runsIn sets the process that computes.
func (s *callSlot) runsIn(p *process) {
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	if !s.needed() {
		s.release()
	}
}

// release gives the slot back, if there is one.
func (s *callSlot) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slot != nil {
		s.slot.Release()
		s.slot = nil
	}
}
