package logtest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

// Load is a number of runs that events are appended to at the same time, each by a
// goroutine of its own. Each call of a method makes new runs.
type Load struct {
	Runs int
	Size int // of the value of each event, in bytes
}

// Times calls do with n events, beside the first of each run, and returns how long
// that took.
func (l Load) Times(n int, do func(event.Event) error) (time.Duration, error) {
	var taken atomic.Int64
	_, took, err := l.apply(func() bool { return taken.Add(1) <= int64(n) }, do)
	return took, err
}

// For calls do with events for about as long as d, and returns how many it was in a
// second, the first of each run included.
func (l Load) For(d time.Duration, do func(event.Event) error) (perSecond float64, err error) {
	began := time.Now()
	n, took, err := l.apply(func() bool { return time.Since(began) < d }, do)
	return float64(n) / took.Seconds(), err
}

// apply calls do while there are more events and no call has failed.
func (l Load) apply(more func() bool, do func(event.Event) error) (n int64, took time.Duration, err error) {
	var done atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, l.Runs)
	began := time.Now()
	for i := range l.Runs {
		all.Go(func() {
			c := Chain{RunID: event.NewID(), Clock: began.UnixNano()}
			for e := c.Start("bench"); ; e = c.Effect(l.Size) {
				if errs[i] = do(e); errs[i] != nil {
					return
				}
				if done.Add(1); !more() {
					return
				}
			}
		})
	}
	all.Wait()
	return done.Load(), time.Since(began), errors.Join(errs...)
}
