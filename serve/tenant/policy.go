package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
)

// MaxPolicyBytes bounds the text of a policy, and MaxOwnPolicyBytes the text of a
// policy that a tenant sets.
const (
	MaxPolicyBytes    = 256 << 10
	MaxOwnPolicyBytes = 32 << 10
)

// keptPolicies is how many versions of a tenant's policy are kept.
const keptPolicies = 100

// Errors of changing a policy.
var (
	// ErrPolicyHeld means that the operator has set the policy and keeps it.
	ErrPolicyHeld = errors.New("tenant: the operator holds the policy")
	// ErrPolicyChanged means that the policy is not the version that the caller meant to
	// change.
	ErrPolicyChanged = errors.New("tenant: the policy was changed meanwhile")
)

// Policy is one version of a tenant's policy.
type Policy struct {
	Version int        // from 1
	Digest  canon.Hash // BLAKE3 of Text
	Text    string     // YAML, as host/policy reads it; empty if this version removes the policy
	Held    bool       // the operator has set it, and the tenant cannot change it
	Created time.Time
}

// SetPolicy stores a new version of a tenant's policy for the operator, unless it equals the last
// version. While it is held the tenant cannot change it. The caller must check that the text
// is a valid policy.
func (s *Store) SetPolicy(ctx context.Context, tenant, text string, held bool) (Policy, error) {
	return s.newPolicy(ctx, tenant, text, func(was Policy) (Policy, error) {
		return Policy{Text: text, Held: held}, nil
	})
}

// ChangePolicy stores a new version of a tenant's policy for the tenant itself. seen has the
// digests of the policies that the tenant has seen, and is empty if there was none. An empty text
// removes the policy. [ErrPolicyHeld] and [ErrPolicyChanged] change nothing. If the text equals the
// last version, ChangePolicy succeeds with any seen, so that a client may retry.
func (s *Store) ChangePolicy(ctx context.Context, tenant, text string, seen ...canon.Hash) (Policy, error) {
	if len(text) > MaxOwnPolicyBytes {
		return Policy{}, tooLong(text, MaxOwnPolicyBytes)
	}
	return s.newPolicy(ctx, tenant, text, func(was Policy) (Policy, error) { return was.changeTo(text, seen) })
}

// MayChangePolicy returns the error of [Store.ChangePolicy] for a tenant that may not, before
// anything is done with the text.
func (s *Store) MayChangePolicy(ctx context.Context, tenant, text string, seen ...canon.Hash) error {
	was, err := eventlog.View(ctx, s.db, func(q eventlog.Querier) (Policy, error) { return lastPolicy(q, tenant) })
	if err == nil {
		_, err = was.changeTo(text, seen)
	}
	return err
}

// changeTo returns the version that replaces p, for a tenant that has seen the given versions.
func (p Policy) changeTo(text string, seen []canon.Hash) (Policy, error) {
	switch {
	case p.Held:
		return Policy{}, ErrPolicyHeld
	case text != "" && p.Text == text:
		return p, nil
	case p.Text == "" && len(seen) > 0, p.Text != "" && !slices.Contains(seen, p.Digest):
		return Policy{}, ErrPolicyChanged
	}
	return Policy{Text: text}, nil
}

// newPolicy stores the result of next, which receives the last version or the zero Policy, and deletes
// the version that exceeds the history.
func (s *Store) newPolicy(ctx context.Context, tenant, text string, next func(Policy) (Policy, error)) (p Policy, err error) {
	if len(text) > MaxPolicyBytes {
		return Policy{}, tooLong(text, MaxPolicyBytes)
	}
	err = s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		was, err := lastPolicy(tx, tenant)
		if err != nil {
			return err
		}
		if p, err = next(was); err != nil {
			return err
		}
		if was.Version > 0 && was.Text == p.Text && was.Held == p.Held {
			p = was
			return nil
		}
		p.Version, p.Digest, p.Created = was.Version+1, canon.Sum([]byte(p.Text)), s.now().UTC()
		do := statements{tx: tx}
		do.exec("INSERT INTO tenant_policy (tenant, version, digest, text, held, created) VALUES ($1, $2, $3, $4, $5, $6)",
			tenant, int64(p.Version), p.Digest[:], p.Text, eventlog.Flag(p.Held), p.Created.UnixNano())
		do.exec("DELETE FROM tenant_policy WHERE tenant = $1 AND version <= $2", tenant, int64(p.Version-keptPolicies))
		return do.raise(tenant)
	})
	return p, err
}

func tooLong(text string, most int) error {
	return fmt.Errorf("%w: the policy has %d bytes; at most %d are allowed", ErrInvalid, len(text), most)
}

// Policy returns the tenant's policy as it is now. A tenant without one is
// [ErrNotFound].
func (s *Store) Policy(ctx context.Context, tenant string) (Policy, error) {
	p, err := eventlog.View(ctx, s.db, func(q eventlog.Querier) (Policy, error) { return lastPolicy(q, tenant) })
	if err == nil && p.Text == "" {
		return Policy{}, notFound("policy of", tenant)
	}
	return p, err
}

// Policies returns the stored versions of a tenant's policy, the last one first:
// at most a hundred. A version without a text marks a time without a policy.
func (s *Store) Policies(ctx context.Context, tenant string) ([]Policy, error) {
	return eventlog.View(ctx, s.db, func(q eventlog.Querier) ([]Policy, error) { return policies(q, tenant, keptPolicies) })
}

// lastPolicy returns the last version, or the zero Policy of a tenant that never had
// one.
func lastPolicy(q eventlog.Querier, tenant string) (Policy, error) {
	list, err := policies(q, tenant, 1)
	if err != nil || len(list) == 0 {
		return Policy{}, err
	}
	return list[0], nil
}

func policies(q eventlog.Querier, tenant string, most int) ([]Policy, error) {
	const query = "SELECT version, digest, text, held, created FROM tenant_policy WHERE tenant = $1 ORDER BY version DESC LIMIT $2"
	return eventlog.QueryAll(q, query, []any{tenant, int64(most)}, func(r eventlog.Row) (p Policy, err error) {
		err = r.Scan(&p.Version, &p.Digest, &p.Text, &p.Held, &p.Created)
		if err == nil && p.Digest != canon.Sum([]byte(p.Text)) {
			err = fmt.Errorf("tenant: policy version %d is not the text that its digest names", p.Version)
		}
		return p, err
	})
}
