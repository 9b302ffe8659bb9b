package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
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
	c, err := starling.Certify(ctx, source.Wasm, sandbox.Limits{MemoryPages: uint32(sandbox.Pages(f.memory))})
	if err != nil {
		return err
	}
	return a.emit(c, func() {
		a.stdout.Printf("accepted     %s\n", source.Source)
		printCertificate(a.stdout, c)
	})
}

func printCertificate(w *terminal.Printer, c starling.Certificate) {
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
