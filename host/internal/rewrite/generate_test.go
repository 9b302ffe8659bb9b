package rewrite_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

var configs = []wasmtest.Config{
	{},
	{CanonicalNaNs: true, Imports: []wasmtest.Import{{Module: "starling:v1", Name: "now", Type: wasmtest.Type(":I")}}},
}

// seed returns a random seed of some length.
func seed(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(1200))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestEveryModuleIsValid generates modules from random seeds: the gate and the
// engine must accept all of them, and each instruction must occur in some.
func TestEveryModuleIsValid(t *testing.T) {
	n := treetest.Count(500, 2_000, 20_000)
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(api.CoreFeaturesV2))
	defer r.Close(ctx)
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[wasm.Op]int{}
	for i := range n {
		b := wasmtest.Generate(seed(random), configs[i%len(configs)])
		if _, err := rewrite.Check(work.Trusted(context.Background()), b, rewrite.DefaultLimits()); err != nil {
			t.Fatalf("module %d: the gate: %v", i, err)
		}
		m, err := r.CompileModule(ctx, b)
		if err != nil {
			t.Fatalf("module %d: the engine: %v", i, err)
		}
		m.Close(ctx)
		count(t, b, seen)
	}
	for op := wasm.OpUnreachable; op <= wasm.OpI64TruncSatF64U; op++ {
		if mustOccur(op) && seen[op] == 0 {
			t.Errorf("%s never occurs", op)
		}
	}
}

// count counts the instructions of a module.
func count(t *testing.T, b []byte, seen map[wasm.Op]int) {
	m, err := wasm.Decode(work.Trusted(context.Background()), b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Code {
		_, it, err := m.Body(i, nil)
		for err == nil && it.Next() {
			seen[it.Op]++
		}
	}
}

// mustOccur lists what the gate accepts.
func mustOccur(op wasm.Op) bool {
	switch {
	case op <= wasm.OpElse, op >= wasm.OpEnd && op <= wasm.OpCallIndirect,
		op >= wasm.OpDrop && op <= wasm.OpSelectTyped, op >= wasm.OpLocalGet && op <= wasm.OpGlobalSet,
		op >= wasm.OpI32Load && op <= wasm.OpI64Extend32S,
		op >= wasm.OpI32TruncSatF32S && op <= wasm.OpI64TruncSatF64U, op == wasm.OpMemoryCopy, op == wasm.OpMemoryFill:
		return true
	}
	return false
}

// TestASeedIsOneModule: generation is a function, and its result is bounded
// however long the seed is.
func TestASeedIsOneModule(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, size := range []int{0, 1, 100, 10_000, 1_000_000} {
		s := make([]byte, size)
		for i := range s {
			s[i] = byte(random.Uint32())
		}
		for _, c := range configs {
			a, b := wasmtest.Generate(s, c), wasmtest.Generate(s, c)
			if string(a) != string(b) {
				t.Errorf("two modules of a seed of %d bytes", size)
			}
			if len(a) > 128<<10 {
				t.Errorf("%d bytes of module for a seed of %d", len(a), size)
			}
		}
	}
}
