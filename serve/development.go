package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/serve/tenant"
)

// DevelopmentFile describes a host for one user on this machine, see [Options].Development.
// Its key file is beside the database.
func DevelopmentFile(listen Address, database, policy string, agents ...string) *File {
	key := strings.TrimSuffix(database, ".db") + ".key"
	if store.OnServer(database) {
		key = "starling.key"
	}
	f := &File{Path: "the flags", Listen: listen, Database: database, KeyFile: key, Policy: policy, Agents: agents}
	f.Metrics.Open = true // the only tenant's
	return f
}

// developmentTenant is the one tenant of [Options].Development.
const developmentTenant = "dev"

// newKey makes a master key, unless tenants exist under a lost one: the new key would
// decrypt nothing of theirs, and take the place of the old one.
func (h *Host) newKey(ctx context.Context) (tenant.MasterKey, error) {
	tenants, err := tenant.Open(ctx, h.log, tenant.Options{})
	if err != nil {
		return tenant.MasterKey{}, err
	}
	list, err := tenants.Tenants(ctx)
	if err != nil {
		return tenant.MasterKey{}, err
	}
	key := h.file.KeyFile
	if slices.ContainsFunc(list, func(t tenant.Tenant) bool { return t.Erased.IsZero() }) {
		return tenant.MasterKey{}, &SetupError{
			Err:  fmt.Errorf("%s does not exist, but %s has tenants whose keys it encrypts", key, store.Name(h.file.Database)),
			Hint: fmt.Sprintf("restore %s, or serve another database with --db FILE", key),
		}
	}
	return tenant.CreateMasterKey(key)
}

// openDevelopment creates the tenant of a host for development, if it is missing, with the
// operator's policy. Its key is the same at every start, even for two hosts that serve one
// database.
func (h *Host) openDevelopment(ctx context.Context) error {
	if !h.o.Development {
		return nil
	}
	_, err := h.tenants.Create(ctx, tenant.Tenant{ID: developmentTenant, Name: "Development"})
	if err != nil && !errors.Is(err, tenant.ErrExists) {
		return err
	}
	if h.file.Policy != "" {
		text, err := config.ReadFile(h.file.Policy)
		if err != nil {
			return err
		}
		if _, err := h.tenants.SetPolicy(ctx, developmentTenant, string(text), true); err != nil {
			return err
		}
	}
	key, err := h.tenants.DerivedKey(ctx, developmentTenant, "serve --dev")
	h.Key = key.Reveal()
	return err
}
