package daemon

import (
	"runtime"
	"testing"

	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/serve/tenant"
)

// TestModulesOfATenantShareItsConnections, and those of another tenant do not.
func TestModulesOfATenantShareItsConnections(t *testing.T) {
	var c connectionLimits
	var clients []*egress.Client // of loaded modules: a tenant without any is forgotten
	for range 2 {
		clients = append(clients, c.client(tenant.Tenant{ID: "alice", Limits: tenant.Limits{Connections: 3}}),
			c.client(tenant.Tenant{ID: "bob", Limits: tenant.Limits{Connections: 3}}))
	}
	alice, bob := c.of["alice"].Value(), c.of["bob"].Value()
	runtime.KeepAlive(clients)
	if alice == nil || bob == nil || alice == bob {
		t.Errorf("two tenants have %v and %v", alice, bob)
	}
}
