package daemon

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/turns"
)

// TestADoorIsThereAsLongAsSomebodyHasIt: all modules of a tenant share one, and one that
// nobody has takes no memory.
func TestADoorIsThereAsLongAsSomebodyHasIt(t *testing.T) {
	d := newDoors()
	alice := tenant.Tenant{ID: "alice", Limits: tenant.Limits{Connections: 3}}
	client := d.open(alice)
	first := d.of[alice.ID]
	runtime.GC()
	if d.open(alice); d.of[alice.ID] != first {
		t.Error("two doors of one tenant are open")
	}
	runtime.KeepAlive(client)
	for range 1000 {
		runtime.GC()
		d.mu.Lock()
		left := len(d.of)
		d.mu.Unlock()
		if left == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("a door is kept that nobody has")
}

// TestSearchesLeaveRoom: what is searched for long has a part of one processor of four.
func TestSearchesLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &doors{searches: turns.New(1)}
		end, err := d.search(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		end()
		began := time.Now()
		end, err = d.search(t.Context())
		if waited := time.Since(began); err != nil || waited != breather*time.Millisecond {
			t.Errorf("the next turn came after %v, %v", waited, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := d.search(ended); err == nil {
			t.Error("a search whose exchange has ended got a turn")
		}
		end()
	})
}
