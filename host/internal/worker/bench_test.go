package worker

import (
	"testing"

	"github.com/starling-host/starling/host/sandbox"
)

// BenchmarkCall measures a call here and in a worker, without and with one
// effect. The world answers at once.
func BenchmarkCall(b *testing.B) {
	guests := []struct {
		name  string
		wasm  []byte
		tool  string
		input []byte
	}{
		{"tiny", tiny().Bytes(), "tiny", []byte("x")},
		{"tiny_effect", asksForTheTime().Bytes(), "tiny", []byte("x")},
		{"go", mustBuild(b, goTool), "echo", envelope("echo", `{"city":"Berlin"}`)},
		{"go_effect", mustBuild(b, goTool), "clock", envelope("clock", `null`)},
	}
	engines := map[string]sandbox.Loader{"inline": inline(b), "worker": workers(b, Config{})}
	for _, g := range guests {
		for _, where := range []string{"inline", "worker"} {
			m := mustLoad(b, engines[where], g.wasm, sandbox.Limits{})
			b.Run(g.name+"/"+where, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := m.Call(b.Context(), sandbox.Call{Tool: g.tool, Input: g.input}, quiet{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkStart measures the time until a new process has answered a first call.
func BenchmarkStart(b *testing.B) {
	m := mustLoad(b, workers(b, Config{}), mustBuild(b, goTool), sandbox.Limits{}).(*Module)
	for b.Loop() {
		p, err := m.start(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		p.end()
	}
}
