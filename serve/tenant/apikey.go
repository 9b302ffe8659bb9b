package tenant

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
)

// An API key is sth_ID_SECRET: 80 bits that name it and 256 that prove it, both in
// lower-case base32, which a double click selects as one word.
const (
	keyPrefix   = "sth_"
	keyIDBytes  = 10
	keyIDLen    = 16
	keySecret   = 32
	keyLen      = len(keyPrefix) + keyIDLen + 1 + 52
	labelAPIKey = "starling-host api key 1\x00"
	maxKeys     = 100 // of one tenant that are valid
)

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// APIKey describes a key, without the key itself.
type APIKey struct {
	ID      string    `json:"id"` // the part of the key that may be shown
	Tenant  string    `json:"-"`
	Label   string    `json:"label"`               // for people; at most 200 bytes
	Created time.Time `json:"created_at"`          // by CreateKey or RotateKey
	Expires time.Time `json:"expires_at,omitzero"` // from when it is not taken; zero for never
	Revoked time.Time `json:"-"`                   // when it was revoked; zero if it was not
}

// Valid reports whether the key is taken at a time.
func (k APIKey) Valid(at time.Time) bool {
	return k.Revoked.IsZero() && (k.Expires.IsZero() || at.Before(k.Expires))
}

// CreateKey makes a key of a tenant. The Value is the key itself, which is
// not shown again.
func (s *Store) CreateKey(ctx context.Context, tenant, label string) (k APIKey, key Value, err error) {
	err = s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		k, key, err = s.insertKey(tx, tenant, label, newKey())
		return err
	})
	return k, key, err
}

// RotateKey makes a new key of a tenant. The keys that were valid stay so for the
// grace period, and not longer than they would have been.
func (s *Store) RotateKey(ctx context.Context, tenant, label string, grace time.Duration) (k APIKey, key Value, err error) {
	until := s.now().Add(max(grace, 0)).UnixNano()
	err = s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		_, err := tx.Exec(`UPDATE tenant_api_key SET expires = $2 WHERE tenant = $1 AND revoked = 0 AND (expires = 0 OR expires > $2)`, tenant, until)
		if err != nil {
			return err
		}
		k, key, err = s.insertKey(tx, tenant, label, newKey())
		return err
	})
	return k, key, err
}

// DerivedKey returns the one key of a tenant that is derived from its data key, and makes it valid.
// It does not change while the data key does not, and is not stored. It is for a host with one
// user, whose scripts keep working after a restart of the host.
func (s *Store) DerivedKey(ctx context.Context, tenant, label string) (key Value, err error) {
	err = s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		id, err := s.subkey(tx, tenant, "api key id")
		if err != nil {
			return err
		}
		secret, err := s.subkey(tx, tenant, "api key")
		if err != nil {
			return err
		}
		bits := append(id[:keyIDBytes], secret...)
		name, text := formKey(bits)
		n, err := tx.Exec("UPDATE tenant_api_key SET label = $3, expires = 0, revoked = 0 WHERE tenant = $1 AND id = $2", tenant, name, label)
		if err != nil || n > 0 {
			key = NewValue(text)
			return err
		}
		_, key, err = s.insertKey(tx, tenant, label, bits)
		return err
	})
	return key, err
}

func (s *Store) insertKey(tx eventlog.Tx, tenant, label string, bits []byte) (APIKey, Value, error) {
	k := APIKey{Tenant: tenant, Label: label, Created: s.now().UTC()}
	if err := validText("the label", label, 200); err != nil {
		return APIKey{}, Value{}, err
	}
	var have int64
	if _, err := eventlog.QueryOne(tx, "SELECT count(*) FROM tenant_api_key WHERE tenant = $1 AND revoked = 0 AND (expires = 0 OR expires > $2)",
		[]any{tenant, k.Created.UnixNano()}, &have); err != nil {
		return APIKey{}, Value{}, err
	}
	if have >= maxKeys {
		return APIKey{}, Value{}, fmt.Errorf("%w: tenant %q has %d valid keys; at most %d are allowed", ErrInvalid, tenant, have, maxKeys)
	}
	id, text := formKey(bits)
	k.ID = id
	hash := keyHash(text)
	_, err := tx.Exec(`INSERT INTO tenant_api_key (id, tenant, label, hash, created, expires, revoked) VALUES ($1, $2, $3, $4, $5, 0, 0)`,
		k.ID, tenant, label, hash[:], k.Created.UnixNano())
	return k, NewValue(text), exists(err, "API key", k.ID)
}

