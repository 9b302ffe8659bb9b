package worker

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/scheduler"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/fairtest"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

const (
	neighbours     = 8     // hostile tenants
	callsOfEach    = 2     // that a tenant may have in progress
	hostileTimeout = 2_000 // milliseconds
)

// callsInRound is how many calls are timed at once. Without STARLING_GATES the figures
// are not judged, and the calls only show that the neighbours do their work.
func callsInRound() int {
	if fairtest.Gate() {
		return 1000
	}
	return 50
}

// TestNeighbours makes a tenant call a tool alone and beside greedy tenants, in
// turn, and compares how long its slowest calls take.
func TestNeighbours(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes half a minute")
	}
	engine := workers(t, Config{CacheDir: treetest.CodeFolder(), MaxCalls: 4 * neighbours * callsOfEach, MaxIdle: neighbours*callsOfEach + 2})
	good := mustLoad(t, engine, mustBuild(t, goTool), sandbox.Limits{})
	promised := fairtest.Promise{Times: 3, Good: 10 * time.Millisecond}
	for _, h := range hostileTenants() {
		t.Run(h.name, func(t *testing.T) {
			promised.Hold(t, func() fairtest.Round { return h.measure(t, engine, good) })
		})
	}
}

// measure makes calls alone and beside the tenants.
func (h hostileTenant) measure(t *testing.T, engine *Engine, good sandbox.Loaded) fairtest.Round {
	alone := times(t, good)
	stop := h.start(t, engine)
	defer stop()
	return fairtest.Round{Alone: alone, Beside: times(t, good)}
}

// times calls the tool and returns how long each call took.
func times(t *testing.T, m sandbox.Loaded) []time.Duration {
	t.Helper()
	took := make([]time.Duration, callsInRound())
	for i := range took {
		began := time.Now()
		if _, err := m.Call(t.Context(), sandbox.Call{Tool: "echo", Input: envelope("echo", `{"city":"Berlin"}`)}, quiet{}); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	return took
}

// hostileTenant is an attack of a tenant on the others.
type hostileTenant struct {
	name    string
	module  *wasmtest.Module
	imports sandbox.Imports
}

func hostileTenants() []hostileTenant {
	return []hostileTenant{
		{"processor", spins(), quiet{}},
		{"memory", fills(), quiet{}},
		{"effects", asksForEver(), quiet{}},
		{"slow egress", asksTheWeb(), slow{}},
	}
}

// start lets the tenants loose until the function that it returns is called.
func (h hostileTenant) start(t *testing.T, engine *Engine) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var tenants sync.WaitGroup
	for who := range neighbours {
		ctx := scheduler.For(ctx, scheduler.Claim{Tenant: strconv.Itoa(who)})
		m := mustLoad(t, engine, h.module.Bytes(), sandbox.Limits{TimeoutMs: hostileTimeout, Fuel: 1 << 50})
		for range callsOfEach {
			tenants.Go(func() {
				for ctx.Err() == nil {
					_, _ = m.Call(ctx, sandbox.Call{Tool: "tiny", Input: []byte("x")}, h.imports)
				}
			})
		}
	}
	return func() { cancel(); tenants.Wait() }
}

// fills writes to all the memory that it can get, again and again.
func fills() *wasmtest.Module {
	m := tiny()
	m.Funcs[2].Locals = []wasm.LocalGroup{{Count: 1, Type: wasm.I32}}
	m.Funcs[2].Code = new(wasm.Asm).I32(1000).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop).
		Block(wasm.OpLoop, wasm.BlockEmpty).
		Index(wasm.OpLocalGet, 0).I32(4096).Op(wasm.OpI32Add).I32(50<<20).Op(wasm.OpI32RemU).Index(wasm.OpLocalTee, 0).
		Index(wasm.OpLocalGet, 0).Access(wasm.OpI32Store, 0).
		Index(wasm.OpBr, 0).Op(wasm.OpEnd).Op(wasm.OpUnreachable)
	return m
}

// asksTheWeb makes one exchange after the other.
func asksTheWeb() *wasmtest.Module {
	t, _ := rewrite.ImportType(abi.Version, abi.ImportHTTP)
	m := asks(new(wasm.Asm).Block(wasm.OpLoop, wasm.BlockEmpty).
		I32(roomAt).I32(1).I32(roomAt).I32(16).Index(wasm.OpCall, 0).Op(wasm.OpDrop).Index(wasm.OpBr, 0).Op(wasm.OpEnd))
	m.Imports = []wasmtest.Import{{Module: abi.Version, Name: abi.ImportHTTP, Type: t}}
	return m
}

// slow is a web that does not answer.
type slow struct{ quiet }

func (slow) HTTP(ctx context.Context, _ []byte) ([]byte, abi.Status, time.Duration) {
	<-ctx.Done()
	return nil, abi.StatusTimeout, 0
}
