package sandbox

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// busy asks for the time, computes, calls, grows its memory, writes to its log and draws random
// bytes for ever, so that wherever it is stopped something is different.
func busy() []byte {
	code := looping(asm().
		Index(wasm.OpCall, 2).Op(wasm.OpDrop). // now
		Index(wasm.OpCall, 6).
		I32(1).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop).
		I32(0).I32(20_000).Index(wasm.OpCall, 0).Op(wasm.OpDrop). // random_get
		I32(1).I32(0x100).I32(1).I32(0x200).Index(wasm.OpCall, 1).Op(wasm.OpDrop))
	m := tiny(code, "random_get", "fd_write", "now")
	m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Locals: []wasm.LocalGroup{{Count: 1, Type: wasm.I32}}, Code: asm().
		Block(wasm.OpLoop, wasm.BlockEmpty).
		Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Add).Index(wasm.OpLocalTee, 0).I32(3000).Op(wasm.OpI32LtS).Index(wasm.OpBrIf, 0).
		Op(wasm.OpEnd)})
	// The list of areas for fd_write: 5 bytes of the output document.
	m.Data = append(m.Data, wasmtest.Data{Offset: 0x100, Bytes: "\x00\x20\x00\x00\x05\x00\x00\x00"})
	return m.Bytes()
}

// An interrupted call is repeated up to the same count, on every
// engine and whatever the slices of fuel were.
func TestAStopIsReplayedAtTheSameCount(t *testing.T) {
	t.Parallel()
	modules := map[string]*Module{
		"compiler":    load(t, compiler(), busy(), Limits{MemoryPages: 32}),
		"interpreter": load(t, interpreter(), busy(), Limits{MemoryPages: 32}),
		"machine":     load(t, own(), busy(), Limits{MemoryPages: 32}),
	}
	for _, effect := range []int{1, 150, 300, 450} {
		recorded := cancelAt(t, modules["compiler"], effect)
		for name, m := range modules {
			stop := errors.New("recorded")
			replayed, err := m.Call(t.Context(), Call{Input: []byte("x"), NoTimeout: true, StopAt: recorded.Fuel, StopErr: stop}, &world{})
			if err != stop || replayed.Output != nil {
				t.Errorf("%s, stopped at %d: error %v", name, recorded.Fuel, err)
			}
			if diff := cmp.Diff(recorded, replayed.Meter); diff != "" {
				t.Errorf("%s, stopped at %d:\n%s", name, recorded.Fuel, diff)
			}
		}
	}
}

// Where the slices of fuel ended when a call was recorded must not matter: a
// budget that ends a call makes a check at which no slice ends.
func TestAStopIsReplayedWithOtherSlices(t *testing.T) {
	t.Parallel()
	m := load(t, compiler(), busy(), Limits{MemoryPages: 32})
	for _, budget := range []uint64{1, 4_999_000, 5_000_001, 12_345_678} {
		short := load(t, compiler(), busy(), Limits{MemoryPages: 32, Fuel: budget})
		recorded, err := short.Call(t.Context(), Call{Input: []byte("x")}, &world{})
		if !errors.Is(err, abi.ErrFuel) || recorded.Meter.Fuel <= budget {
			t.Fatalf("error %v at %d", err, recorded.Meter.Fuel)
		}
		stop := errors.New("recorded")
		replayed, err := m.Call(t.Context(), Call{Input: []byte("x"), StopAt: recorded.Meter.Fuel, StopErr: stop}, &world{})
		if diff := cmp.Diff(recorded.Meter, replayed.Meter); err != stop || diff != "" {
			t.Errorf("stopped at %d: error %v\n%s", recorded.Meter.Fuel, err, diff)
		}
	}
}

// cancelAt cancels a call at an effect, after which it computes until the host
// looks, and returns the last reading of the meter.
func cancelAt(t *testing.T, m *Module, effect int) Meter {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &cancelling{at: effect, cancel: cancel}
	got, err := m.Call(ctx, Call{Input: []byte("x")}, w)
	if !errors.Is(err, abi.ErrCancelled) || got.Meter.Fuel == 0 || len(w.effects) < effect {
		t.Fatalf("error %v at %d, after %d effects", err, got.Meter.Fuel, len(w.effects))
	}
	return got.Meter
}

