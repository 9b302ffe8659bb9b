package work

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestABudgetEndsAtItsLimits(t *testing.T) {
	b := New(t.Context(), Limits{Steps: 10, Bytes: 10})
	if err := b.Spend(10); err != nil {
		t.Error("the last step was refused:", err)
	}
	for range 2 {
		if err := b.Spend(1); !errors.Is(err, ErrExceeded) {
			t.Error("a step too many:", err)
		}
	}
	if err := b.Hold(10); err != nil {
		t.Error("the last byte was refused:", err)
	}
	if err := b.Hold(1); !errors.Is(err, ErrExceeded) {
		t.Error("a byte too many:", err)
	}
	b.Release(11)
	if err := b.Hold(10); err != nil {
		t.Error("bytes that were given back are refused:", err)
	}
}

// TestSpendingNothingAsks whether a budget has ended, in each way that it ends.
func TestSpendingNothingAsks(t *testing.T) {
	for n := range 12 {
		b := New(t.Context(), Limits{Steps: 10, Bytes: 10})
		_ = b.Spend(n)
		for range 2 {
			if err := b.Spend(0); errors.Is(err, ErrExceeded) != (n > 10) || err == nil != (n <= 10) {
				t.Errorf("after %d steps: %v", n, err)
			}
		}
	}
	for n := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		b := Trusted(ctx)
		if err := errors.Join(b.Spend(n), b.Spend(0)); err != nil {
			t.Error(err)
		}
		cancel()
		if err := b.Spend(0); err != context.Canceled {
			t.Errorf("%d steps before its context has ended: %v", n, err)
		}
	}
}

func TestABudgetEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	b := Trusted(ctx)
	cause := errors.New("hung up")
	cancel(cause)
	if err := b.Hold(1); err != cause {
		t.Error("held after the end:", err)
	}
	var err error
	for steps := 0; err == nil; steps++ {
		if steps > stride {
			t.Fatal("the budget never looks at its context")
		}
		err = b.Spend(1)
	}
	if err != cause {
		t.Error(err)
	}
}

func TestReadAllHoldsWhatItReads(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 100_000)
	b := New(t.Context(), ForSize(len(data)))
	got, err := b.ReadAll(iotest.OneByteReader(bytes.NewReader(data)))
	if err != nil || !bytes.Equal(got, data) {
		t.Error(len(got), err)
	}
	small := New(t.Context(), Limits{Steps: 1 << 40, Bytes: 50_000})
	if got, err := small.ReadAll(bytes.NewReader(data)); !errors.Is(err, ErrExceeded) || len(got) > 50_000 {
		t.Error(len(got), err)
	}
	if _, err := Trusted(t.Context()).ReadAll(iotest.ErrReader(io.ErrClosedPipe)); err != io.ErrClosedPipe {
		t.Error(err)
	}
}

func TestAnInputOfUnknownSize(t *testing.T) {
	known, fed := ForSize(1000), For(t.Context(), 0)
	for range 10 {
		fed.Feed(100)
	}
	if room := int64(fed.Room()); room != known.Bytes {
		t.Errorf("room for %d bytes, want %d", room, known.Bytes)
	}
	if err := errors.Join(fed.Spend(int(known.Steps)), fed.Hold(int(known.Bytes))); err != nil {
		t.Error(err)
	}
	if err := fed.Spend(1); !errors.Is(err, ErrExceeded) {
		t.Error("a step too many:", err)
	}
	if err := fed.Hold(1); !errors.Is(err, ErrExceeded) {
		t.Error("a byte too many:", err)
	}
}
