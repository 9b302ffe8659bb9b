package daemon

import (
	"errors"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/serve/tenant"
)

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
