package sqlitelog

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

// large is a module of several pieces.
func large() []byte { return bytes.Repeat([]byte("module"), dblog.PieceBytes) }

// TestAModuleThatIsNotAllThere: an incomplete module does not exist, and storing it again
// continues after its pieces.
func TestAModuleThatIsNotAllThere(t *testing.T) {
	t.Parallel()
	l := open(t)
	digest, err := l.PutModule(t.Context(), large())
	if err != nil {
		t.Fatal(err)
	}
	v := newVandal(t, l)
	v.exec("DELETE FROM module_piece WHERE n = 3")
	if _, err := l.Module(t.Context(), digest); !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Errorf("a module without one of its pieces: %v", err)
	}
	v.exec("DELETE FROM module")
	if _, err := l.Module(t.Context(), digest); !errors.Is(err, eventlog.ErrModuleNotFound) {
		t.Errorf("pieces without a module: %v", err)
	}
	if _, err := l.PutModule(t.Context(), large()); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Module(t.Context(), digest); err != nil || !bytes.Equal(got, large()) {
		t.Errorf("stored again: %d bytes, %v", len(got), err)
	}
}

// TestModulesTakeLessRoomThanTheyHave: rows have frames, and sizes stay those of the modules. Rows of
// earlier commits have the bytes themselves.
func TestModulesTakeLessRoomThanTheyHave(t *testing.T) {
	t.Parallel()
	l := open(t)
	small := bytes.Repeat([]byte("module"), 100)
	for _, wasm := range [][]byte{small, large()} {
		if _, err := l.PutModule(t.Context(), wasm); err != nil {
			t.Fatal(err)
		}
	}
	v := newVandal(t, l)
	number := func(query string) (n int64) {
		t.Helper()
		n, err := v.c.integer(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if c, err := eventlog.CountModules(t.Context(), l, ""); err != nil || c.Modules != 2 || c.Bytes != int64(len(small)+len(large())) {
		t.Errorf("counted %+v, %v", c, err)
	}
	if n := number("SELECT (SELECT sum(length(wasm)) FROM module) + (SELECT sum(length(bytes)) FROM module_piece)"); n > int64(len(large())/100) {
		t.Errorf("the modules take %d bytes", n)
	}

	tests := []struct {
		name string
		wasm []byte
		sql  string
		arg  []byte
		want error
	}{
		{"a small module as it is", small, "UPDATE module SET wasm = ? WHERE size = 600", small, nil},
		{"a piece as it is, among frames", large(), "UPDATE module_piece SET bytes = ? WHERE n = 2", large()[2*dblog.PieceBytes : 3*dblog.PieceBytes], nil},
		{"a bomb in place of a piece", large(), "UPDATE module_piece SET bytes = ? WHERE n = 1", dblog.Pack(make([]byte, 8<<20)), eventlog.ErrLogCorrupt},
		{"a bomb in place of a module", small, "UPDATE module SET wasm = ? WHERE size = 600", dblog.Pack(make([]byte, 2*eventlog.MaxModuleBytes)), eventlog.ErrLogCorrupt},
		{"a frame that is cut off", small, "UPDATE module SET wasm = ? WHERE size = 600", dblog.Pack(small)[:10], eventlog.ErrLogCorrupt},
	}
	for _, tt := range tests {
		if err := v.c.exec(t.Context(), tt.sql, tt.arg); err != nil {
			t.Fatal(err)
		}
		got, err := l.Module(t.Context(), canon.Sum(tt.wasm))
		if !errors.Is(err, tt.want) || err == nil && !bytes.Equal(got, tt.wasm) {
			t.Errorf("%s: %d bytes, %v", tt.name, len(got), err)
		}
	}
}

// TestAModuleByMany is stored once, even if some callers give up on the way.
func TestAModuleByMany(t *testing.T) {
	t.Parallel()
	l := open(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if n%2 == 1 {
				cancel()
			}
			defer cancel()
			if _, err := l.PutModule(ctx, large()); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	digest, err := l.PutModule(t.Context(), large())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.Module(t.Context(), digest); err != nil || !bytes.Equal(got, large()) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
