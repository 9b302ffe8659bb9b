package worker

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// heavy is a tiny tool whose start-up computes for a while before it completes the output.
func heavy() *wasmtest.Module {
	m := tiny()
	m.Data[0].Bytes = `{"output":0}`
	m.Funcs = append(m.Funcs, wasmtest.Func{Export: abi.ExportWarmup, Type: wasmtest.Type(":"), Locals: []wasm.LocalGroup{{Count: 1, Type: wasm.I32}},
		Code: new(wasm.Asm).Block(wasm.OpLoop, wasm.BlockEmpty).
			Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Add).Index(wasm.OpLocalTee, 0).I32(2_000_000).Op(wasm.OpI32LtS).Index(wasm.OpBrIf, 0).
			Op(wasm.OpEnd).I32(outputAt+10).I32('1').Access(wasm.OpI32Store8, 0)})
	return m
}

// TestProcessesBeginWithAHeavyStart: the first process of a module makes it; others, also those of
// another host, begin with it. That it is used shows in a start that was changed.
func TestProcessesBeginWithAHeavyStart(t *testing.T) {
	call := func(m *Module) string {
		t.Helper()
		got, err := m.Call(t.Context(), sandbox.Call{Input: []byte("x")}, &world{})
		if err != nil {
			t.Error(err)
		}
		return string(got.Output)
	}
	dir := filepath.Join(t.TempDir(), "cache")
	for _, c := range []Config{{CacheDir: dir}, {CacheDir: dir}, {}, {Machine: true}} {
		e := workers(t, c)
		m := mustLoad(t, e, heavy().Bytes(), sandbox.Limits{}).(*Module)
		if got := call(m); got != `{"output":1}` {
			t.Errorf("%+v: in the first process %q", c, got)
		}
		p, err := sandbox.DecodePrepared(m.loading)
		if err != nil || len(p.Start) == 0 {
			t.Fatalf("%+v: no start for the next process, %v", c, err)
		}
		changed := false
		for n, d := range p.Data {
			if at := bytes.Index(d.Bytes, []byte(`{"output":1}`)); at >= 0 {
				p.Data[n].Bytes[at+10], changed = '7', true
			}
		}
		pieces, err := p.Encode()
		if m.loading = slices.Concat(pieces...); err != nil || !changed {
			t.Fatalf("%+v: %v, changed %v", c, err, changed)
		}
		e.drop(func(*idleProcess) bool { return true })
		if got := call(m); got != `{"output":7}` {
			t.Errorf("%+v: in the second process %q", c, got)
		}
	}
	light := mustLoad(t, workers(t, Config{CacheDir: dir}), tiny().Bytes(), sandbox.Limits{}).(*Module)
	if p, err := sandbox.DecodePrepared(light.loading); err != nil || len(p.Start) > 0 || len(p.Data) == 0 {
		t.Errorf("a light start was sent: %+v, %v", p, err)
	}
}
