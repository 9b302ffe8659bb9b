package sqlitelog

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// pieceBytes is how much of a module one transaction writes. Runs wait for the
// transaction before theirs, and one with 3 MB takes 15 ms. It is part of the layout:
// pieces that somebody has left are not written again.
const pieceBytes = 256 << 10

// piece is a part of a module on its way to the file, or all of a small one. The row that
// makes a module of the pieces comes with the last one. If the process dies before, the
// pieces belong to no module, and whoever stores it goes on from them.
type piece struct {
	digest  chain.Hash
	n       int
	bytes   []byte
	last    bool
	removed bool // an earlier piece was, while the module was being stored
	done    chan error
}

// errPieceRemoved means that somebody has removed the module while it was being stored.
var errPieceRemoved = errors.New("sqlitelog: a piece of the module was removed")

func (p *piece) do(w *writer) error {
	if err := p.write(w); err != nil {
		return fmt.Errorf("sqlitelog: store module %v: %w", p.digest, err)
	}
	return nil
}

func (p *piece) write(w *writer) error {
	whole := p.bytes
	if p.n > 0 || !p.last {
		if _, _, err := w.insertPiece.exec(p.digest[:], int64(p.n), p.bytes); err != nil {
			return err
		}
		whole = []byte{}
	}
	if !p.last {
		return nil
	}
	if p.n > 0 {
		var there int64
		const count = "SELECT count(*) FROM module_piece WHERE digest = ?"
		err := w.query(count, []driver.Value{p.digest[:]}, func(row []driver.Value) (err error) {
			there, err = integer(count, row[0])
			return err
		})
		if p.removed = there <= int64(p.n); err != nil || p.removed {
			return err
		}
	}
	_, _, err := w.insertModule.exec(p.digest[:], whole)
	return err
}

func (p *piece) finish(_ *Log, err error) {
	if err == nil && p.removed {
		err = errPieceRemoved
	}
	p.done <- err
}

func (p *piece) Size() int { return len(p.bytes) }

// PutModule implements [eventlog.ModuleStore].
func (l *Log) PutModule(ctx context.Context, wasm []byte) (chain.Hash, error) {
	if err := eventlog.HoldModule(ctx, l, chain.Sum(wasm), int64(len(wasm))); err != nil {
		return chain.Hash{}, err
	}
	return l.StoreModule(ctx, wasm)
}

// StoreModule implements [eventlog.ModuleKeeper]. A large module is written in pieces, so
// that runs are written between them.
func (l *Log) StoreModule(ctx context.Context, wasm []byte) (chain.Hash, error) {
	if len(wasm) > eventlog.MaxModuleBytes {
		return chain.Hash{}, fmt.Errorf("sqlitelog: module has %d bytes; at most %d are allowed", len(wasm), eventlog.MaxModuleBytes)
	}
	digest := chain.Sum(wasm)
	if found, err := l.HasModule(ctx, digest); err == nil && found { // most runs would otherwise write it again
		return digest, l.runs.Writable()
	}
	for n, rest := 0, wasm; ; n++ {
		part := rest[:min(len(rest), pieceBytes)]
		rest = rest[len(part):]
		p := &piece{digest: digest, n: n, bytes: bytes.Clone(part), last: len(rest) == 0, done: make(chan error, 1)}
		if err := l.perform(ctx, p, p.done); err != nil || p.last {
			return digest, err
		}
	}
}

// MayRemoveModules implements [eventlog.ModuleKeeper].
func (l *Log) MayRemoveModules(context.Context) (bool, error) { return true, nil }

// RemoveModule implements [eventlog.Tx]. It also removes pieces that belong to no module.
func (t *tx) RemoveModule(digest chain.Hash) error {
	for _, table := range []string{"module", "module_piece"} {
		if _, err := t.Exec("DELETE FROM "+table+" WHERE digest = $1", digest[:]); err != nil {
			return err
		}
	}
	return nil
}

// HasModule implements [eventlog.ModuleStore].
func (l *Log) HasModule(ctx context.Context, digest chain.Hash) (found bool, err error) {
	if l.layout.Load() < layoutVersion {
		return false, nil
	}
	err = l.readers.with(ctx, func(r *reader) error {
		n, err := r.count(ctx, "SELECT count(*) FROM module WHERE digest = ?", []driver.Value{digest[:]})
		found = n > 0
		return err
	})
	return found, err
}

// Module implements [eventlog.ModuleStore].
func (l *Log) Module(ctx context.Context, digest chain.Hash) (wasm []byte, err error) {
	if l.layout.Load() < layoutVersion {
		return nil, fmt.Errorf("%w: %v", eventlog.ErrModuleNotFound, digest)
	}
	found := false
	err = l.readers.with(ctx, func(r *reader) error {
		wasm, found, err = r.module(ctx, digest)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("%w: %v", eventlog.ErrModuleNotFound, digest)
	case chain.Sum(wasm) != digest:
		return nil, fmt.Errorf("%w: the module stored as %v has digest %v", eventlog.ErrLogCorrupt, digest, chain.Sum(wasm))
	}
	return wasm, nil
}

// module returns what is stored under the digest, whatever it is. The pieces of a module
// are never changed once its row is there, so two statements see the same.
func (r *reader) module(ctx context.Context, digest chain.Hash) (wasm []byte, found bool, err error) {
	const query = "SELECT iif(length(wasm) <= ?, wasm, NULL) FROM module WHERE digest = ?"
	err = r.query(ctx, query, []driver.Value{int64(eventlog.MaxModuleBytes), digest[:]}, func(row []driver.Value) error {
		found = true
		wasm, _ = row[0].([]byte)
		return nil
	})
	if err != nil || !found || len(wasm) > 0 {
		return wasm, found, err
	}
	const pieces = "SELECT iif(length(bytes) <= ?, bytes, NULL) FROM module_piece WHERE digest = ? ORDER BY n LIMIT ?"
	most := []driver.Value{int64(pieceBytes), digest[:], int64(eventlog.MaxModuleBytes / pieceBytes)}
	err = r.query(ctx, pieces, most, func(row []driver.Value) error {
		part, _ := row[0].([]byte)
		wasm = append(wasm, part...)
		return nil
	})
	return wasm, true, err
}
