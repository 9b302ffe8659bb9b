package daemon

import (
	"testing"

	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/serve/tenant"
)

// TestModulesOfATenantShareItsConnections, and those of another tenant do not.
func TestModulesOfATenantShareItsConnections(t *testing.T) {
	c := connectionLimits{of: map[string]*egress.Slots{}}
	for range 2 {
		c.client(tenant.Tenant{ID: "alice", Limits: tenant.Limits{Connections: 3}})
		c.client(tenant.Tenant{ID: "bob", Limits: tenant.Limits{Connections: 3}})
	}
	if len(c.of) != 2 || c.of["alice"] == c.of["bob"] {
		t.Errorf("two tenants have %v", c.of)
	}
}