// newKey returns the bits of a random key.
func newKey() []byte {
	bits := make([]byte, keyIDBytes+keySecret)
	_, _ = rand.Read(bits) // never fails
	return bits
}

// formKey writes the bits of a key as text.
func formKey(bits []byte) (id, text string) {
	id = base32Lower.EncodeToString(bits[:keyIDBytes])
	return id, keyPrefix + id + "_" + base32Lower.EncodeToString(bits[keyIDBytes:])
}

// keyHash returns the stored hash of a key. It covers the whole key, so that a
// row with a changed id authenticates nothing.
func keyHash(text string) canon.Hash { return canon.Sum([]byte(labelAPIKey + text)) }

// KeyID returns the id of a presented key, which is part of it, or "" if no key has this form.
func KeyID(presented string) string {
	rest, ok := strings.CutPrefix(presented, keyPrefix)
	if !ok || len(presented) != keyLen || rest[keyIDLen] != '_' {
		return ""
	}
	return rest[:keyIDLen]
}

// Authenticate returns the owner of a presented key. If the key is malformed, unknown, expired or
// revoked, or its tenant is suspended or erased, the error is [ErrUnauthorized]. The work is the
// same in all cases: one query of the database, one hash, one comparison in constant time. Any
// other error means that the query failed.
func (s *Store) Authenticate(ctx context.Context, presented string) (Tenant, error) {
	id := KeyID(presented)
	var t Tenant
	var k APIKey
	var stored []byte // nil for an unknown key, which equals no hash
	err := s.db.View(ctx, func(q eventlog.Querier) error {
		t, k, stored = Tenant{}, APIKey{}, nil
		const query = `SELECT t.id, t.name, t.created, t.suspended, t.erased, t.weight, t.limits, t.revision, k.hash, k.expires, k.revoked
FROM tenant_api_key k JOIN tenant t ON t.id = k.tenant WHERE k.id = $1`
		return q.Query(query, []any{id}, func(r eventlog.Row) (err error) {
			t, err = scanTenant(r, &stored, &k.Expires, &k.Revoked)
			return err
		})
	})
	if err != nil {
		return Tenant{}, fmt.Errorf("tenant: look up an API key: %w", err)
	}
	hash := keyHash(presented[:min(len(presented), keyLen)])
	proven := subtle.ConstantTimeCompare(hash[:], stored) == 1 && id != "" && len(presented) == keyLen
	valid := k.Valid(s.now()) && t.ID != "" && !t.Suspended && t.Erased.IsZero()
	if !proven || !valid {
		return Tenant{}, ErrUnauthorized
	}
	return t, nil
}

// Keys returns the keys of a tenant, the newest first, including revoked and
// expired ones.
func (s *Store) Keys(ctx context.Context, tenant string) ([]APIKey, error) {
	const query = "SELECT id, label, created, expires, revoked FROM tenant_api_key WHERE tenant = $1 ORDER BY created DESC, id"
	return eventlog.ViewAll(ctx, s.db, query, []any{tenant}, eventlog.Columns(func(k *APIKey) []any {
		k.Tenant = tenant
		return []any{&k.ID, &k.Label, &k.Created, &k.Expires, &k.Revoked}
	}))
}

// RevokeKey makes the host refuse one key of a tenant from now on. Another
// tenant's key is [ErrNotFound], like a missing one.
func (s *Store) RevokeKey(ctx context.Context, tenant, keyID string) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		n, err := tx.Exec("UPDATE tenant_api_key SET revoked = $3 WHERE tenant = $1 AND id = $2 AND revoked = 0", tenant, keyID, s.now().UnixNano())
		if err != nil || n > 0 {
			return err
		}
		found, err := eventlog.QueryOne(tx, "SELECT id FROM tenant_api_key WHERE tenant = $1 AND id = $2", []any{tenant, keyID}, &keyID)
		if err == nil && !found {
			err = notFound("API key", keyID)
		}
		return err
	})
}
