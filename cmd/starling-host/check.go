package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/host/sandbox"
)

type checkFlags struct {
	memory uint64
}

func (a *app) checkCommand() *cobra.Command {
	var f checkFlags
	cmd := subcommand("check TOOL", "check whether the host accepts a module, and print its certificate", func(cmd *cobra.Command, args []string) error {
		return a.check(cmd.Context(), args[0], f)
	}, a.outputFlag)
	memoryFlag(cmd, &f.memory)
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