// cancelling is a world that ends the call at an effect of that number.
type cancelling struct {
	world
	at     int
	cancel func()
}

func (c *cancelling) Now(ctx context.Context) int64 {
	if len(c.effects) >= c.at {
		c.cancel()
	}
	return c.world.Now(ctx)
}

func TestAStopBeforeTheBeginningRunsNothing(t *testing.T) {
	m := load(t, compiler(), tiny(asm().Op(wasm.OpUnreachable)).Bytes(), Limits{})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := m.Call(cancelled, Call{Input: []byte("x")}, &world{})
	if !errors.Is(err, abi.ErrCancelled) || got.Meter != (Meter{}) {
		t.Errorf("cancelled: %v, %+v", err, got.Meter)
	}
	stop := errors.New("recorded")
	got, err = m.Call(t.Context(), Call{Input: []byte("x"), StopErr: stop}, &world{})
	if err != stop || got.Meter != (Meter{}) {
		t.Errorf("replayed: %v, %+v", err, got.Meter)
	}
}

// A guest that spins ends at its deadline, and does not keep the collector and
// other goroutines from running.
func TestASpinningGuestEndsAndLeavesTheProcessAlone(t *testing.T) {
	guests := map[string][]byte{
		"a loop":            tiny(looping(asm())).Bytes(),
		"a tree of calls":   callTree(),
		"an endless filler": withPages(tiny(looping(asm().I32(0).I32(7).I32(1<<24).Memory(wasm.OpMemoryFill))), 256).Bytes(),
		"a clock reader":    tiny(looping(asm().I32(1).I64(0).I32(8).Index(wasm.OpCall, 0).Op(wasm.OpDrop)), "clock_time_get").Bytes(),
		"a random reader":   withPages(tiny(looping(asm().I32(0).I32(1<<24).Index(wasm.OpCall, 0).Op(wasm.OpDrop)), "random_get"), 256).Bytes(),
		"a sleeper":         sleeper(),
	}
	for name, guest := range guests {
		t.Run(name, func(t *testing.T) {
			m := load(t, compiler(), guest, Limits{Fuel: 1 << 60})
			ctx, cancel := context.WithCancel(t.Context())
			began, ended := make(chan bool), make(chan error)
			go func() {
				_, err := m.Call(ctx, Call{Input: []byte("x"), Probe: func(func() Meter) { close(began) }}, &world{})
				ended <- err
			}()
			<-began
			for range 5 {
				runtime.GC() // stops the world: it cannot return before the guest has stopped
			}
			cancel()
			if err := <-ended; !errors.Is(err, abi.ErrCancelled) {
				t.Errorf("cancelled: %v", err)
			}
			m = load(t, compiler(), guest, Limits{Fuel: 1 << 60, TimeoutMs: 20})
			if _, err := m.Call(t.Context(), Call{Input: []byte("x")}, &world{}); !errors.Is(err, abi.ErrTimeout) {
				t.Errorf("at the deadline: %v", err)
			}
		})
	}
}

// callTree has no loop at all: 40 functions, each of which calls the next one
// twice.
func callTree() []byte {
	m := tiny(asm().Index(wasm.OpCall, 3).I64(0))
	for i := range uint32(40) {
		m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Code: asm().Index(wasm.OpCall, 4+i).Index(wasm.OpCall, 4+i)})
	}
	m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Code: asm()})
	return m.Bytes()
}

// sleeper sleeps for a second of its own time, for ever.
func sleeper() []byte {
	m := tiny(looping(asm().I32(0x100).I32(0x200).I32(1).I32(0x300).Index(wasm.OpCall, 0).Op(wasm.OpDrop)), "poll_oneoff")
	m.Data = append(m.Data,
		wasmtest.Data{Offset: 0x110, Bytes: "\x01"},             // the monotonic clock
		wasmtest.Data{Offset: 0x118, Bytes: "\x00\xca\x9a\x3b"}) // 1e9 ns
	return m.Bytes()
}
