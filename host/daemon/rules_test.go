package daemon

import (
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/tenant"
)

func storedPolicy(rules int, comment string) tenant.Policy {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\nversion: \"1.0\"\npermissions:\n  network:\n    allow:\n", comment)
	for i := range rules {
		fmt.Fprintf(&b, "      - {host: api%d.example.com, methods: [GET, POST], paths: [/v1/charges, /v1/charges/*], max_calls: 20}\n", i)
	}
	return tenant.Policy{Version: 1, Digest: chain.Sum([]byte(b.String())), Text: b.String()}
}

// TestPoliciesAreReadOnce: a tenant's policy is read once for each of its versions, and
// no tenant has that of another.
func TestPoliciesAreReadOnce(t *testing.T) {
	var kept parsed
	first := storedPolicy(3, "first")
	a, err := kept.policy("alice", first)
	if err != nil || len(a.Network) != 3 {
		t.Fatalf("%+v, %v", a, err)
	}
	if again, err := kept.policy("alice", first); err != nil || again != a {
		t.Errorf("the same version was read again: %v", err)
	}
	if other, err := kept.policy("bob", first); err != nil || other == a {
		t.Errorf("bob has the policy of alice: %v", err)
	}
	second := storedPolicy(1, "second")
	second.Version = 2
	if now, err := kept.policy("alice", second); err != nil || len(now.Network) != 1 {
		t.Errorf("after a change: %+v, %v", now, err)
	}
	broken := tenant.Policy{Version: 3, Digest: chain.Sum([]byte("x")), Text: "x"}
	for range 2 {
		if _, err := kept.policy("alice", broken); err == nil {
			t.Error("what is no policy was read")
		}
	}
}

// BenchmarkPolicyOfARun is what it costs to have the policy of a tenant once; a run of
// a tool asks for it three times.
func BenchmarkPolicyOfARun(b *testing.B) {
	for _, rules := range []int{1, 20} {
		stored := storedPolicy(rules, "")
		b.Run(fmt.Sprintf("rules=%d/parsed", rules), func(b *testing.B) {
			for b.Loop() {
				if _, err := policy.Parse("p", []byte(stored.Text)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("rules=%d/kept", rules), func(b *testing.B) {
			var kept parsed
			for b.Loop() {
				if _, err := kept.policy("alice", stored); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
