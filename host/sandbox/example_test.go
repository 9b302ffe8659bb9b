package sandbox_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// fixed is a world that always answers the same.
type fixed struct{}

func (fixed) Now(context.Context) int64     { return 1_790_000_000_000_000_000 }
func (fixed) Random(context.Context) uint64 { return 4 }
func (fixed) Seed(context.Context) [32]byte { return [32]byte{} }
func (fixed) HTTP(context.Context, []byte) ([]byte, abi.Status, time.Duration) {
	return []byte("no network here"), abi.StatusDenied, 0
}

// The smallest possible tool: it has room for its input at 1024, and whatever
// the input is, the output is the document at 0.
func smallestTool() []byte {
	const document = `{"output":"hello"}`
	answer := func() *wasm.Asm {
		code := &wasm.Asm{}
		return code.I64(int64(abi.Pack(0, uint32(len(document)))))
	}
	room := &wasm.Asm{}
	m := wasmtest.Module{
		Memory:  wasmtest.Pages(1),
		Exports: []wasmtest.Export{{Name: abi.ExportMemory, Kind: wasm.ExternMemory}},
		Funcs: []wasmtest.Func{
			{Export: abi.ExportAlloc, Type: wasmtest.Type("i:i"), Code: room.I32(1024)},
			{Export: abi.ExportDescribe, Type: wasmtest.Type(":I"), Code: answer()},
			{Export: abi.ExportExecute, Type: wasmtest.Type("ii:I"), Code: answer()},
		},
		Data: []wasmtest.Data{{Offset: 0, Bytes: document}},
	}
	return m.Bytes()
}

func Example() {
	ctx := context.Background()
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)

	module, err := engine.Load(ctx, smallestTool(), sandbox.Limits{Fuel: 1000})
	if err != nil {
		log.Fatal(err) // a *rewrite.Refusal when it is the module's fault
	}
	result, err := module.Call(ctx, sandbox.Call{
		Tool:  "greet",
		Input: []byte(`{"tool":"greet","input":{},"context":{"run_id":"R","call_id":"C","attempt":1}}`),
	}, fixed{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n%d units of fuel, %d KiB of memory\n", result.Output, result.Meter.Fuel, result.Meter.PeakMemory>>10)
	// Output:
	// {"output":"hello"}
	// 4 units of fuel, 64 KiB of memory
}
