package sqlitelog

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

// StoreModule implements [eventlog.Database]. A large module is written in pieces, so that
// runs are written between them: they wait only for the transaction before theirs, and a
// piece of 3 MB takes 15 ms.
func (l *Log) StoreModule(ctx context.Context, wasm []byte) (canon.Hash, error) {
	return l.index.StoreModule(ctx, wasm, func(digest canon.Hash) error { return l.storePieces(ctx, digest, wasm) })
}

func (l *Log) storePieces(ctx context.Context, digest canon.Hash, wasm []byte) error {
	for n, rest := 0, wasm; ; n++ {
		part := bytes.Clone(rest[:min(len(rest), dblog.PieceBytes)])
		rest = rest[len(part):]
		last, removed := len(rest) == 0, false
		err := l.perform(ctx, len(part), func(w *writer) (err error) {
			removed, err = w.storePiece(digest, n, part, last)
			return err
		})
		if err == nil && removed {
			err = errPieceRemoved
		}
		if err != nil || last {
			return err
		}
	}
}

// errPieceRemoved means that the module was removed while it was being stored.
var errPieceRemoved = errors.New("a piece of the module was removed")

// storePiece stores piece n of a module, or all of a small module. The row that makes a
// module of the pieces comes with the last one. If the process dies before, the pieces
// belong to no module, and the next call that stores it continues after them. removed
// reports that an earlier piece was removed meanwhile.
func (w *writer) storePiece(digest canon.Hash, n int, part []byte, last bool) (removed bool, err error) {
	whole := part
	if n > 0 || !last {
		if _, _, err := w.conn.run("INSERT INTO module_piece (digest, n, bytes) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", digest[:], int64(n), part); err != nil {
			return false, err
		}
		whole = []byte{}
	}
	if !last {
		return false, nil
	}
	if n > 0 {
		there := 0
		err := w.conn.query(context.Background(), "SELECT n FROM module_piece WHERE digest = ?", []any{digest[:]}, func([]driver.Value) error {
			there++
			return nil
		})
		if err != nil || there <= n {
			return true, err
		}
	}
	_, _, err = w.conn.run("INSERT INTO module (digest, wasm) VALUES (?, ?) ON CONFLICT DO NOTHING", digest[:], whole)
	return false, err
}

// MayRemoveModules implements [eventlog.Database].
func (l *Log) MayRemoveModules(context.Context) (bool, error) { return true, nil }

// RemoveModule implements [eventlog.Tx]. It also removes pieces that belong to no module.
func (t *tx) RemoveModule(digest canon.Hash) error {
	for _, table := range []string{"module", "module_piece"} {
		if _, err := t.Exec("DELETE FROM "+table+" WHERE digest = $1", digest[:]); err != nil {
			return err
		}
	}
	return nil
}
