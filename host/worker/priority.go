package worker

import "time"

// A call that computes for long stands back behind those that do not: its process
// gets the lowest priority that the system has. So a short call is answered as if
// the long ones beside it were not there, and a machine that has nothing better to
// do gives the long ones all of it. It is the feedback queue of time-sharing systems
// (Corbato and others, 1962), with the system's scheduler for the queue. A tenant
// gains nothing by many calls that are just short enough: they take turns (seat.go).
const (
	// effectPause is what the host waits before each effect of a call that stands
	// back, because the host itself, which carries the effect out, does not. To have
	// many effects is to compute. Such calls wait for each other: together they have
	// a quarter of the processors for their effects, however many they are.
	effectPause = 200 * time.Microsecond
	manyEffects = 20 // in a stretch

	// startBehindTimeout bounds the start of a process that stands back, and its loading.
	startBehindTimeout = 10 * time.Second

	stretch  = 10 * time.Millisecond // between two looks at what a call has used; the second look decides
	niceness = 5                     // of a new process, so that modules never starve the host
	lowest   = 19                    // of one that stood back, and of compilers
)

// standBack has the process give way to others from now on. The system lets nobody
// raise a priority again, so the process is kept as long as its calls are long ones,
// and not any longer: to start one takes milliseconds from others, too.
func (p *process) standBack() {
	if !p.behind.Swap(true) {
		lowerPriority(p.os.Pid)
	}
}

// patience is how long to wait for a process, if that is usually so long. Instead of one
// that stands back, another one can be started that does not.
func (p *process) patience(usual time.Duration) time.Duration {
	if p.behind.Load() {
		return min(usual, startBehindTimeout)
	}
	return usual
}

// spent reports whether the process is of no use for another call: it has ended, or
// stands back and its last call had no need of that.
func (p *process) spent() bool {
	return !p.alive() || p.behind.Load() && p.calls > 0 && !p.watch.wasLong()
}
