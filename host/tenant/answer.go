package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// ErrKeyReused means that an idempotency key came with another request before.
var ErrKeyReused = errors.New("tenant: the idempotency key belongs to another request")

const (
	purposeAnswer  = "answer"
	maxAnswerBytes = 1 << 20
	maxAnswerKey   = 255
)

// Once keeps the answer of a request with an idempotency key, encrypted, in the
// transaction that carries the request out: so the key is there if and only if the
// request has had its effect, and there is nothing to finish. If the key is there
// already, earlier is what was answered then, and tx must be given up. Request is
// the digest of everything that makes the request what it is; a key that came with
// another one is [ErrKeyReused]. The key is free again when the answer has lived.
func (s *Store) Once(tx eventlog.Tx, tenant, key string, request chain.Hash, answer []byte, lives time.Duration) (earlier []byte, err error) {
	if len(answer) > maxAnswerBytes {
		return nil, fmt.Errorf("%w: the answer has %d bytes; at most %d are kept", ErrInvalid, len(answer), maxAnswerBytes)
	}
	if err := needTenant(tx, tenant); err != nil {
		return nil, err
	}
	if earlier, found, err := s.answered(tx, tenant, key, request); found || err != nil {
		return earlier, err
	}
	now := s.now()
	if _, err := tx.Exec("DELETE FROM tenant_answer WHERE expires <= $1", now.UnixNano()); err != nil {
		return nil, err
	}
	sub, err := s.subkey(tx, tenant, purposeAnswer)
	if err != nil {
		return nil, err
	}
	sealed, err := seal(sub, answer, tenant, key, string(request[:]))
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec("INSERT INTO tenant_answer (tenant, key, request, sealed, expires) VALUES ($1, $2, $3, $4, $5)",
		tenant, key, request[:], sealed, now.Add(lives).UnixNano())
	return nil, err
}

// Answered returns what a request with an idempotency key was answered, or false
// for a key that is not there. Errors are those of [Store.Once].
func (s *Store) Answered(ctx context.Context, tenant, key string, request chain.Hash) (answer []byte, found bool, err error) {
	err = s.db.View(ctx, func(q eventlog.Querier) (err error) {
		answer, found, err = s.answered(q, tenant, key, request)
		return err
	})
	return answer, found, err
}

func (s *Store) answered(q eventlog.Querier, tenant, key string, request chain.Hash) (answer []byte, found bool, err error) {
	if key == "" || validText("the idempotency key", key, maxAnswerKey) != nil {
		return nil, false, fmt.Errorf("%w: an idempotency key has 1 to %d bytes of printable text", ErrInvalid, maxAnswerKey)
	}
	var had, sealed []byte
	found, err = one(q, "SELECT request, sealed FROM tenant_answer WHERE tenant = $1 AND key = $2 AND expires > $3",
		[]any{tenant, key, s.now().UnixNano()}, &had, &sealed)
	switch {
	case err != nil || !found:
		return nil, false, err
	case string(had) != string(request[:]):
		return nil, false, ErrKeyReused
	}
	sub, err := s.subkey(q, tenant, purposeAnswer)
	if err != nil {
		return nil, false, err
	}
	answer, err = unseal(sub, sealed, tenant, key, string(request[:]))
	return answer, err == nil, err
}
