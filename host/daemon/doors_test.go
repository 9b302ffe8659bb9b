package daemon

import (
	"runtime"
	"testing"
	"time"

	"github.com/starling-host/starling/host/tenant"
)

// TestADoorIsThereAsLongAsSomebodyHasIt: all modules of a tenant share one, and one that
// nobody has takes no memory.
func TestADoorIsThereAsLongAsSomebodyHasIt(t *testing.T) {
	d := doors{of: map[string]door{}}
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
