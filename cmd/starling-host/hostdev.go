package main

import (
	"context"
	"errors"
	"os"

	"github.com/starling-host/starling/host/tenant"
)

// devTenant is the one tenant of --dev.
const devTenant = "dev"

// developer returns a new key of the tenant of --dev, which is made if it is not
// there. Its policy is the operator's.
func (h *host) developer(ctx context.Context) (string, error) {
	if !h.dev {
		return "", nil
	}
	_, err := h.tenants.Create(ctx, tenant.Tenant{ID: devTenant, Name: "Development"})
	if err != nil && !errors.Is(err, tenant.ErrExists) {
		return "", err
	}
	if h.file.Policy != "" {
		text, err := os.ReadFile(h.file.Policy)
		if err != nil {
			return "", err
		}
		if _, err := h.tenants.SetPolicy(ctx, devTenant, string(text), true); err != nil {
			return "", err
		}
	}
	// A key is shown once, so each start has one of its own, and the one before ends.
	_, key, err := h.tenants.RotateKey(ctx, devTenant, "serve --dev", 0)
	return key.Reveal(), err
}
