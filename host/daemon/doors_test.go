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
	first, fewer := d.open(alice), alice
	runtime.GC()
	if d.open(alice) != first {
		t.Error("two doors of one tenant are open")
	}
	fewer.Limits.Connections = 2
	second := d.open(fewer)
	if second == first || d.open(fewer) != second {
		t.Error("a new limit has no door of its own")
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(second)
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
