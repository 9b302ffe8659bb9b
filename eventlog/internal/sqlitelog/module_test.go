package sqlitelog

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
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
