package queuetest

import (
	"sync"
	"testing"
	"time"
)

// Clock is a queue.Clock that moves when it is told to. The zero value stands at the
// year 1.
type Clock struct {
	mu     sync.Mutex // guards what follows
	now    time.Time
	alarms []alarm
}

type alarm struct {
	at   time.Time
	ring chan time.Time
}

// NewClock returns a clock that stands at a point in time of this century.
func NewClock() *Clock { return &Clock{now: time.Unix(1_800_000_000, 0)} }

// Now returns where the clock stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After returns a channel that gets the time once the clock has moved by d.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := alarm{c.now.Add(d), make(chan time.Time, 1)}
	c.alarms = append(c.alarms, a)
	c.ring()
	return a.ring
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.ring()
}

// ring answers the alarms that are due. The caller holds mu.
func (c *Clock) ring() {
	left := c.alarms[:0]
	for _, a := range c.alarms {
		if a.at.After(c.now) {
			left = append(left, a)
			continue
		}
		a.ring <- c.now
	}
	c.alarms = left
}

// forever is a lease that does not end while a test moves the clock about.
const forever = 10_000 * time.Hour

// AdvanceUntil moves the clock by steps until done, for waitTime at most.
func (c *Clock) AdvanceUntil(t testing.TB, step time.Duration, done func() bool) {
	t.Helper()
	eventually(t, func() bool {
		if done() {
			return true
		}
		c.Advance(step)
		return false
	})
}

// eventually asks again and again until done.
func eventually(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitTime); time.Now().Before(deadline); {
		if done() {
			return
		}
		time.Sleep(time.Millisecond) // lets the others run; nothing depends on how long
	}
	t.Fatal("what was waited for has not happened")
}
