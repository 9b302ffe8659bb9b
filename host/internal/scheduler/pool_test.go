package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestPoolOfBytes: a tenant holds a quarter at most, others are never left without, small
// requests do not wait, and who gives up holds nothing.
func TestPoolOfBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(64 << 20)
		take := func(id string, bytes int64) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got, err := p.Take(ctx, id, bytes)
			if err != nil && (!errors.Is(err, context.DeadlineExceeded) || got != 0) {
				t.Errorf("after giving up: %d, %v", got, err)
			}
			return err == nil
		}
		for take("storm", 1<<20) {
		}
		if held := p.Held("storm"); held < 15<<20 || held > 16<<20 {
			t.Errorf("a tenant that takes what it can holds %d", held)
		}
		if !take("storm", SmallBytes) {
			t.Error("a small request waits")
		}
		for i := range 12 {
			id := fmt.Sprint(i)
			if !take(id, 512<<10) {
				t.Errorf("nothing is left for tenant %d", i)
			}
			for take(id, 512<<10) {
			}
		}
		if p.used > p.size {
			t.Errorf("%d of %d bytes are taken", p.used, p.size)
		}
	})
}

// TestPoolTakersAreServedInOrder: later takers of its tenant do not pass a large taker,
// which gets the tenant's maximum if it asks for more.
func TestPoolTakersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(64 << 20)
		first, _ := p.Take(t.Context(), "a", 1<<30)
		if first != 16<<20 {
			t.Fatalf("taken: %d", first)
		}
		order := make(chan int64, 2)
		for _, n := range []int64{8 << 20, 1 << 20} {
			go func() {
				_, _ = p.Take(t.Context(), "a", n)
				order <- n
			}()
			synctest.Wait()
		}
		if len(order) != 0 {
			t.Fatalf("%d were served beyond the quarter", len(order))
		}
		p.Give("a", first)
		synctest.Wait()
		if len(order) != 2 || p.Held("a") != 9<<20 {
			t.Errorf("%d were served, held: %d", len(order), p.Held("a"))
		}
	})
}
