package tenant

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
)

// Erasure is what an erasure did.
type Erasure struct {
	Keys, Secrets, Modules int
	Pruned                 eventlog.PruneReport // zero if no runs were removed
	Collected              Collected            // unused modules
}

// Erase destroys a tenant's data key and everything that the store has of it
// except its id. Its runs become unreadable; their chains still validate. Those that
// wait are ended by the host that takes them up. With a pruner all runs are removed as
// well. Modules that no one else holds are removed in any case. A host that holds the data
// key in memory has to let go of it.
//
// Erasing again does what is left to do, for one that was interrupted while it
// pruned.
func (s *Store) Erase(ctx context.Context, tenant string, pruner eventlog.Store) (e Erasure, err error) {
	err = s.db.Transact(ctx, func(tx eventlog.Tx) error {
		e, err = s.erase(tx, tenant)
		return err
	})
	if err != nil {
		return e, err
	}
	if pruner != nil {
		e.Pruned, err = eventlog.PruneInSteps(ctx, pruner, eventlog.PruneOptions{Namespace: tenant, IncludeOpen: true})
		if err != nil {
			return e, fmt.Errorf("tenant: %q is erased, but its runs are not removed: %w", tenant, err)
		}
	}
	if e.Collected, err = Collect(ctx, s.db, s.now()); err != nil {
		return e, fmt.Errorf("tenant: %q is erased, but its modules are not removed: %w", tenant, err)
	}
	return e, nil
}

func (s *Store) erase(tx eventlog.Tx, tenant string) (e Erasure, err error) {
	if err := ValidID(tenant); err != nil {
		return e, err
	}
	// What is overwritten before it is deleted does not stay in a free page.
	overwrite := "UPDATE tenant_data_key SET wrapped = $2 WHERE tenant = $1"
	if _, err := tx.Exec(overwrite, tenant, make([]byte, 60)); err != nil {
		return e, err
	}
	// Its runs cannot be read, so they cannot be replayed.
	if _, err := tx.Exec("UPDATE module_hold SET since = 0, until = 1 WHERE holder = $1", tenant); err != nil {
		return e, err
	}
	for _, table := range []struct {
		name  string
		count *int
	}{
		{"tenant_data_key", nil}, {"tenant_api_key", &e.Keys}, {"tenant_secret", &e.Secrets},
		{"tenant_policy", nil}, {"tenant_module", &e.Modules}, {"tenant_answer", nil},
	} {
		n, err := tx.Exec("DELETE FROM "+table.name+" WHERE tenant = $1", tenant)
		if err != nil {
			return e, err
		}
		if table.count != nil {
			*table.count = int(n)
		}
	}
	n, err := tx.Exec("UPDATE tenant SET name = '', limits = '{}', erased = $2, revision = revision + 1 WHERE id = $1 AND erased = 0", tenant, s.now().UnixNano())
	if err != nil || n > 0 {
		return e, err
	}
	if err := needTenant(tx, tenant); !errors.Is(err, ErrErased) {
		return e, err
	}
	return e, nil // it was erased before
}
