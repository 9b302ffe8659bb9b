package pglog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// PutModule implements [eventlog.ModuleStore].
func (l *Log) PutModule(ctx context.Context, wasm []byte) (chain.Hash, error) {
	if err := eventlog.HoldModule(ctx, l, chain.Sum(wasm), int64(len(wasm))); err != nil {
		return chain.Hash{}, err
	}
	return l.StoreModule(ctx, wasm)
}

// StoreModule implements [eventlog.ModuleKeeper].
func (l *Log) StoreModule(ctx context.Context, wasm []byte) (chain.Hash, error) {
	if len(wasm) > eventlog.MaxModuleBytes {
		return chain.Hash{}, fmt.Errorf("pglog: module has %d bytes; at most %d are allowed", len(wasm), eventlog.MaxModuleBytes)
	}
	if err := l.runs.Writable(); err != nil {
		return chain.Hash{}, err
	}
	digest := chain.Sum(wasm)
	known, err := l.HasModule(ctx, digest) // most runs would otherwise write it again
	if err == nil && !known {
		err = l.inTx(ctx, nil, pgx.ReadCommitted, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO module (digest, wasm) VALUES ($1, $2) ON CONFLICT DO NOTHING", digest[:], wasm)
			return err
		})
	}
	if err != nil {
		return chain.Hash{}, fmt.Errorf("pglog: store module %v: %w", digest, err)
	}
	return digest, nil
}

// HasModule implements [eventlog.ModuleStore].
func (l *Log) HasModule(ctx context.Context, digest chain.Hash) (bool, error) {
	return again(ctx, l, func() (found bool, err error) {
		if err = l.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM module WHERE digest = $1)", digest[:]).Scan(&found); err != nil {
			return false, fmt.Errorf("pglog: look for module %v: %w", digest, err)
		}
		return found, nil
	})
}

// Module implements [eventlog.ModuleStore].
func (l *Log) Module(ctx context.Context, digest chain.Hash) (wasm []byte, err error) {
	const query = "SELECT CASE WHEN octet_length(wasm) <= $1 THEN wasm END FROM module WHERE digest = $2"
	wasm, err = again(ctx, l, func() (wasm []byte, err error) {
		err = l.pool.QueryRow(ctx, query, eventlog.MaxModuleBytes, digest[:]).Scan(&wasm)
		return wasm, err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("%w: %v", eventlog.ErrModuleNotFound, digest)
	case err != nil:
		return nil, fmt.Errorf("pglog: read module %v: %w", digest, err)
	case chain.Sum(wasm) != digest:
		return nil, fmt.Errorf("%w: the module stored as %v has digest %v", eventlog.ErrLogCorrupt, digest, chain.Sum(wasm))
	}
	return wasm, nil
}

// MayRemoveModules implements [eventlog.ModuleKeeper].
func (l *Log) MayRemoveModules(ctx context.Context) (may bool, err error) {
	if err := l.pool.QueryRow(ctx, "SELECT has_table_privilege('module', 'DELETE')").Scan(&may); err != nil {
		return false, fmt.Errorf("pglog: look for the rights of the role: %w", orUnavailable(err))
	}
	return may, nil
}

// RemoveModule implements [eventlog.Tx].
func (t *Tx) RemoveModule(digest chain.Hash) error {
	_, err := t.Exec("DELETE FROM module WHERE digest = $1", digest[:])
	return err
}
