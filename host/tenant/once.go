package tenant

import (
	"context"
	"errors"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// Once keeps the answer of a request with an idempotency key in the transaction
// that carries the request out: with it, the key is there if and only if the
// request has had its effect, and there is nothing to finish. If the key is there
// already, earlier is what was answered then, and tx must be given up. Errors are
// those of [Store.Begin].
func (s *Store) Once(tx eventlog.Tx, tenant, key string, request chain.Hash, answer []byte, lives time.Duration) (earlier []byte, err error) {
	earlier, first, err := s.begin(tx, tenant, key, request, lives)
	if err != nil || !first {
		return earlier, err
	}
	sub, err := s.subkey(tx, tenant, purposeAnswer)
	if err != nil {
		return nil, err
	}
	sealed, err := seal(sub, answer, tenant, key, string(request[:]))
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec("UPDATE tenant_answer SET sealed = $3 WHERE tenant = $1 AND key = $2", tenant, key, sealed)
	return nil, err
}

// errLookOnly undoes a transaction that only looked.
var errLookOnly = errors.New("tenant: nothing to keep")

// Answered returns what a request with an idempotency key was answered, or false
// for a key that is not there. Errors are those of [Store.Begin].
func (s *Store) Answered(ctx context.Context, tenant, key string, request chain.Hash) (answer []byte, found bool, err error) {
	if key == "" || validText("the idempotency key", key, maxAnswerKey) != nil {
		return nil, false, badAnswerKey()
	}
	err = s.transactFor(ctx, tenant, func(tx eventlog.Tx) error {
		var first bool
		answer, first, err = s.begin(tx, tenant, key, request, time.Minute)
		found = !first
		if err != nil {
			return err
		}
		return errLookOnly
	})
	if errors.Is(err, errLookOnly) {
		err = nil
	}
	return answer, found && err == nil, err
}
