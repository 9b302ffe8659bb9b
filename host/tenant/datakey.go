package tenant

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/cipherlog"
)

// wrappedKey is a row of tenant_data_key.
type wrappedKey struct {
	tenant, id, master string
	wrapped            []byte
}

// newDataKey makes and stores the data key of a tenant. It is put under the master key of
// the other data keys, and without any under the first of the store's. As long as one of the
// others is under a master key that the store lacks there is none, so that a process which
// has only the old one adds nothing after a rewrap.
func (s *Store) newDataKey(tx eventlog.Tx, tenant string) error {
	used, err := masters(tx)
	if err != nil {
		return err
	}
	var to MasterKey
	if held := *s.masters.Load(); len(held) > 0 {
		to = held[0]
	}
	for _, u := range used {
		if to, err = s.master(u.tenant, u.ID); err != nil {
			return err
		}
	}
	secret := make([]byte, cipherlog.KeySize)
	_, _ = rand.Read(secret) // never fails
	key, err := cipherlog.NewKey(secret)
	if err != nil {
		return err
	}
	w := wrappedKey{tenant: tenant, id: key.ID()}
	if err := w.wrap(to, key); err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO tenant_data_key (tenant, id, master, wrapped, created) VALUES ($1, $2, $3, $4, $5)`,
		w.tenant, w.id, w.master, w.wrapped, s.now().UnixNano())
	return err
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

func (s *Store) unwrap(w wrappedKey) (cipherlog.Key, error) {
	m, err := s.master(w.tenant, w.master)
	if err != nil {
		return cipherlog.Key{}, err
	}
	wrapping, err := m.wrapping()
	if err != nil {
		return cipherlog.Key{}, err
	}
	secret, err := unseal(wrapping, w.wrapped, "data key", w.tenant, w.id)
	if err != nil {
		return cipherlog.Key{}, fmt.Errorf("data key of %q: %w", w.tenant, err)
	}
	return cipherlog.NewKey(secret)
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
	return s.unwrap(w)
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

// master returns the master key of that id, which a tenant's data key is under.
func (s *Store) master(tenant, id string) (MasterKey, error) {
	held := *s.masters.Load()
	if len(held) == 0 {
		return MasterKey{}, ErrNoMasterKey
	}
	for _, m := range held {
		if m.ID() == id {
			return m, nil
		}
	}
	return MasterKey{}, fmt.Errorf("%w: the data key of %q is under master key %.64q, this is %s", ErrWrongMasterKey, tenant, id, strings.Join(s.MasterKeys(), " and "))
}

// MasterKeys returns the ids of the master keys that the store has.
func (s *Store) MasterKeys() (ids []string) {
	for _, m := range *s.masters.Load() {
		ids = append(ids, m.ID())
	}
	return ids
}

// UseMasters has the store use these master keys instead of those that it has. If one of the
// data keys is under another one, that is [ErrWrongMasterKey] and changes nothing.
func (s *Store) UseMasters(ctx context.Context, keys ...MasterKey) error {
	next := &Store{db: s.db}
	next.masters.Store(&keys)
	if err := next.CheckMaster(ctx); err != nil {
		return err
	}
	s.masters.Store(&keys)
	return nil
}

// MasterUse is a master key that data keys are under.
type MasterUse struct {
	ID       string
	DataKeys int
	tenant   string // one of theirs
}

// MasterUses returns the master keys that data keys are under, by id. It needs no master key.
func (s *Store) MasterUses(ctx context.Context) (used []MasterUse, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) error {
		used, err = masters(q)
		return err
	})
	return used, err
}

func masters(q eventlog.Querier) (used []MasterUse, err error) {
	const all = "SELECT master, count(*), min(tenant) FROM tenant_data_key GROUP BY master ORDER BY master"
	err = q.Query(all, nil, func(r eventlog.Row) error {
		var u MasterUse
		var n int64
		err := r.Scan(&u.ID, &n, &u.tenant)
		u.DataKeys = int(n)
		used = append(used, u)
		return err
	})
	return used, err
}

// CheckMaster opens a data key under each master key that there are any under:
// [ErrWrongMasterKey] once another process has put them under one that the store lacks.
func (s *Store) CheckMaster(ctx context.Context) error {
	return s.db.View(ctx, func(q eventlog.Querier) error {
		used, err := masters(q)
		for _, u := range used {
			if err == nil {
				_, err = s.dataKey(q, u.tenant)
			}
		}
		return err
	})
}

// Rewrap puts the data keys of all tenants, or of none, under another master key,
// and returns how many there are. Those that are under it already stay. Afterwards the
// other master keys open nothing but older copies of the database; destroying them
// destroys those. Stores without the new one can open no data key any more, see
// [Store.UseMasters].
func (s *Store) Rewrap(ctx context.Context, to MasterKey) (n int, err error) {
	err = s.db.Transact(ctx, func(tx eventlog.Tx) error {
		keys, err := wrappedKeys(tx)
		if err != nil {
			return err
		}
		n = len(keys)
		for _, w := range keys {
			if w.master == to.ID() {
				continue
			}
			key, err := s.unwrap(w)
			if err != nil {
				return err
			}
			if err := w.wrap(to, key); err != nil {
				return err
			}
			if _, err := tx.Exec("UPDATE tenant_data_key SET master = $2, wrapped = $3 WHERE tenant = $1", w.tenant, w.master, w.wrapped); err != nil {
				return err
			}
			if err := raise(tx, w.tenant); err != nil {
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

func wrappedKeys(q eventlog.Querier) (keys []wrappedKey, err error) {
	err = q.Query("SELECT tenant, id, master, wrapped FROM tenant_data_key ORDER BY tenant", nil, func(r eventlog.Row) error {
		var w wrappedKey
		err := r.Scan(&w.tenant, &w.id, &w.master, &w.wrapped)
		keys = append(keys, w)
		return err
	})
	return keys, err
}
