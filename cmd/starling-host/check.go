package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
)

const checkHelp = `Check whether the host accepts a module, and print its certificate, which lists
everything that determines an execution.

The certificate does not depend on this machine: the same bytes with the same limits
always give the same certificate. It has the digest of the module, its imports and
features, its distance from each limit of the gate, the cost table for its fuel, the
rewriting, the digest of the rewritten module, the digest of the state in which every
call begins, and its tools.

No tool runs. Only the start-up code and the description run, without effects.`

type checkFlags struct {
	memory uint64
}

func (a *app) checkCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:     "check TOOL",
		Short:   "check whether the host accepts a module, and print its certificate",
		Long:    checkHelp,
		Example: "  starling-host tool check dice.wasm\n  starling-host tool check dice.wasm -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.check(cmd.Context(), args[0], f)
		},
	}
	memoryFlag(cmd, &f.memory)
	a.outputFlag(cmd)
	return cmd
}

func (a *app) check(ctx context.Context, ref string, f checkFlags) error {
	source, err := a.source(ctx, ref)
	if err != nil {
		return err
	}
	c, err := certify(ctx, source.Wasm, sandbox.Limits{MemoryPages: uint32(sandbox.Pages(f.memory))})
	if err != nil {
		return err
	}
	return a.emit(c, func() {
		a.stdout.Printf("accepted     %s\n", source.Source)
		c.print(a.stdout)
	})
}

// certificate is the output of "tool check -o json": a function of the module's
// bytes and the limits.
type certificate struct {
	Digest    string             `json:"digest"`
	Size      int                `json:"size"`
	ABI       string             `json:"abi"`
	Tools     []string           `json:"tools,omitempty"`
	Imports   []string           `json:"imports"`
	Features  []string           `json:"features"`
	CostTable uint32             `json:"cost_table"`
	Rewritten rewrittenDocument  `json:"rewritten"`
	Start     startDocument      `json:"start"`
	Memory    memoryDocument     `json:"memory"`
	Limits    []sandbox.Headroom `json:"limits"`
	Call      callLimits         `json:"call_limits"`

	Component   *guest.Provenance  `json:"component,omitempty"`
	Interpreter *guest.Interpreter `json:"interpreter,omitempty"`
}

type rewrittenDocument struct {
	Digest        string `json:"digest"`
	Size          int    `json:"size"`
	Functions     int    `json:"functions"`
	Arithmetic    int    `json:"float_arithmetic"`
	Canonicalized int    `json:"canonicalized"`
	StartMoved    bool   `json:"start_moved"`
}

type startDocument struct {
	Digest string `json:"digest,omitempty"`
	Pages  uint32 `json:"pages,omitempty"`
	Fuel   uint64 `json:"fuel"`
	Error  string `json:"error,omitempty"` // every call fails with it

	Uncalled bool `json:"start_export_uncalled,omitempty"` // it exports _start, as only a command should
}

type memoryDocument struct {
	Min uint32 `json:"min_pages"`
	Max uint32 `json:"max_pages"`
}

// callLimits are a sandbox.Limits.
type callLimits struct {
	Fuel        uint64 `json:"fuel"`
	MemoryPages uint32 `json:"memory_pages"`
	Depth       uint32 `json:"depth"`
	TimeoutMs   int64  `json:"timeout_ms"`
	InputBytes  uint64 `json:"input_bytes"`
	OutputBytes uint64 `json:"output_bytes"`
	LogBytes    uint64 `json:"log_bytes"`
	Effects     uint64 `json:"effects"`
	EffectBytes uint64 `json:"effect_bytes"`
}

