package tenant

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/cipherlog"
)

// wrappedKey is a row of tenant_data_key.
type wrappedKey struct {
	tenant, id, master string
	wrapped            []byte
	created            int64
}

func (s *Store) newDataKey(tenant string) (wrappedKey, error) {
	secret := make([]byte, cipherlog.KeySize)
	_, _ = rand.Read(secret) // never fails
	key, err := cipherlog.NewKey(secret)
	if err != nil {
		return wrappedKey{}, err
	}
	w := wrappedKey{tenant: tenant, id: key.ID(), created: s.now().UnixNano()}
	return w, w.wrap(s.master, key)
}

// wrap puts the data key under a master key. It is bound to its tenant and to its
// id, so that whoever can write to the database cannot give one tenant the key of
// another.
func (w *wrappedKey) wrap(m MasterKey, key cipherlog.Key) error {
	wrapping, err := m.wrapping()
	if err != nil {
		return err
	}
	w.master = m.ID()
	w.wrapped, err = seal(wrapping, key.Bytes(), "data key", w.tenant, w.id)
	return err
}

func (w *wrappedKey) unwrap(m MasterKey) (cipherlog.Key, error) {
	wrapping, err := m.wrapping()
	if err != nil {
		return cipherlog.Key{}, err
	}
	if w.master != m.ID() {
		return cipherlog.Key{}, fmt.Errorf("%w: the data key of %q is under master key %.64q, this is %s", ErrWrongMasterKey, w.tenant, w.master, m.ID())
	}
	secret, err := unseal(wrapping, w.wrapped, "data key", w.tenant, w.id)
	if err != nil {
		return cipherlog.Key{}, fmt.Errorf("data key of %q: %w", w.tenant, err)
	}
	return cipherlog.NewKey(secret)
}

// insert stores a new key. It is refused if the other keys are under another master
// key, so that a process which still has the old one cannot add to them after a
// rewrap.
func (w *wrappedKey) insert(tx eventlog.Tx) error {
	var other string
	found, err := one(tx, "SELECT master FROM tenant_data_key WHERE master <> $1 LIMIT 1", []any{w.master}, &other)
	switch {
	case err != nil:
		return err
	case found:
		return fmt.Errorf("%w: the data keys are under master key %.64q, this is %s", ErrWrongMasterKey, other, w.master)
	}
	_, err = tx.Exec(`INSERT INTO tenant_data_key (tenant, id, master, wrapped, created) VALUES ($1, $2, $3, $4, $5)`,
		w.tenant, w.id, w.master, w.wrapped, w.created)
	return err
}

// DataKey returns the key that the tenant's runs are encrypted with: [ErrErased]
// once it was destroyed. Whoever keeps it keeps the data readable, so it must not
// outlive what it is needed for.
func (s *Store) DataKey(ctx context.Context, tenant string) (key cipherlog.Key, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) (err error) {
		key, err = s.dataKey(q, tenant)
		return err
	})
	return key, err
}

func (s *Store) dataKey(q eventlog.Querier, tenant string) (cipherlog.Key, error) {
	w := wrappedKey{tenant: tenant}
	found, err := one(q, "SELECT id, master, wrapped FROM tenant_data_key WHERE tenant = $1", []any{tenant}, &w.id, &w.master, &w.wrapped)
	if err != nil {
		return cipherlog.Key{}, err
	}
	if !found {
		if err := needTenant(q, tenant); err != nil {
			return cipherlog.Key{}, err
		}
		return cipherlog.Key{}, notFound("data key of", tenant)
	}
	return w.unwrap(s.master)
}

// DataKeyIDs returns the id of each tenant's data key by that of the tenant; it is empty
// of a tenant that was erased. It needs no master key.
func (s *Store) DataKeyIDs(ctx context.Context) (ids map[string]string, err error) {
	ids = map[string]string{}
	err = s.db.View(ctx, func(q eventlog.Querier) error {
		const all = "SELECT tenant.id, coalesce(tenant_data_key.id, '') FROM tenant LEFT JOIN tenant_data_key ON tenant_data_key.tenant = tenant.id"
		return q.Query(all, nil, func(r eventlog.Row) error {
			var of, key string
			err := r.Scan(&of, &key)
			ids[of] = key
			return err
		})
	})
	return ids, err
}

// subkey returns the key for one of the things that are encrypted beside runs.
func (s *Store) subkey(q eventlog.Querier, tenant, purpose string) ([]byte, error) {
	key, err := s.dataKey(q, tenant)
	if err != nil {
		return nil, err
	}
	return key.Subkey(purpose)
}

// CheckMaster opens one data key, if there is any: [ErrWrongMasterKey] once another process
// has put them under another master key.
func (s *Store) CheckMaster(ctx context.Context) error {
	return s.db.View(ctx, func(q eventlog.Querier) error {
		var tenant string
		found, err := one(q, "SELECT tenant FROM tenant_data_key ORDER BY tenant LIMIT 1", nil, &tenant)
		if err != nil || !found {
			return err
		}
		_, err = s.dataKey(q, tenant)
		return err
	})
}

// Rewrap puts the data keys of all tenants, or of none, under another master key,
// and returns how many there are. Afterwards the old master key opens nothing but
// older copies of the database; destroying it destroys those. Stores that were
// opened with the old one, this one among them, have to be opened again.
func (s *Store) Rewrap(ctx context.Context, to MasterKey) (n int, err error) {
	err = s.db.Transact(ctx, func(tx eventlog.Tx) error {
		keys, err := wrappedKeys(tx)
		if err != nil {
			return err
		}
		n = len(keys)
		for _, w := range keys {
			if err := s.rewrap(tx, w, to); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (s *Store) rewrap(tx eventlog.Tx, w wrappedKey, to MasterKey) error {
	key, err := w.unwrap(s.master)
	if err != nil {
		return err
	}
	if err := w.wrap(to, key); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE tenant_data_key SET master = $2, wrapped = $3 WHERE tenant = $1", w.tenant, w.master, w.wrapped); err != nil {
		return err
	}
	return raise(tx, w.tenant)
}

func wrappedKeys(q eventlog.Querier) (keys []wrappedKey, err error) {
	err = q.Query("SELECT tenant, id, master, wrapped FROM tenant_data_key ORDER BY tenant", nil, func(r eventlog.Row) error {
		var w wrappedKey
		err := r.Scan(&w.tenant, &w.id, &w.master, &w.wrapped)
		keys = append(keys, w)
		return err
	})
	return keys, err
}
