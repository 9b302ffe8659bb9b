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

func keeping(most int) *parsed { return &parsed{most: most, of: map[string]parsedPolicy{}} }

// TestFewPoliciesAreKept: of many tenants, whose policies are large, those that were
// asked for last.
func TestFewPoliciesAreKept(t *testing.T) {
	stored := storedPolicy(20, "")
	one, err := policy.Parse("p", []byte(stored.Text))
	if err != nil {
		t.Fatal(err)
	}
	kept := keeping(3*one.Size() + 1)
	have := func(id string) bool { return kept.find(id, stored) != nil }
	for i := range 10 {
		for _, id := range []string{"often", fmt.Sprint(i)} {
			if _, err := kept.policy(id, stored); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(kept.of) != 3 || kept.size != 3*one.Size() || !have("often") || !have("9") || !have("8") {
		t.Errorf("%d are kept, of %d bytes", len(kept.of), kept.size)
	}
	kept.most = 0
	if _, err := kept.policy("large", stored); err != nil || len(kept.of) != 1 {
		t.Errorf("%d are kept: %v", len(kept.of), err)
	}
}

// TestPoliciesAreReadOnce: a tenant's policy is read once for each of its versions, and
// no tenant has that of another.
func TestPoliciesAreReadOnce(t *testing.T) {
	kept := keeping(maxParsed)
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
			kept := keeping(maxParsed)
			for b.Loop() {
				if _, err := kept.policy("alice", stored); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
