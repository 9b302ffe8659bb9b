package sqlitelog

import (
	"bytes"
	"context"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

// storeModule is [dblog.Backend].StoreModule. A module is written in pieces, so that
// runs are written between them: they wait only for the transaction before theirs, and a
// piece of 3 MB takes 15 ms. If its pieces are removed meanwhile, since no run uses them yet,
// it begins again.
func (l *Log) storeModule(ctx context.Context, digest canon.Hash, wasm []byte) error {
	for n, rest := 0, wasm; ; n++ {
		piece := rest[:min(len(rest), dblog.PieceBytes)]
		rest = rest[len(piece):]
		part := bytes.Clone(dblog.Pack(piece))
		last := len(rest) == 0
		removed, err := perform(ctx, l, len(part), func(w *writer) (bool, error) { return w.storePiece(digest, n, part, last, len(wasm)) })
		if err != nil || last && !removed {
			return err
		}
		if removed {
			n, rest = -1, wasm
		}
	}
}

// storePiece stores piece n of a module. The row that makes a
// module of the pieces comes with the last one. If the process dies before, the pieces
// belong to no module, and the next call that stores it continues after them. removed
// reports that an earlier piece was removed meanwhile.
func (w *writer) storePiece(digest canon.Hash, n int, part []byte, last bool, size int) (removed bool, err error) {
	_, _, err = w.conn.run("INSERT INTO module_piece (digest, n, bytes) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", digest[:], int64(n), part)
	if err != nil || !last {
		return false, err
	}
	there, err := w.conn.integer(context.Background(), "SELECT count(*) FROM module_piece WHERE digest = ?", digest[:])
	if err != nil || there <= int64(n) {
		return true, err
	}
	_, _, err = w.conn.run("INSERT INTO module (digest, size, wasm) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", digest[:], int64(size), []byte{})
	return false, err
}

// mayRemoveModules is [dblog.Backend].MayRemoveModules.
func (l *Log) mayRemoveModules(context.Context) (bool, error) { return true, nil }
