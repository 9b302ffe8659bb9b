package tenant

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// MaxPolicyBytes bounds the text of a policy.
const MaxPolicyBytes = 256 << 10

// Policy is one version of a tenant's policy. Older versions are kept, because
// recorded decisions name the digest of the one that they came from.
type Policy struct {
	Version int        // from 1
	Digest  chain.Hash // BLAKE3 of Text
	Text    string     // YAML, as host/policy reads it
	Created time.Time
}

const policyColumns = "version, digest, text, created"

// SetPolicy stores a new version of a tenant's policy, unless the text is that of
// the last one. Whether the text is a policy is for the caller to know.
func (s *Store) SetPolicy(ctx context.Context, tenant, text string) (p Policy, err error) {
	if len(text) > MaxPolicyBytes {
		return Policy{}, fmt.Errorf("%w: the policy has %d bytes; at most %d are allowed", ErrInvalid, len(text), MaxPolicyBytes)
	}
	digest := chain.Sum([]byte(text))
	err = s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		p = Policy{}
		_, err := queryPolicy(tx, &p, "WHERE tenant = $1 ORDER BY version DESC LIMIT 1", tenant)
		if err != nil || p.Digest == digest && p.Version > 0 {
			return err
		}
		p = Policy{Version: p.Version + 1, Digest: digest, Text: text, Created: s.now().UTC()}
		_, err = tx.Exec("INSERT INTO tenant_policy (tenant, version, digest, text, created) VALUES ($1, $2, $3, $4, $5)",
			tenant, int64(p.Version), digest[:], text, p.Created.UnixNano())
		return err
	})
	return p, err
}

// Policy returns the tenant's policy as it is now. A tenant without one is
// [ErrNotFound].
func (s *Store) Policy(ctx context.Context, tenant string) (Policy, error) {
	return s.policy(ctx, "WHERE tenant = $1 ORDER BY version DESC LIMIT 1", tenant)
}

// PolicyByDigest returns the version of the tenant's policy that a recorded
// decision names.
func (s *Store) PolicyByDigest(ctx context.Context, tenant string, digest chain.Hash) (Policy, error) {
	return s.policy(ctx, "WHERE tenant = $1 AND digest = $2 ORDER BY version DESC LIMIT 1", tenant, digest[:])
}

func (s *Store) policy(ctx context.Context, where string, args ...any) (p Policy, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) error {
		found, err := queryPolicy(q, &p, where, args...)
		if err == nil && !found {
			err = fmt.Errorf("%w: policy", ErrNotFound)
		}
		return err
	})
	return p, err
}

func queryPolicy(q eventlog.Querier, p *Policy, where string, args ...any) (found bool, err error) {
	var version, created int64
	var digest []byte
	found, err = one(q, "SELECT "+policyColumns+" FROM tenant_policy "+where, args, &version, &digest, &p.Text, &created)
	if err != nil || !found {
		return found, err
	}
	p.Version, p.Created = int(version), instant(created)
	p.Digest, err = asHash(digest)
	if err == nil && p.Digest != chain.Sum([]byte(p.Text)) {
		err = fmt.Errorf("tenant: policy version %d is not the text that its digest names", version)
	}
	return true, err
}

func asHash(b []byte) (chain.Hash, error) {
	if len(b) != len(chain.Hash{}) {
		return chain.Hash{}, fmt.Errorf("tenant: a digest has %d bytes, want %d", len(b), len(chain.Hash{}))
	}
	return chain.Hash(b), nil
}
