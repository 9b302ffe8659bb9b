package rewrite

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// TestAllStateIsReachable checks that the host gets the data segments and can
// set every global that code can change, and no other.
func TestAllStateIsReachable(t *testing.T) {
	m := wasmtest.Module{
		Memory: wasmtest.Pages(1),
		Globals: []wasmtest.Global{
			{Type: wasm.I32, Mutable: true, Value: 1},
			{Type: wasm.I64, Value: 2},
			{Type: wasm.I64, Mutable: true, Value: 3},
		},
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Data:    []wasmtest.Data{{Offset: 8, Bytes: "first"}, {Offset: 10, Bytes: "second"}, {Offset: 65536}},
	}
	res := mustRewrite(t, m.Bytes(), Options{})
	want := []Segment{{8, []byte("first")}, {10, []byte("second")}, {65536, []byte{}}}
	if diff := cmp.Diff(want, res.Data); diff != "" {
		t.Errorf("data segments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"starling:global0", "starling:global2"}, res.Globals); diff != "" {
		t.Errorf("globals (-want +got):\n%s", diff)
	}
	g := start(t, "compiler", res)
	for i, name := range res.Globals {
		if got, want := g.ExportedGlobal(name).Get(), []uint64{1, 3}[i]; got != want {
			t.Errorf("%s is %d, not %d", name, got, want)
		}
	}
	if got := string(contents(g)[8:16]); got != "fisecond" {
		t.Errorf("memory begins with %q", got)
	}
}
