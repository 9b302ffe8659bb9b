package rewrite

import (
	"context"
	"errors"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero"
)

// addSeeds gives a fuzzer modules of several shapes.
func addSeeds(f *testing.F) {
	f.Add(fib())
	f.Add(sum())
	f.Add(withCode(ifElse()))
	f.Add(withCode(code().I32(0).I32(0).I32(9).Memory(wasm.OpMemoryFill).I32(0).Index(wasm.OpCallIndirect, 0)))
	f.Add((&wasmtest.Module{
		Imports: []wasmtest.Import{{Module: "starling:v1", Name: "now", Type: wasmtest.Type(":I")}},
		Table:   wasmtest.Pages(3), Memory: wasmtest.Pages(1), Start: new(uint32(1)),
		Funcs:    []wasmtest.Func{{}, {Type: wasmtest.Type("i:iI"), Code: code().I32(1).I64(2).Op(wasm.OpReturn)}},
		Elements: []wasmtest.Element{{Offset: 1, Funcs: []uint32{1, 2}}},
		Data:     []wasmtest.Data{{Offset: 5, Bytes: "data"}},
		Customs:  []wasmtest.Custom{{Name: "name", Body: "\x01\x04\x01\x01\x01f"}},
	}).Bytes())
}

// FuzzCheck: the gate never panics, refuses with a Refusal, and allocates in
// proportion to its input.
func FuzzCheck(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var err error
		bytes := wasmtest.Allocated(func() { _, err = Check(work.Trusted(context.Background()), b, DefaultLimits()) })
		var r *Refusal
		if err != nil && !errors.As(err, &r) {
			t.Errorf("%T: %v", err, err)
		}
		if limit := uint64(64<<10 + 200*len(b)); bytes > limit {
			t.Errorf("allocated %d bytes for a module of %d", bytes, len(b))
		}
	})
}

// FuzzRewrite: of a module that passes the gate, the metered form compiles
// exactly when the module itself does, and rewriting twice gives the same
// bytes. The gate bounds what compiling costs, so the engine may see it.
func FuzzRewrite(f *testing.F) {
	addSeeds(f)
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	f.Cleanup(func() { r.Close(ctx) })
	f.Fuzz(func(t *testing.T, b []byte) {
		res, err := Rewrite(work.Trusted(context.Background()), b, DefaultLimits(), Options{})
		if err != nil {
			return
		}
		again, err := Rewrite(work.Trusted(context.Background()), b, DefaultLimits(), Options{})
		if err != nil || string(again.Wasm) != string(res.Wasm) {
			t.Fatal("rewriting is not a function of the bytes")
		}
		m, err := wasm.Decode(work.Trusted(context.Background()), b)
		if err != nil {
			t.Fatal(err)
		}
		m.DropCustom() // wazero decodes the name section, and trusts its counts
		original, errOriginal := r.CompileModule(ctx, m.Encode())
		metered, errMetered := r.CompileModule(ctx, res.Wasm)
		if (errOriginal == nil) != (errMetered == nil) {
			t.Errorf("original %v, metered %v", errOriginal, errMetered)
		}
		if errOriginal == nil {
			original.Close(ctx)
			metered.Close(ctx)
		}
	})
}
