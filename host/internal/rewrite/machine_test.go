package rewrite

import (
	"context"
	"slices"
	"strconv"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/machine"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// machineConfig configures a runtime in which the machine executes the metered modules. Wazero
// executes the rest, and the machine reaches the host through it.
type machineConfig struct{ wazero.RuntimeConfig }

func (c machineConfig) WithMemoryLimitPages(pages uint32) wazero.RuntimeConfig {
	return machineConfig{c.RuntimeConfig.WithMemoryLimitPages(pages)}
}

type machineRuntime struct{ wazero.Runtime }

// machineInstance is an instance of a module that the machine executes.
type machineInstance struct {
	api.Module // the bridge to the host
	m          *machine.Machine
	decoded    *wasm.Module
}

// instantiate makes an instance whose imports lead to a module of wazero that exports functions which call them.
func (r machineRuntime) instantiate(ctx context.Context, b []byte) (api.Module, error) {
	code, err := machine.Translate(context.Background(), b, GlobalFuel)
	if err != nil {
		return nil, err
	}
	m, err := wasm.Decode(work.Trusted(context.Background()), b)
	if err != nil {
		return nil, err
	}
	i := &machineInstance{decoded: m}
	bridge := wasmtest.Module{Memory: wasmtest.Pages(0)}
	bridge.Exports = append(bridge.Exports, wasmtest.Export{Name: "memory", Kind: wasm.ExternMemory})
	for n, im := range code.Imports {
		bridge.Imports = append(bridge.Imports, wasmtest.Import(im))
		var code wasm.Asm
		for p := range im.Type.Params {
			code.Index(wasm.OpLocalGet, uint32(p))
		}
		bridge.Funcs = append(bridge.Funcs, wasmtest.Func{Export: strconv.Itoa(n), Type: im.Type, Code: code.Index(wasm.OpCall, uint32(n))})
	}
	if i.Module, err = r.InstantiateWithConfig(ctx, bridge.Bytes(), wazero.NewModuleConfig().WithName("")); err != nil {
		return nil, err
	}
	hosts := make([]machine.Host, len(code.Imports))
	for n, im := range code.Imports {
		f := i.Module.ExportedFunction(strconv.Itoa(n))
		hosts[n] = func(slots []uint64) {
			memory := i.Module.Memory() // what WASI reads and writes
			if im.Module == abi.WASIModule {
				memory.Grow((i.m.Size() - memory.Size()) / wasm.PageSize)
				b, _ := i.m.Read(0, i.m.Size())
				memory.Write(0, b)
			}
			results, err := f.Call(ctx, slots[:len(im.Type.Params)]...)
			if err != nil {
				panic(err)
			}
			copy(slots, results)
			if im.Module == abi.WASIModule {
				b, _ := memory.Read(0, i.m.Size())
				i.m.Write(0, b)
			}
		}
	}
	i.m = machine.New(code, hosts)
	return i, nil
}

func (i *machineInstance) export(kind wasm.ExternKind, name string) *wasm.Export {
	n := slices.IndexFunc(i.decoded.Exports, func(e wasm.Export) bool { return e.Kind == kind && e.Name == name })
	if n < 0 {
		return nil
	}
	return &i.decoded.Exports[n]
}

func (i *machineInstance) ExportedFunction(name string) api.Function {
	if e := i.export(wasm.ExternFunc, name); e != nil {
		return machineFunction{i: i, name: name, t: i.decoded.Types[i.decoded.FuncTypeIndex(int(e.Index))]}
	}
	return nil
}

func (i *machineInstance) ExportedGlobal(name string) api.Global {
	if i.export(wasm.ExternGlobal, name) != nil {
		return machineGlobal{Global: i.m.Global(name)}
	}
	return nil
}

func (i *machineInstance) Memory() api.Memory { return machineMemory{Machine: i.m} }

func (i *machineInstance) ExportedMemory(name string) api.Memory {
	if i.export(wasm.ExternMemory, name) != nil {
		return i.Memory()
	}
	return nil
}

type machineGlobal struct {
	api.MutableGlobal
	*machine.Global
}

func (g machineGlobal) Type() api.ValueType { return g.Global.Type() }
func (g machineGlobal) Get() uint64         { return g.Global.Get() }
func (g machineGlobal) Set(v uint64)        { g.Global.Set(v) }
func (g machineGlobal) String() string      { return "global" }

type machineMemory struct {
	api.Memory
	*machine.Machine
}

func (m machineMemory) Size() uint32                     { return m.Machine.Size() }
func (m machineMemory) Read(at, n uint32) ([]byte, bool) { return m.Machine.Read(at, n) }
func (m machineMemory) Write(at uint32, b []byte) bool   { return m.Machine.Write(at, b) }
func (m machineMemory) Grow(pages uint32) (uint32, bool) { return m.Machine.Grow(pages) }

type machineFunction struct {
	api.Function
	i    *machineInstance
	name string
	t    wasm.FuncType
}

type machineDefinition struct {
	api.FunctionDefinition
	t wasm.FuncType
}

func (f machineFunction) Definition() api.FunctionDefinition { return machineDefinition{t: f.t} }
func (d machineDefinition) ParamTypes() []api.ValueType      { return apiTypes(d.t.Params) }
func (d machineDefinition) ResultTypes() []api.ValueType     { return apiTypes(d.t.Results) }

func (f machineFunction) Call(ctx context.Context, args ...uint64) ([]uint64, error) {
	stack := make([]uint64, max(len(args), len(f.t.Results)))
	copy(stack, args)
	if err := f.i.m.Call(ctx, f.name, stack); err != nil {
		return nil, err
	}
	return slices.Clip(stack[:len(f.t.Results)]), nil
}
