package pglog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

// storeModule is [dblog.Backend].StoreModule.
func (l *Log) storeModule(ctx context.Context, digest canon.Hash, wasm []byte) error {
	return l.change(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO module (digest, size, wasm) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", digest[:], len(wasm), dblog.Pack(wasm))
		return err
	})
}

// mayRemoveModules is [dblog.Backend].MayRemoveModules.
func (l *Log) mayRemoveModules(ctx context.Context) (may bool, err error) {
	if err := l.pool.QueryRow(ctx, "SELECT has_table_privilege('module', 'DELETE')").Scan(&may); err != nil {
		return false, fmt.Errorf("pglog: look for the rights of the role: %w", orUnavailable(err))
	}
	return may, nil
}
