package pglog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog/canon"
)

// StoreModule implements [eventlog.Database].
func (l *Log) StoreModule(ctx context.Context, wasm []byte) (canon.Hash, error) {
	return l.index.StoreModule(ctx, wasm, func(digest canon.Hash) error {
		return l.inTx(ctx, nil, pgx.ReadCommitted, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO module (digest, wasm) VALUES ($1, $2) ON CONFLICT DO NOTHING", digest[:], wasm)
			return err
		})
	})
}

// MayRemoveModules implements [eventlog.Database].
func (l *Log) MayRemoveModules(ctx context.Context) (may bool, err error) {
	if err := l.pool.QueryRow(ctx, "SELECT has_table_privilege('module', 'DELETE')").Scan(&may); err != nil {
		return false, fmt.Errorf("pglog: look for the rights of the role: %w", orUnavailable(err))
	}
	return may, nil
}

// RemoveModule implements [eventlog.Tx].
func (t *Tx) RemoveModule(digest canon.Hash) error {
	_, err := t.Exec("DELETE FROM module WHERE digest = $1", digest[:])
	return err
}
