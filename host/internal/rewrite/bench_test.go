package rewrite

import (
	"context"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero"
)

// fib is calls and little else: func fib(n) { if n < 2 { return n }; return fib(n-1) + fib(n-2) }.
func fib() []byte {
	m := wasmtest.Module{Funcs: []wasmtest.Func{{Export: "run", Type: wasmtest.Type("i:i"), Code: code().
		Index(wasm.OpLocalGet, 0).I32(2).Op(wasm.OpI32LtS).Block(wasm.OpIf, wasm.BlockEmpty).
		Index(wasm.OpLocalGet, 0).Op(wasm.OpReturn, wasm.OpEnd).
		Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Sub).Index(wasm.OpCall, 0).
		Index(wasm.OpLocalGet, 0).I32(2).Op(wasm.OpI32Sub).Index(wasm.OpCall, 0).
		Op(wasm.OpI32Add)}}}
	return m.Bytes()
}

// sum is one tight loop over memory: n rounds of local 1 += load(n*4 mod 64 KiB).
func sum() []byte {
	m := wasmtest.Module{Memory: wasmtest.Pages(1), Funcs: []wasmtest.Func{{
		Export: "run", Type: wasmtest.Type("i:i"), Locals: []wasm.LocalGroup{{Count: 1, Type: wasm.I32}},
		Code: code().Block(wasm.OpLoop, wasm.BlockEmpty).
			Index(wasm.OpLocalGet, 0).I32(2).Op(wasm.OpI32Shl).I32(0xffff).Op(wasm.OpI32And).
			Access(wasm.OpI32Load, 0).Index(wasm.OpLocalGet, 1).Op(wasm.OpI32Add).Index(wasm.OpLocalSet, 1).
			Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Sub).Index(wasm.OpLocalTee, 0).
			Index(wasm.OpBrIf, 0).Op(wasm.OpEnd).Index(wasm.OpLocalGet, 1),
	}}}
	return m.Bytes()
}

// BenchmarkOverhead compares metered with original code.
func BenchmarkOverhead(b *testing.B) {
	for _, program := range []struct {
		name  string
		bytes []byte
		arg   uint64
	}{{"fib", fib(), 25}, {"sum", sum(), 1_000_000}, {"go json", goGuest(b), 20}} {
		b.Run(program.name+"/original", func(b *testing.B) {
			var none *guest
			r := newRuntime(b, engines["compiler"], &none)
			m, err := r.InstantiateWithConfig(context.Background(), program.bytes, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
			if err != nil {
				b.Fatal(err)
			}
			run := m.ExportedFunction("run")
			for b.Loop() {
				if _, err := run.Call(context.Background(), program.arg); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(program.name+"/metered", func(b *testing.B) {
			g := start(b, "compiler", mustRewrite(b, program.bytes, Options{}))
			if f := g.ExportedFunction("_initialize"); f != nil {
				if _, err := f.Call(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := g.call("run", program.arg); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(g.fuel.Get()), "fuel")
		})
	}
}

// BenchmarkCheck and BenchmarkRewrite report the speed on a Go program.
func BenchmarkCheck(b *testing.B) {
	module := goGuest(b)
	b.SetBytes(int64(len(module)))
	for b.Loop() {
		if _, err := Check(work.Trusted(context.Background()), module, DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRewrite(b *testing.B) {
	module := goGuest(b)
	b.SetBytes(int64(len(module)))
	for b.Loop() {
		mustRewrite(b, module, Options{})
	}
}
