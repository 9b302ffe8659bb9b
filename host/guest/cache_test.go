package guest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/sandbox"
)

// TestWhatIsIdleIsBounded uses modules that are never loaded: what is kept, and
// for how long, does not depend on what is inside.
func TestWhatIsIdleIsBounded(t *testing.T) {
	const most = 8
	s := NewCache[int](CacheLimits{Modules: most})
	loads := 0
	take := func(key int) func() {
		t.Helper()
		_, release, err := s.Take(t.Context(), key, func(context.Context) (*Module, error) { loads++; return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
		return release
	}
	loaded := func(key int) bool { before := loads; take(key)(); return loads > before }
	busy := take(-1)
	for i := range 3 * most {
		take(i)()
	}
	if len(s.idle) != most || len(s.entries) != most+1 {
		t.Errorf("%d idle of %d", len(s.idle), len(s.entries))
	}
	if loaded(-1) {
		t.Error("a module in use was dropped")
	}
	if !loaded(0) {
		t.Error("the module that was idle longest is still there")
	}
	if loaded(3*most - 1) {
		t.Error("the module that was used last is gone")
	}
	s.Drop(func(key int) bool { return key == -1 })
	if !loaded(-1) {
		t.Error("a module that was dropped is found")
	}
	busy()
	busy() // once is enough, and twice does no harm
	if loaded(-1) {
		t.Error("whoever gave the dropped module back took its successor along")
	}
}

// sized is an engine that loads any bytes, and then as many are kept.
type sized struct {
	Sandbox
	bytes int
}

func (sized) Load(_ context.Context, wasm []byte, _ sandbox.Limits) (Sandbox, error) {
	return sized{bytes: len(wasm)}, nil
}
func (s sized) Size() int                 { return s.bytes }
func (sized) ABI() string                 { return abi.Command }
func (sized) Close(context.Context) error { return nil }

// TestLargeModulesMakeRoom uses modules that are few and large.
func TestLargeModulesMakeRoom(t *testing.T) {
	s := NewCache[int](CacheLimits{Modules: 8, Bytes: 100})
	for key, bytes := range []int{30, 30, 30, 20, 40} {
		_, release, err := s.Take(t.Context(), key, func(ctx context.Context) (*Module, error) {
			return Load(ctx, sized{}, make([]byte, bytes), Options{Name: "large"})
		})
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	var kept []int
	for _, e := range s.idle {
		kept = append(kept, e.key)
	}
	if want := []int{2, 3, 4}; !slices.Equal(kept, want) || len(s.entries) != len(want) {
		t.Errorf("%v are kept of %d, want %v", kept, len(s.entries), want)
	}
}

func TestWhatFailsToLoadIsForgotten(t *testing.T) {
	s := NewCache[int](CacheLimits{Modules: 1})
	refused := errors.New("refused")
	for range 2 {
		asked := false
		_, _, err := s.Take(t.Context(), 1, func(context.Context) (*Module, error) { asked = true; return nil, refused })
		if !errors.Is(err, refused) || !asked {
			t.Errorf("asked %t, error %v", asked, err)
		}
	}
	if len(s.entries) != 0 {
		t.Errorf("%d entries are kept", len(s.entries))
	}
}

// TestWhoeverWaitsLoadsForWhoHasLeft has somebody leave while loading, and another
// one wait meanwhile: that one has the module, and not the first one's error.
func TestWhoeverWaitsLoadsForWhoHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewCache[int](CacheLimits{Modules: 1})
		leaving, leave := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, _, err := s.Take(leaving, 1, func(ctx context.Context) (*Module, error) { <-ctx.Done(); return nil, ctx.Err() })
			gone <- err
		}()
		synctest.Wait()
		had := make(chan error)
		go func() {
			_, _, err := s.Take(t.Context(), 1, func(context.Context) (*Module, error) { return nil, nil })
			had <- err
		}()
		synctest.Wait()
		leave()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("who has left: %v", err)
		}
		if err := <-had; err != nil {
			t.Errorf("who has waited: %v", err)
		}
	})
}
