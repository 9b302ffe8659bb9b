package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/host/sandbox"
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
		view.Certificate(a.stdout, c)
	})
}
