//go:build go1.25 && !wasip1

package starlingtest

import (
	"testing"
	"testing/synctest"
	"time"
)

// virtually calls f in virtual time that begins at the clock of w.
func virtually(t testing.TB, w *world, f func()) {
	t.Helper()
	bubbled, ok := t.(*testing.T)
	if !ok {
		f()
		return
	}
	var began, ended bool
	defer func() {
		t.Helper()
		switch reason := recover(); {
		case reason == nil:
		case !began: // the test is in a bubble of its own
			w.virtual = true
			f()
		case !ended:
			t.Fatalf("starlingtest: the tool waits for something that never happens: %v", reason)
		default: // a goroutine of the tool is left, which a module would not run any more
		}
	}()
	synctest.Test(bubbled, func(*testing.T) {
		began, w.virtual = true, true
		time.Sleep(time.Until(w.now))
		f()
		ended = true
	})
}
