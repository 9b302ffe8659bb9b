package worker

import (
	"sync"
	"time"
)

// watch makes a call in a process end: when its time is over or it was
// cancelled, the process gets a message, and when that does not help within the
// grace period it is killed. While the host carries out an effect, the process
// waits for the host and is not to blame. A call that computes for long is
// demoted.
//
// A process has one watch with one timer, which stays set from one call to the
// next: setting and stopping one for each call costs as much as a short call.
type watch struct {
	process *process
	grace   time.Duration

	mu           sync.Mutex // guards what follows
	timer        *time.Timer
	rings        time.Time     // when the timer does; zero when it does not
	number       uint64        // the call in progress; zero for none
	call         *call         // the one in progress
	due          time.Time     // when to act on its end; zero for never
	looks        time.Time     // when its use of the processor is looked at; zero for never
	used         time.Duration // of the processor when it was looked at before, in this call; zero if it was not
	asked        int           // effects since then
	before       time.Duration // processor time of a demoted process before this call
	effects      int           // how many effects the call has had
	long         bool          // the call computes for long
	endRequested bool          // from the process; the next step is to kill it
	late         bool          // because its time was over
	paused       bool          // the host carries out an effect
	kills        bool          // the process was killed
}

func newWatch(p *process, grace time.Duration) *watch {
	w := &watch{process: p, grace: grace}
	w.timer = time.AfterFunc(time.Hour, w.ring)
	w.timer.Stop()
	return w
}

// begin watches a call, which has a number, until its deadline.
func (w *watch) begin(number uint64, c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number, w.call, w.endRequested, w.late, w.paused = number, c, false, false, false
	w.used, w.asked, w.effects, w.long, w.looks = 0, 0, 0, false, time.Now().Add(stretch)
	if w.process.demoted.Load() {
		w.before = processorTime(w.process.os.Pid)
	}
	w.arm(w.looks)
	w.wait(c.deadline)
}

// wait sets the time at which the watch acts to end the call. The caller holds mu.
func (w *watch) wait(due time.Time) {
	w.due = due
	w.arm(due)
}

// arm sets the timer to that time, unless it is set to an earlier one. The caller holds mu.
func (w *watch) arm(at time.Time) {
	if !at.IsZero() && (w.rings.IsZero() || at.Before(w.rings)) {
		w.rings = at
		w.timer.Reset(time.Until(at))
	}
}

// ring is called by the timer, which may have been set for a call that is over.
func (w *watch) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rings = time.Time{}
	if w.number == 0 {
		return
	}
	now := time.Now()
	if reached(w.looks, now) {
		w.look(now)
	}
	if reached(w.due, now) {
		w.overdue()
	}
	w.arm(w.looks)
	w.arm(w.due)
}

// look demotes a process that has computed for more than half of the stretch since the
// last look, or has kept the host busy with effects. One that waits, or that gets no
// processor, is not to blame. The caller holds mu.
func (w *watch) look(now time.Time) {
	before, asked := w.used, w.asked
	w.used, w.asked, w.looks = processorTime(w.process.os.Pid), 0, now.Add(stretch)
	if before > 0 && (w.used-before > stretch/2 || asked > manyEffects) {
		w.long, w.looks = true, time.Time{}
		w.call.module.long.Store(true)
		w.process.demote()
		w.call.slot.scheduler.Demoted()
	}
	w.call.slot.release() // slots are for short calls; the system divides the rest
}

// computed reports whether a call in a demoted process was a long one after all: a process
// that waits for a processor may show little in any one stretch. The caller holds mu.
func (w *watch) computed() bool {
	return processorTime(w.process.os.Pid)-w.before > 2*stretch || w.effects > 5*manyEffects
}

// wasLong reports whether the last call was long enough to be demoted.
func (w *watch) wasLong() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.long
}

func reached(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// overdue acts on the call's end. The caller holds mu.
func (w *watch) overdue() {
	switch {
	case !w.endRequested:
		w.late = true
		w.tell()
	case w.paused:
		w.due = time.Time{} // resume continues from here
	default:
		w.due = time.Time{}
		w.kills = true
		w.process.kill()
	}
}

// tell asks the process to end the call. The write may block until the
// process is killed, so it does not happen under mu, which the caller holds.
func (w *watch) tell() {
	w.endRequested = true
	w.wait(time.Now().Add(w.grace))
	go w.process.cancel(w.number)
}

// cancel ends the call because it was cancelled.
func (w *watch) cancel(number uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.number == number && !w.endRequested {
		w.tell()
	}
}

// pause lets the process wait for the host.
func (w *watch) pause(effects int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = true
	w.asked += effects
	w.effects += effects
}

// resume goes on. A process that got a message meanwhile has yet to read it.
func (w *watch) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = false
	if w.endRequested {
		w.wait(time.Now().Add(w.grace))
	}
}

// end is called when the call is over. The call's length decides how the module's
// next process is started.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.long = w.long || w.kills || w.process.demoted.Load() && w.computed()
	w.call.module.long.Store(w.long)
	w.number, w.call = 0, nil
}

// stop is called when the process is.
func (w *watch) stop() { w.timer.Stop() }

// ended reports whether the process was asked to end the call because the time was over, and
// whether it was killed because it did not.
func (w *watch) ended() (late, killed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.late, w.kills
}