// certify loads a module and describes it. It refuses what "run" refuses.
func certify(ctx context.Context, wasm []byte, limits sandbox.Limits) (certificate, error) {
	engine, err := starling.NewSandbox(ctx, starling.EngineOptions{})
	if err != nil {
		return certificate{}, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	if limits, err = guest.Limits(wasm, limits); err != nil {
		return certificate{}, err
	}
	module, err := engine.Load(ctx, wasm, limits)
	if err != nil {
		return certificate{}, err
	}
	limits = module.Limits()
	result, err := sandbox.Rewrite(ctx, wasm, sandbox.DefaultGateLimits(), sandbox.RewriteOptions{MemoryPages: limits.MemoryPages, Depth: limits.Depth})
	if err != nil {
		return certificate{}, err
	}
	tools, err := toolNames(ctx, module, wasm)
	if err != nil {
		return certificate{}, err
	}
	start := startDocument{}
	if begun, err := module.Start(); err != nil {
		start.Fuel, start.Error = begun.Fuel, starling.PlainError(errors.Unwrap(err))
	} else {
		start = startDocument{Digest: begun.Digest.String(), Pages: begun.Pages, Fuel: begun.Fuel}
	}
	_, command := result.Info.Export(abi.ExportStart)
	start.Uncalled = command && module.ABI() == abi.Version
	return certificate{
		Digest: module.Digest().String(), Size: len(wasm), ABI: module.ABI(), Tools: tools,
		Imports: module.Imports(), Features: result.Info.Features, CostTable: result.CostTable,
		Rewritten: rewrittenDocument{
			Digest: canon.Sum(result.Wasm).String(), Size: len(result.Wasm), Functions: result.Info.Counts.Functions,
			Arithmetic: result.Arithmetic, Canonicalized: result.Canonicalized, StartMoved: result.Info.HasStart,
		},
		Start:  start,
		Memory: memoryDocument{result.Info.Memory.Min, min(result.Info.Memory.Max, limits.MemoryPages)},
		Limits: result.Info.Counts.Headroom(sandbox.DefaultGateLimits()),
		Call:   callLimits(limits),

		Component: guest.ComponentOf(wasm), Interpreter: guest.InterpreterOf(wasm),
	}, nil
}

// toolNames returns the tools that the module says it has. A WASI command says
// nothing: its name is that of its file.
func toolNames(ctx context.Context, module *sandbox.Module, wasm []byte) (names []string, err error) {
	described, err := guest.Load(ctx, already{module}, wasm, guest.Options{Limits: module.Limits(), New: true})
	if err != nil || described.ABI() != abi.Version {
		return nil, err
	}
	for _, t := range described.Tools() {
		names = append(names, t.Name())
	}
	return names, nil
}

// already is the engine of a module that is loaded.
type already struct{ module *sandbox.Module }

// Load returns the module.
func (a already) Load(context.Context, []byte, sandbox.Limits) (guest.Sandbox, error) {
	return a.module, nil
}

func (c certificate) print(w *terminal.Printer) {
	line := func(name, format string, args ...any) {
		w.Printf("%-11s  %s\n", name, fmt.Sprintf(format, args...))
	}
	line("digest", "%s", c.Digest)
	line("size", "%s", display.Size(uint64(c.Size)))
	line("abi", "%s", c.ABI)
	printOrigin(c.Component, c.Interpreter, func(name, text string) { line(name, "%s", text) })
	if len(c.Tools) > 0 {
		line("tools", "%s", strings.Join(c.Tools, ", "))
	}
	line("imports", "%s", listOr(importsOf(c.Imports, abi.Version), "none")+" of "+abi.Version)
	line("", "%s", listOr(importsOf(c.Imports, abi.WASIModule), "none")+" of "+abi.WASIModule)
	line("features", "%s", listOr(c.Features, "none beyond the first version of WebAssembly"))
	line("memory", "%s to %s", display.Size(uint64(c.Memory.Min)*sandbox.PageSize), display.Size(uint64(c.Memory.Max)*sandbox.PageSize))
	line("cost table", "%d", c.CostTable)
	line("rewritten", "%s", c.Rewritten.Digest)
	line("", "%s, %d functions metered", display.Size(uint64(c.Rewritten.Size)), c.Rewritten.Functions)
	line("", "%d of %d float instructions made canonical", c.Rewritten.Canonicalized, c.Rewritten.Arithmetic)
	if c.Start.Error != "" {
		line("start", "fails, and so does every call: %s", c.Start.Error)
	} else {
		line("start", "%s", c.Start.Digest)
		line("", "%s of memory, %s fuel", display.Size(uint64(c.Start.Pages)*sandbox.PageSize), display.Fuel(c.Start.Fuel))
	}
	if c.Start.Uncalled {
		line("", "_start is never called, because there are exports starling_*: move its code into _initialize, as in a reactor")
	}
	for i, h := range c.Limits {
		name := ""
		if i == 0 {
			name = "limits"
		}
		line(name, "%-48s  %11d of %11d", h.What, h.Value, h.Limit)
	}
}

// importsOf returns the functions of one module among imports.
func importsOf(imports []string, module string) []string {
	var names []string
	for _, im := range imports {
		if name, ok := strings.CutPrefix(im, module+"."); ok {
			names = append(names, name)
		}
	}
	return names
}
