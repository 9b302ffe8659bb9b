package serve

import (
	"testing"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// TestACommandIsATool: a WASI command takes any document, so an assistant, who sends
// objects, is told of one that takes any object.
func TestACommandIsATool(t *testing.T) {
	w := newWorld(t)
	w.load("alice", "repeat", repeating())
	alice := w.assistant("alice")
	list, err := alice.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	offered := false
	for _, tool := range list.Tools {
		offered = offered || tool.Name == "repeat"
	}
	run, said := asks(t, alice, "repeat", `{"n":1}`)
	if !offered || run == "" || said != `{"n":1}` {
		t.Errorf("offered: %v; said %q in run %q", offered, said, run)
	}
}

// repeating is a WASI command that writes what it reads.
func repeating() []byte {
	const area, length, wrote = 16, 20, 32 // an area of the text, the length in it, and a count that nobody needs
	stream := wasmtest.Type("iiii:i")
	code := new(wasm.Asm)
	code.I32(0).I32(area).I32(1).I32(length).Index(wasm.OpCall, 0).Op(wasm.OpDrop)
	code.I32(1).I32(area).I32(1).I32(wrote).Index(wasm.OpCall, 1).Op(wasm.OpDrop)
	return (&wasmtest.Module{
		Imports: []wasmtest.Import{{Module: abi.WASIModule, Name: "fd_read", Type: stream}, {Module: abi.WASIModule, Name: "fd_write", Type: stream}},
		Memory:  wasmtest.Pages(1), Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Data:  []wasmtest.Data{{Offset: area, Bytes: "\x00\x04\x00\x00\x00\x04\x00\x00"}}, // 1,024 bytes at 1,024
		Funcs: []wasmtest.Func{{Export: abi.ExportStart, Type: wasmtest.Type(":"), Code: code}},
	}).Bytes()
}
