package main

import (
	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/host/sandbox"
)

func (a *app) checkCommand() *cobra.Command {
	var memory uint64
	cmd := subcommand("check TOOL", "check whether the host accepts a module, and print its certificate", func(cmd *cobra.Command, args []string) error {
		source, err := a.source(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		c, err := starling.Certify(cmd.Context(), source.Wasm, sandbox.Limits{MemoryPages: uint32(sandbox.Pages(memory))})
		if err != nil {
			return err
		}
		return a.emit(c, func() {
			a.stdout.Printf("accepted     %s\n", source.Source)
			view.Certificate(a.stdout, c)
		})
	}, a.outputFlag)
	memoryFlag(cmd, &memory)
	return cmd
}
