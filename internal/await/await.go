// Package await waits for functions that no context interrupts and for time to pass, and wakes a goroutine
// that waits.
package await

import (
	"context"
	"time"
)

// Do returns what f does, or the cause of the end of ctx if that is first. A named pipe keeps the call
// that opens it until its other end is there, and a terminal the call that reads it. Then f goes on by
// itself, at most until the process ends.
func Do[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Offer sends a value to a channel that has room or a receiver at once, and otherwise drops it. To wake a
// goroutine, one value in its channel is enough.
func Offer[T any](to chan<- T, value T) {
	select {
	case to <- value:
	default:
	}
}

// Pause waits until the time has passed or ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Every yields at once and then after each interval, until ctx ends.
func Every(ctx context.Context, interval time.Duration) func(yield func() bool) {
	return func(yield func() bool) {
		for tick := time.Tick(interval); yield(); {
			select {
			case <-tick:
			case <-ctx.Done():
				return
			}
		}
	}
}
