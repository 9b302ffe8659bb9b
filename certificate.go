package starling

import (
	"context"
	"errors"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/lists"
)

// Certificate lists everything that determines an execution of a module. It is a function of the module's
// bytes and the limits, on every machine.
type Certificate struct {
	Digest    string             `json:"digest"`
	Size      int                `json:"size"`
	ABI       string             `json:"abi"`
	Tools     []string           `json:"tools,omitempty"`
	Imports   []string           `json:"imports"`
	Features  []string           `json:"features"`
	CostTable uint32             `json:"cost_table"`
	Rewritten RewrittenModule    `json:"rewritten"`
	Start     StartState         `json:"start"`
	Memory    MemoryRange        `json:"memory"`
	Limits    []sandbox.Headroom `json:"limits"`
	Call      sandbox.Limits     `json:"call_limits"`

	Component   *guest.Provenance  `json:"component,omitempty"`
	Interpreter *guest.Interpreter `json:"interpreter,omitempty"`
}

// RewrittenModule is what the host makes of a module.
type RewrittenModule struct {
	Digest        string `json:"digest"`
	Size          int    `json:"size"`
	Functions     int    `json:"functions"`
	Arithmetic    int    `json:"float_arithmetic"`
	Canonicalized int    `json:"canonicalized"`
	StartMoved    bool   `json:"start_moved"`
}

// StartState is the state in which every call begins.
type StartState struct {
	Digest string `json:"digest,omitempty"`
	Pages  uint32 `json:"pages,omitempty"`
	Fuel   uint64 `json:"fuel"`
	Error  string `json:"error,omitempty"` // every call fails with it

	Uncalled bool `json:"start_export_uncalled,omitempty"` // it exports _start, as only a command should
}

// MemoryRange is the memory of a call, in pages.
type MemoryRange struct {
	Min uint32 `json:"min_pages"`
	Max uint32 `json:"max_pages"`
}

// Certify loads a module and describes it. It refuses what [DB.Load] refuses. No tool runs, only the start-up code
// and the description, without effects.
func Certify(ctx context.Context, wasm []byte, limits sandbox.Limits) (Certificate, error) {
	engine, err := NewSandbox(ctx, EngineOptions{})
	if err != nil {
		return Certificate{}, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	if limits, err = guest.Limits(wasm, limits); err != nil {
		return Certificate{}, err
	}
	module, err := engine.Load(ctx, wasm, limits)
	if err != nil {
		return Certificate{}, err
	}
	limits = module.Limits()
	result, err := sandbox.Rewrite(ctx, wasm, sandbox.DefaultGateLimits(), sandbox.RewriteOptions{MemoryPages: limits.MemoryPages, Depth: limits.Depth})
	if err != nil {
		return Certificate{}, err
	}
	tools, err := toolNames(ctx, module, wasm)
	if err != nil {
		return Certificate{}, err
	}
	state, err := module.Start()
	start := StartState{Fuel: state.Fuel}
	if err != nil {
		start.Error = PlainError(errors.Unwrap(err))
	} else {
		start.Digest, start.Pages = state.Digest.String(), state.Pages
	}
	_, command := result.Info.Export(abi.ExportStart)
	start.Uncalled = command && module.ABI() == abi.Version
	return Certificate{
		Digest: module.Digest().String(), Size: len(wasm), ABI: module.ABI(), Tools: tools,
		Imports: module.Imports(), Features: result.Info.Features, CostTable: result.CostTable,
		Rewritten: RewrittenModule{
			Digest: canon.Sum(result.Wasm).String(), Size: len(result.Wasm), Functions: result.Info.Counts.Functions,
			Arithmetic: result.Arithmetic, Canonicalized: result.Canonicalized, StartMoved: result.Info.HasStart,
		},
		Start:  start,
		Memory: MemoryRange{result.Info.Memory.Min, min(result.Info.Memory.Max, limits.MemoryPages)},
		Limits: result.Info.Counts.Headroom(sandbox.DefaultGateLimits()),
		Call:   limits,

		Component: guest.ComponentOf(wasm), Interpreter: guest.InterpreterOf(wasm),
	}, nil
}

// toolNames returns the tools that the module says it has. A WASI command says
// nothing: its name is that of its file.
func toolNames(ctx context.Context, module *sandbox.Module, wasm []byte) ([]string, error) {
	described, err := guest.Load(ctx, loaded{module}, wasm, guest.Options{Limits: module.Limits(), New: true})
	if err != nil || described.ABI() != abi.Version {
		return nil, err
	}
	return lists.Map(described.Tools(), (*guest.Tool).Name), nil
}

// loaded is the engine of a module that is loaded.
type loaded struct{ module *sandbox.Module }

// Load returns the module.
func (l loaded) Load(context.Context, []byte, sandbox.Limits) (guest.Sandbox, error) {
	return l.module, nil
}
