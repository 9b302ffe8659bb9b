package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/starling-host/starling/host/tenant"
)

// devTenant is the one tenant of --dev.
const devTenant = "dev"

// newKey makes the master key of --dev, unless there are tenants under one that was lost:
// the new one would open nothing of theirs, and stand where the other belongs.
func (h *host) newKey(ctx context.Context) (tenant.MasterKey, error) {
	store, err := tenant.Open(ctx, h.log, tenant.Options{})
	if err != nil {
		return tenant.MasterKey{}, err
	}
	list, err := store.Tenants(ctx)
	if err != nil {
		return tenant.MasterKey{}, err
	}
	key := h.file.KeyFile
	if slices.ContainsFunc(list, func(t tenant.Tenant) bool { return t.Erased.IsZero() }) {
		return tenant.MasterKey{}, &failure{code: exitUsage,
			message: fmt.Sprintf("%s is not there, and %s has tenants whose keys it encrypts", key, named(h.file.Database)),
			hint:    fmt.Sprintf("put %s back, or serve another database with --db FILE", key),
		}
	}
	return tenant.CreateMasterKey(key)
}

// otherKey says of --dev what to do about another master key than that of the tenants.
func (h *host) otherKey(err error) error {
	if f := explainTenant(err); f != nil && h.dev && errors.Is(err, tenant.ErrWrongMasterKey) {
		f.hint = fmt.Sprintf("put back the %s that was made with %s, or serve another database with --db FILE", h.file.KeyFile, named(h.file.Database))
		return f
	}
	return err
}

// developer makes the tenant of --dev, if it is not there, and returns its key: the same
// at every start, also of two hosts that serve one database. Its policy is the operator's.
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
	key, err := h.tenants.DerivedKey(ctx, devTenant, "serve --dev")
	return key.Reveal(), err
}
