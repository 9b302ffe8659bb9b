//go:build !js

package sandbox

import (
	"context"
	"runtime"
	"testing"
)

// BenchmarkLoadGo compares a compilation, the gate and the rewriting with a load that
// finds all of it in the cache.
func BenchmarkLoadGo(b *testing.B) {
	wasm := goGuest(b, "tool")
	load := func(b *testing.B, c Config) {
		e, err := New(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close(context.Background())
		m, err := e.Load(b.Context(), wasm, Limits{})
		if err != nil {
			b.Fatal(err)
		}
		m.Close(b.Context())
	}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			load(b, Config{})
		}
	})
	b.Run("cold on all processors", func(b *testing.B) {
		for b.Loop() {
			load(b, Config{Read: func(ctx context.Context, module []byte, o RewriteOptions, dir string, missing func(*Prepared) bool) (*Prepared, error) {
				return Read(ctx, runtime.GOMAXPROCS(0), module, o, dir, missing)
			}})
		}
	})
	b.Run("cached", func(b *testing.B) {
		cached := Config{CacheDir: b.TempDir() + "/cache"}
		load(b, cached)
		for b.Loop() {
			load(b, cached)
		}
	})
}

// BenchmarkCall is a whole call, at each rung of the ladder. The world answers
// nothing, and nothing is verified.
func BenchmarkCall(b *testing.B) {
	guests := []struct {
		name  string
		wasm  []byte
		input []byte
	}{
		{"tiny", tiny(output("executed")).Bytes(), []byte("x")},
		{"go", goGuest(b, "tool"), envelope("echo", `{"city":"Berlin"}`)},
	}
	for _, reset := range []Reset{ResetScan, ResetCompare, ResetFresh} {
		e, err := New(b.Context(), Config{Reset: reset})
		if err != nil {
			b.Logf("SKIPPED: %v", err)
			continue
		}
		for _, g := range guests {
			m := load(b, e, g.wasm, Limits{})
			b.Run(g.name+"/"+string(reset), func(b *testing.B) { benchmarkCall(b, m, g.input) })
			b.Run(g.name+"/"+string(reset)+"/parallel", func(b *testing.B) {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := m.Call(b.Context(), Call{Tool: "echo", Input: g.input}, &world{}); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}

func benchmarkCall(b *testing.B, m *Module, input []byte) {
	b.ReportAllocs()
	var meter Meter
	w := &world{}
	for b.Loop() {
		result, err := m.Call(b.Context(), Call{Tool: "echo", Input: input}, w)
		if err != nil {
			b.Fatal(err)
		}
		meter = result.Meter
	}
	b.ReportMetric(float64(meter.Fuel), "fuel/op")
}
