package tenant

import (
	"context"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/cipherlog"
)

// Holdings are what a host has to know of a tenant in order to work for it. Whatever
// changes them raises the tenant's revision in the same transaction, so those that were
// read at the revision of a [Tenant] are the ones that it has.
type Holdings struct {
	Revision int64         // that they are of
	Key      cipherlog.Key // that its runs are encrypted with; see [Store.DataKey]
	Policy   Policy        // the last version, or the zero Policy if there never was one
	Modules  []Module      // by name
}

// Holdings returns what a tenant has. One that was erased is [ErrErased].
func (s *Store) Holdings(ctx context.Context, tenant string) (h Holdings, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) (err error) {
		if _, err = one(q, "SELECT revision FROM tenant WHERE id = $1", []any{tenant}, &h.Revision); err != nil {
			return err
		}
		if h.Key, err = s.dataKey(q, tenant); err != nil { // or there is no such tenant
			return err
		}
		if h.Policy, err = lastPolicy(q, tenant); err != nil {
			return err
		}
		h.Modules, err = modules(q, tenant)
		return err
	})
	return h, err
}

// raise notes that a tenant's holdings change in the transaction.
func raise(tx eventlog.Tx, tenant string) error {
	_, err := tx.Exec("UPDATE tenant SET revision = revision + 1 WHERE id = $1", tenant)
	return err
}

const purposeHost = "host:"

// Seal encrypts what a host keeps of the tenant in tables of its own, with a key for
// that purpose alone. It opens only with the same binding: what it is and where it
// belongs. Once the tenant is erased, nobody can open it who has not read its holdings
// before.
func (h Holdings) Seal(purpose string, text []byte, binding ...string) ([]byte, error) {
	sub, err := h.Key.Subkey(purposeHost + purpose)
	if err != nil {
		return nil, err
	}
	return seal(sub, text, binding...)
}

// Unseal is the inverse of Seal.
func (h Holdings) Unseal(purpose string, sealed []byte, binding ...string) ([]byte, error) {
	sub, err := h.Key.Subkey(purposeHost + purpose)
	if err != nil {
		return nil, err
	}
	return unseal(sub, sealed, binding...)
}
