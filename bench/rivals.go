package main

import (
	"context"
	"fmt"

	"github.com/bytecodealliance/wasmtime-go/v39"
	extism "github.com/extism/go-sdk"
	"github.com/samyfodil/wazy"
	wazywasi "github.com/samyfodil/wazy/imports/wasi_snapshot_preview1"

	"github.com/starling-host/starling/abi"
)

// wazyRaw is raw on wazy, a fork of wazero whose compiler does more: what the same guests could
// take.
func wazyRaw(ctx context.Context, g guest) (contender, error) {
	r := wazy.NewRuntimeWithConfig(ctx, wazy.NewRuntimeConfigCompiler())
	if _, err := wazywasi.Instantiate(ctx, r); err != nil {
		return contender{}, err
	}
	compiled, err := r.CompileModule(ctx, g.wasm)
	if err != nil {
		return contender{}, err
	}
	caller := func() (call, error) {
		m, err := r.InstantiateModule(ctx, compiled, wazy.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
		if err != nil {
			return nil, err
		}
		return rawCall(ctx, m.Memory(), m.ExportedFunction(abi.ExportAlloc), m.ExportedFunction(abi.ExportExecute)), nil
	}
	return contender{wazyReused, caller, func() { r.Close(ctx) }}, nil
}

// extismPlugin loads a guest into Extism's Go SDK, compiled once. Reused, one
// plugin serves all calls of a goroutine and keeps what earlier calls left;
// fresh, every call has a plugin of its own.
func extismPlugin(name string, fresh bool) func(context.Context, guest) (contender, error) {
	return func(ctx context.Context, g guest) (contender, error) {
		manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: g.extism}}}
		compiled, err := extism.NewCompiledPlugin(ctx, manifest, extism.PluginConfig{EnableWasi: true}, nil)
		if err != nil {
			return contender{}, err
		}
		instance := func() (*extism.Plugin, error) { return compiled.Instance(ctx, extism.PluginInstanceConfig{}) }
		caller := func() (call, error) {
			plugin, err := instance()
			if err != nil {
				return nil, err
			}
			return func() ([]byte, error) { return extismCall(plugin) }, nil
		}
		if fresh {
			caller = func() (call, error) {
				return func() ([]byte, error) {
					plugin, err := instance()
					if err != nil {
						return nil, err
					}
					defer plugin.Close(ctx)
					return extismCall(plugin)
				}, nil
			}
		}
		return contender{name, caller, func() { compiled.Close(ctx) }}, nil
	}
}

func extismCall(p *extism.Plugin) ([]byte, error) {
	code, out, err := p.Call("run", document)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	return append([]byte(nil), out...), err
}

// wasmtimeModule loads a guest into Wasmtime: reused, fresh for every call, or
// fresh with fuel.
func wasmtimeModule(name string, fresh, fuel bool) func(context.Context, guest) (contender, error) {
	return func(_ context.Context, g guest) (contender, error) {
		config := wasmtime.NewConfig()
		config.SetConsumeFuel(fuel)
		engine := wasmtime.NewEngineWithConfig(config)
		module, err := wasmtime.NewModule(engine, g.wasm)
		if err != nil {
			return contender{}, err
		}
		linker := wasmtime.NewLinker(engine)
		if err := linker.DefineWasi(); err != nil {
			return contender{}, err
		}
		start := func() (*timeInstance, error) { return startWasmtime(engine, linker, module, g.init, fuel) }
		caller := func() (call, error) {
			instance, err := start()
			if err != nil {
				return nil, err
			}
			return instance.call, nil
		}
		if fresh {
			caller = func() (call, error) {
				return func() ([]byte, error) {
					instance, err := start()
					if err != nil {
						return nil, err
					}
					defer instance.store.Close()
					return instance.call()
				}, nil
			}
		}
		return contender{name, caller, func() {}}, nil
	}
}

type timeInstance struct {
	store          *wasmtime.Store
	memory         *wasmtime.Memory
	alloc, execute *wasmtime.Func
}

func startWasmtime(engine *wasmtime.Engine, linker *wasmtime.Linker, module *wasmtime.Module, init, fuel bool) (*timeInstance, error) {
	store := wasmtime.NewStore(engine)
	store.SetWasi(wasmtime.NewWasiConfig())
	if fuel {
		if err := store.SetFuel(1 << 40); err != nil {
			return nil, err
		}
	}
	instance, err := linker.Instantiate(store, module)
	if err != nil {
		return nil, err
	}
	if init {
		if _, err := instance.GetFunc(store, abi.ExportInitialize).Call(store); err != nil {
			return nil, err
		}
	}
	return &timeInstance{
		store: store, memory: instance.GetExport(store, abi.ExportMemory).Memory(),
		alloc: instance.GetFunc(store, abi.ExportAlloc), execute: instance.GetFunc(store, abi.ExportExecute),
	}, nil
}

func (i *timeInstance) call() ([]byte, error) {
	at, err := i.alloc.Call(i.store, int32(len(document)))
	if err != nil {
		return nil, err
	}
	copy(i.memory.UnsafeData(i.store)[at.(int32):], document)
	packed, err := i.execute.Call(i.store, at, int32(len(document)))
	if err != nil {
		return nil, err
	}
	address, n := abi.Unpack(uint64(packed.(int64)))
	return append([]byte(nil), i.memory.UnsafeData(i.store)[address:address+n]...), nil
}
