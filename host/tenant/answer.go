package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// Errors of [Store.Begin].
var (
	// ErrKeyReused means that the idempotency key came with another request before.
	ErrKeyReused = errors.New("tenant: the idempotency key belongs to another request")
	// ErrInProgress means that the first request with that key has no answer yet.
	ErrInProgress = errors.New("tenant: the first request with this idempotency key is still at work")
)

const (
	purposeAnswer  = "answer"
	maxAnswerBytes = 1 << 20
	maxAnswerKey   = 255
)

// Begin asks whether a request with an idempotency key may be carried out. With
// first it may, and has to be followed by [Store.Finish] or [Store.Abandon];
// without, answer is what was given the first time. Request is the digest of
// everything that makes the request what it is. A process that dies in between
// leaves the key [ErrInProgress] until patience has passed.
func (s *Store) Begin(ctx context.Context, tenant, key string, request chain.Hash, patience time.Duration) (answer []byte, first bool, err error) {
	if key == "" || validText("the idempotency key", key, maxAnswerKey) != nil {
		return nil, false, badAnswerKey()
	}
	err = s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		answer, first, err = s.begin(tx, tenant, key, request, patience)
		return err
	})
	return answer, first, err
}

func badAnswerKey() error {
	return fmt.Errorf("%w: an idempotency key has 1 to %d bytes of printable text", ErrInvalid, maxAnswerKey)
}

func (s *Store) begin(tx eventlog.Tx, tenant, key string, request chain.Hash, patience time.Duration) ([]byte, bool, error) {
	now := s.now()
	if _, err := tx.Exec("DELETE FROM tenant_answer WHERE expires <= $1", now.UnixNano()); err != nil {
		return nil, false, err
	}
	var had, sealed []byte
	found, err := one(tx, "SELECT request, sealed FROM tenant_answer WHERE tenant = $1 AND key = $2", []any{tenant, key}, &had, &sealed)
	switch {
	case err != nil:
		return nil, false, err
	case !found:
		_, err := tx.Exec("INSERT INTO tenant_answer (tenant, key, request, sealed, expires) VALUES ($1, $2, $3, $4, $5)",
			tenant, key, request[:], nil, now.Add(patience).UnixNano())
		return nil, true, err
	case string(had) != string(request[:]):
		return nil, false, ErrKeyReused
	case len(sealed) == 0:
		return nil, false, ErrInProgress
	}
	sub, err := s.subkey(tx, tenant, purposeAnswer)
	if err != nil {
		return nil, false, err
	}
	answer, err := unseal(sub, sealed, tenant, key, string(request[:]))
	return answer, false, err
}

// Finish keeps the answer of a request that was begun, encrypted, for as long as
// it lives. A request that took longer than its patience, so that its key was
// given away, is [ErrNotFound].
func (s *Store) Finish(ctx context.Context, tenant, key string, request chain.Hash, answer []byte, lives time.Duration) error {
	if len(answer) > maxAnswerBytes {
		return fmt.Errorf("%w: the answer has %d bytes; at most %d are kept", ErrInvalid, len(answer), maxAnswerBytes)
	}
	return s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		sub, err := s.subkey(tx, tenant, purposeAnswer)
		if err != nil {
			return err
		}
		sealed, err := seal(sub, answer, tenant, key, string(request[:]))
		if err != nil {
			return err
		}
		n, err := tx.Exec("UPDATE tenant_answer SET sealed = $4, expires = $5 WHERE tenant = $1 AND key = $2 AND request = $3 AND sealed IS NULL",
			tenant, key, request[:], sealed, s.now().Add(lives).UnixNano())
		if err == nil && n == 0 {
			err = notFound("idempotency key", key)
		}
		return err
	})
}

// Abandon forgets a request that was begun and did nothing, so that it may be
// tried again.
func (s *Store) Abandon(ctx context.Context, tenant, key string, request chain.Hash) error {
	return s.db.Transact(ctx, func(tx eventlog.Tx) error {
		_, err := tx.Exec("DELETE FROM tenant_answer WHERE tenant = $1 AND key = $2 AND request = $3 AND sealed IS NULL", tenant, key, request[:])
		return err
	})
}
