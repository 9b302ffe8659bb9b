package daemon

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/serve/tenant"
)

// TestTenantCacheIsBounded: as many as there is room for, and a large one alone.
func TestTenantCacheIsBounded(t *testing.T) {
	var c accountCache
	for i := range 10 {
		c.keep(fmt.Sprint(i), &snapshot{size: maxCached / 4})
		if c.find(tenant.Tenant{ID: fmt.Sprint(i)}) == nil || c.size != len(c.of)*maxCached/4 || c.size > maxCached {
			t.Errorf("%d are known, of %d bytes", len(c.of), c.size)
		}
	}
	c.keep("large", &snapshot{size: maxCached + 1})
	if len(c.of) != 1 || c.size != maxCached+1 {
		t.Errorf("%d are known, of %d bytes", len(c.of), c.size)
	}
}

// TestTenantCacheForgets: a data key stays for a minute at most, and not at all once
// the tenant was erased.
func TestTenantCacheForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c accountCache
		known := func() (n, size int) { // beside the timer that forgets
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.of), c.size
		}
		c.keep("alice", &snapshot{size: 1})
		time.Sleep(30 * time.Second)
		c.keep("bob", &snapshot{size: 1})
		c.keep("bob", &snapshot{size: 2}) // read anew
		if n, size := known(); n != 2 || size != 3 {
			t.Errorf("%d are known, of %d bytes", n, size)
		}
		erased := c.find(tenant.Tenant{ID: "bob", Erased: time.Now()})
		if n, size := known(); erased != nil || size != 1 {
			t.Errorf("%d are known, of %d bytes, and one is erased", n, size)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if n, size := known(); n != 0 || size != 0 {
			t.Errorf("%d are known after a minute", n)
		}
		c.keep("alice", &snapshot{size: 1})
		time.Sleep(59 * time.Second)
		if c.find(tenant.Tenant{ID: "alice"}) == nil {
			t.Error("one is not known that was read within a minute")
		}
	})
}

// TestAPolicyThatIsNone: of a tenant whose policy cannot be read nothing runs, and all
// else works.
func TestAPolicyThatIsNone(t *testing.T) {
	k := &snapshot{policy: nothing()}
	k.Policy = tenant.Policy{Version: 3, Text: "x"}
	k.parse("alice", nil)
	a := (&Daemon{}).bounded(tenant.Tenant{}, k)
	_, err := (&Daemon{agents: map[string]*Agent{}}).inspectModule(t.Context(), a, "m", nil)
	if !errors.Is(err, k.unreadable) || k.unreadable == nil || k.policy != nothing() || a.reaches("tool") {
		t.Errorf("a policy was read: %+v, %v", k.policy, err)
	}
	k = &snapshot{policy: nothing()}
	k.Policy = tenant.Policy{Version: 1, Text: "version: \"1.0\"\npermissions:\n  network:\n    allow:\n      - host: api.example.com\n"}
	k.parse("alice", nil)
	a = (&Daemon{config: Config{Policy: func() *policy.Policy { return nil }}}).bounded(tenant.Tenant{}, k)
	if k.unreadable != nil || a.operator != nothing() || len(k.policy.Network) != 1 || k.size != k.policy.Size() || k.Policy.Text != "" {
		t.Errorf("%+v, %v, %d bytes", k.policy, k.unreadable, k.size)
	}
}

// TestPoliciesAreReadOnce: a tenant's policy is read once for each of its versions, and
// so is one that is none.
func TestPoliciesAreReadOnce(t *testing.T) {
	read := func(version int, text string, was *snapshot) *snapshot {
		k := &snapshot{policy: nothing()}
		k.Policy = tenant.Policy{Version: version, Digest: canon.Sum([]byte(text)), Text: text}
		k.parse("alice", was)
		return k
	}
	const text = "version: \"1.0\"\n"
	first := read(1, text, nil)
	if again := read(1, text, first); again.policy != first.policy || first.policy == nothing() || again.size != first.size {
		t.Errorf("the same version was read again: %+v", again)
	}
	if second := read(2, text, first); second.policy == first.policy {
		t.Error("another version was not read")
	}
	broken := read(3, "x", first)
	if broken.unreadable == nil || broken.policy != nothing() {
		t.Errorf("what is no policy was read: %+v", broken)
	}
	if again := read(3, "x", broken); again.unreadable != broken.unreadable {
		t.Errorf("what is no policy was read again: %v", again.unreadable)
	}
}
