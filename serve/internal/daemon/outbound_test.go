package daemon

import (
	"testing"

	"github.com/starling-host/starling/serve/tenant"
)

// TestModulesOfATenantShareItsConnections, and those of another tenant do not.
func TestModulesOfATenantShareItsConnections(t *testing.T) {
	var c connectionLimits
	for range 2 {
		c.client(tenant.Tenant{ID: "alice", Limits: tenant.Limits{Connections: 3}})
		c.client(tenant.Tenant{ID: "bob", Limits: tenant.Limits{Connections: 3}})
	}
	alice, _ := c.of.Load("alice")
	bob, _ := c.of.Load("bob")
	if alice == nil || bob == nil || alice == bob {
		t.Errorf("two tenants have %v and %v", alice, bob)
	}
}
