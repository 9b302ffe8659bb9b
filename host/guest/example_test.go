package guest_test

import (
	"context"
	"fmt"
	"os"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
)

// A module is loaded once, and has its tools described.
func ExampleLoad() {
	ctx := context.Background()
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close(ctx)
	wasm, err := os.ReadFile("../../spec/tck/modules/clock.wasm")
	if err != nil {
		fmt.Println(err)
		return
	}
	module, err := guest.Load(ctx, guest.Inline(engine), wasm, guest.Options{Name: "clock"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer module.Close(ctx)
	for _, tool := range module.Tools() {
		fmt.Println(module.ABI(), tool.Name(), module.Imports())
	}
	// Output: starling:v1 clock [starling:v1.now wasi_snapshot_preview1.clock_time_get wasi_snapshot_preview1.random_get]
}
