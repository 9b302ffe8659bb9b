package sqlitelog

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
)

// module is a module on its way to the file.
type module struct {
	digest chain.Hash
	wasm   []byte
	done   chan error
}

func (m *module) do(w *writer) error {
	if _, _, err := w.insertModule.exec(m.digest[:], m.wasm); err != nil {
		return fmt.Errorf("sqlitelog: store module %v: %w", m.digest, err)
	}
	return nil
}

// PutModule implements [eventlog.ModuleStore].
func (l *Log) PutModule(ctx context.Context, wasm []byte) (chain.Hash, error) {
	if len(wasm) > eventlog.MaxModuleBytes {
		return chain.Hash{}, fmt.Errorf("sqlitelog: module has %d bytes; at most %d are allowed", len(wasm), eventlog.MaxModuleBytes)
	}
	m := &module{digest: chain.Sum(wasm), done: make(chan error, 1)}
	if l.hasModule(ctx, m.digest) {
		return m.digest, l.runs.Writable()
	}
	m.wasm = bytes.Clone(wasm)
	return m.digest, l.perform(ctx, m, m.done)
}

// hasModule saves writing a module again, which most runs would otherwise do.
func (l *Log) hasModule(ctx context.Context, digest chain.Hash) (found bool) {
	if l.layout.Load() < layoutVersion {
		return false
	}
	err := l.readers.with(ctx, func(r *reader) error {
		n, err := r.count(ctx, "SELECT count(*) FROM module WHERE digest = ?", []driver.Value{digest[:]})
		found = n > 0
		return err
	})
	return err == nil && found
}

// Module implements [eventlog.ModuleStore].
func (l *Log) Module(ctx context.Context, digest chain.Hash) (wasm []byte, err error) {
	if l.layout.Load() < layoutVersion {
		return nil, fmt.Errorf("%w: %v", eventlog.ErrModuleNotFound, digest)
	}
	found := false
	err = l.readers.with(ctx, func(r *reader) error {
		const query = "SELECT iif(length(wasm) <= ?, wasm, NULL) FROM module WHERE digest = ?"
		return r.query(ctx, query, []driver.Value{int64(eventlog.MaxModuleBytes), digest[:]}, func(row []driver.Value) error {
			found = true
			wasm, _ = row[0].([]byte)
			return nil
		})
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
