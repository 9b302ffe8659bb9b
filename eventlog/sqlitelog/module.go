package sqlitelog

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// pieceBytes is how much of a module one transaction writes. Runs wait for the
// transaction before theirs, and one with 3 MB takes 15 ms. It is part of the layout:
// pieces that somebody has left are not written again.
const pieceBytes = 256 << 10

// piece is a part of a module on its way to the file, or all of a small one. The last
// piece comes with the row that makes a module of those that are there: if the process
// dies before, they belong to none, and whoever stores the module goes on from them.
type piece struct {
	digest chain.Hash
	n      int
	bytes  []byte
	last   bool
	done   chan error
}

func (p *piece) do(w *writer) error {
	if err := p.write(w); err != nil {
		return fmt.Errorf("sqlitelog: store module %v: %w", p.digest, err)
	}
	return nil
}

func (p *piece) write(w *writer) error {
	whole := p.bytes
	if !p.whole() {
		if _, _, err := w.insertPiece.exec(p.digest[:], int64(p.n), p.bytes); err != nil {
			return err
		}
		whole = []byte{}
	}
	if !p.last {
		return nil
	}
	_, _, err := w.insertModule.exec(p.digest[:], whole)
	return err
}

// whole reports whether the piece is all of the module.
func (p *piece) whole() bool { return p.n == 0 && p.last }

// PutModule implements [eventlog.ModuleStore]. A large module is written in pieces, so
// that runs get their turns between them.
func (l *Log) PutModule(ctx context.Context, wasm []byte) (chain.Hash, error) {
	if len(wasm) > eventlog.MaxModuleBytes {
		return chain.Hash{}, fmt.Errorf("sqlitelog: module has %d bytes; at most %d are allowed", len(wasm), eventlog.MaxModuleBytes)
	}
	digest := chain.Sum(wasm)
	if found, err := l.HasModule(ctx, digest); err == nil && found { // most runs would otherwise write it again
		return digest, l.runs.Writable()
	}
	for n := 0; ; n++ {
		part := wasm[:min(len(wasm), pieceBytes)]
		wasm = wasm[len(part):]
		p := &piece{digest: digest, n: n, bytes: bytes.Clone(part), last: len(wasm) == 0, done: make(chan error, 1)}
		if err := l.perform(ctx, p, p.done); err != nil || p.last {
			return digest, err
		}
	}
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
