package await_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/internal/await"
)

func TestDoEndsWithItsContext(t *testing.T) {
	ended := errors.New("ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	open := make(chan struct{})
	defer close(open)
	if _, err := await.Do(ctx, func() (int, error) { <-open; return 1, nil }); !errors.Is(err, ended) {
		t.Errorf("got the error %v", err)
	}
	if n, err := await.Do(t.Context(), func() (int, error) { return 1, nil }); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestOfferDropsWhatHasNoRoom(t *testing.T) {
	to := make(chan int, 1)
	await.Offer(to, 1)
	await.Offer(to, 2)
	if got := <-to; got != 1 || len(to) != 0 {
		t.Errorf("got %d, and %d are left", got, len(to))
	}
}

func TestPause(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	await.Pause(ctx, time.Hour)
	start := time.Now()
	if await.Pause(t.Context(), time.Millisecond); time.Since(start) < time.Millisecond {
		t.Error("the pause ended early")
	}
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start, n := time.Now(), 0
		for range await.Every(ctx, time.Minute) {
			if passed := time.Since(start); passed != time.Duration(n)*time.Minute {
				t.Errorf("turn %d is after %v", n, passed)
			}
			if n++; n == 3 {
				cancel()
			}
		}
		if n != 3 {
			t.Errorf("%d turns", n)
		}
		for range await.Every(t.Context(), time.Minute) {
			break
		}
	})
}
