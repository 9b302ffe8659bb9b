package guest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/runtime/tool"
)

// TestOutOfFuelBeforeACall: the bound of start-up code is another one than that of calls,
// and of neither it is clear what to do about it.
func TestOutOfFuelBeforeACall(t *testing.T) {
	engine := guest.Inline(newEngine(t))
	for export, hint := range map[string]string{
		"starling_warmup":   "import fewer packages",
		"starling_describe": "the fuel of a call",
	} {
		_, err := guest.Load(t.Context(), engine, spinningIn(export), guest.Options{Limits: sandbox.Limits{Fuel: 1000}})
		refused, ok := errors.AsType[*guest.DescriptionError](err)
		if !ok || !errors.Is(err, tool.ErrFuel) || !strings.Contains(refused.Advice(), hint) {
			t.Errorf("%s: %v, %+v", export, err, refused)
		}
	}
}

// spinningIn is a module of which one export never returns.
func spinningIn(export string) []byte {
	code := map[string]*wasm.Asm{"starling_warmup": new(wasm.Asm), "starling_describe": new(wasm.Asm)}
	code[export].Block(wasm.OpLoop, wasm.BlockEmpty).Index(wasm.OpBr, 0).Op(wasm.OpEnd)
	m := &wasmtest.Module{
		Memory: wasmtest.Pages(1), Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Funcs: []wasmtest.Func{
			{Export: "starling_warmup", Type: wasmtest.Type(":"), Code: code["starling_warmup"]},
			{Export: "starling_alloc", Type: wasmtest.Type("i:i"), Code: new(wasm.Asm).I32(0)},
			{Export: "starling_describe", Type: wasmtest.Type(":I"), Code: code["starling_describe"].I64(0)},
			{Export: "starling_execute", Type: wasmtest.Type("ii:I"), Code: new(wasm.Asm).I64(0)},
		},
	}
	return m.Bytes()
}
