package main

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/bench/internal/figures"
	hostguest "github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
)

// call makes one call of a guest and returns its output.
type call func() ([]byte, error)

// contender is a host with one guest loaded.
type contender struct {
	name string
	// caller returns a call for one goroutine.
	caller func() (call, error)
	close  func()
}

// Names of the contenders that goals are about.
const (
	ours         = "starling pooled"
	oursFresh    = "starling fresh"
	oursWorker   = "starling worker"
	rawReused    = "wazero reused"
	wazyReused   = "wazy reused"
	extismReused = "extism reused"
	extismFresh  = "extism fresh"
	timeReused   = "wasmtime reused"
	timeFresh    = "wasmtime fresh"
	timeFuel     = "wasmtime fresh, fuel"
)

// starling loads a guest into our sandbox: metered, with NaNs canonical and a
// pristine instance for every call.
func starling(name string, reset sandbox.Reset) func(context.Context, guest) (contender, error) {
	return func(ctx context.Context, g guest) (contender, error) {
		engine, err := sandbox.New(ctx, sandbox.Config{Reset: reset})
		if err != nil {
			return contender{}, err
		}
		module, err := engine.Load(ctx, g.wasm, sandbox.Limits{})
		if err != nil {
			return contender{}, err
		}
		c := sandbox.Call{Tool: "guest", Input: document}
		one := func() ([]byte, error) {
			r, err := module.Call(ctx, c, figures.NoWorld{})
			return r.Output, err
		}
		return contender{name, func() (call, error) { return one, nil }, func() { engine.Close(ctx) }}, nil
	}
}

// starlingWorker is the same in processes of their own, one call at a time each,
// locked down as far as a program with cgo can be (Wasmtime needs it).
func starlingWorker(ctx context.Context, g guest) (contender, error) {
	engine, err := hostguest.NewProcesses(ctx, hostguest.ProcessConfig{})
	if err != nil {
		return contender{}, err
	}
	module, err := engine.Load(ctx, g.wasm, sandbox.Limits{})
	if err != nil {
		return contender{}, err
	}
	one := func() ([]byte, error) {
		r, err := module.Call(ctx, sandbox.Call{Tool: "guest", Input: document}, figures.NoWorld{})
		return r.Output, err
	}
	return contender{oursWorker, func() (call, error) { return one, nil }, func() { engine.Close(ctx) }}, nil
}

// raw loads a guest into wazero as it is: one instance for all calls of a
// goroutine, no meter, no limit, nothing put back.
func raw(ctx context.Context, g guest) (contender, error) {
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return contender{}, err
	}
	compiled, err := r.CompileModule(ctx, g.wasm)
	if err != nil {
		return contender{}, err
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize")
	caller := func() (call, error) {
		m, err := r.InstantiateModule(ctx, compiled, config)
		if err != nil {
			return nil, err
		}
		return rawCall(ctx, m.Memory(), m.ExportedFunction(abi.ExportAlloc), m.ExportedFunction(abi.ExportExecute)), nil
	}
	return contender{rawReused, caller, func() { r.Close(ctx) }}, nil
}

// rawCall returns a call of an instance, whose engine is wazero or a fork of it.
func rawCall(ctx context.Context, memory interface {
	Read(offset, n uint32) ([]byte, bool)
	Write(offset uint32, b []byte) bool
}, alloc, execute interface {
	CallWithStack(ctx context.Context, stack []uint64) error
}) call {
	stack := make([]uint64, 2)
	return func() ([]byte, error) {
		stack[0] = uint64(len(document))
		if err := alloc.CallWithStack(ctx, stack); err != nil {
			return nil, err
		}
		at := uint32(stack[0])
		memory.Write(at, document)
		stack[0], stack[1] = uint64(at), uint64(len(document))
		if err := execute.CallWithStack(ctx, stack); err != nil {
			return nil, err
		}
		at, n := abi.Unpack(stack[0])
		out, ok := memory.Read(at, n)
		if !ok {
			return nil, fmt.Errorf("the output of %d bytes at %#x is outside of memory", n, at)
		}
		return append([]byte(nil), out...), nil
	}
}
