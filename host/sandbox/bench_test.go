package sandbox

import (
	"context"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
)

// BenchmarkLoadGo compares a compilation with a hit in the folder of compiled
// code; both include the gate and the rewriting.
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
	b.Run("cached", func(b *testing.B) {
		cached := Config{CacheDir: b.TempDir() + "/cache"}
		load(b, cached)
		for b.Loop() {
			load(b, cached)
		}
	})
}

func BenchmarkCall(b *testing.B) {
	guests := map[string]struct {
		m     *Module
		input []byte
	}{
		"tiny": {load(b, compiler(), tiny(output("executed")).Bytes(), Limits{}), []byte("x")},
		"go":   {goTool(b, false), envelope("echo", `{"city":"Berlin"}`)},
	}
	for name, g := range guests {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var meter event.Meter
			for b.Loop() {
				result, err := g.m.Call(b.Context(), Call{Tool: "echo", Input: g.input}, &world{})
				if err != nil {
					b.Fatal(err)
				}
				meter = result.Meter
			}
			b.ReportMetric(float64(meter.Fuel), "fuel/op")
		})
	}
}
