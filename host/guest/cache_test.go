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
	loads := 0
	s := NewCache(CacheLimits{Modules: most}, func(context.Context, int) (*Module, error) { loads++; return nil, nil })
	take := func(key int) func() {
		t.Helper()
		_, release, err := s.Take(t.Context(), key)
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
	sizes := []int{30, 30, 30, 20, 40}
	s := NewCache(CacheLimits{Modules: 8, Bytes: 100}, func(ctx context.Context, key int) (*Module, error) {
		return Load(ctx, sized{}, make([]byte, sizes[key]), Options{Name: "large"})
	})
	for key := range sizes {
		_, release, err := s.Take(t.Context(), key)
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
	refused, asked := errors.New("refused"), false
	s := NewCache(CacheLimits{Modules: 1}, func(context.Context, int) (*Module, error) { asked = true; return nil, refused })
	for range 2 {
		asked = false
		_, _, err := s.Take(t.Context(), 1)
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
		first := true
		s := NewCache(CacheLimits{Modules: 1}, func(ctx context.Context, _ int) (*Module, error) {
			if !first {
				return nil, nil
			}
			first = false
			<-ctx.Done()
			return nil, ctx.Err()
		})
		leaving, leave := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, _, err := s.Take(leaving, 1)
			gone <- err
		}()
		synctest.Wait()
		had := make(chan error)
		go func() {
			_, _, err := s.Take(t.Context(), 1)
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
