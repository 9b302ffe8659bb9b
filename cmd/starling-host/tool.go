package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
)

func (a *app) toolCommand() *cobra.Command {
	describe := subcommand("describe TOOL", "print name, description, schemas, requested hosts, imports and digest", func(cmd *cobra.Command, args []string) error {
		_, doc, err := a.examine(cmd.Context(), args[0], artifact.Finder{})
		if err != nil {
			return err
		}
		return a.emit(doc, func() {
			view.Module(a.stdout, doc)
		})
	}, a.outputFlag)
	return parent("tool", "write tools, and look at them",
		a.toolNewCommand(), a.toolBuildCommand(), a.toolDevCommand(), a.toolTestCommand(), describe, a.checkCommand(),
		a.pushCommand(), a.pullCommand(), a.listCommand(), a.signCommand(), a.verifyToolCommand(), a.toolDiffCommand())
}

// examine loads a module and describes it. Nothing is recorded.
func (a *app) examine(ctx context.Context, ref string, f artifact.Finder) (guest.Source, starling.ModuleDocument, error) {
	db := starling.Over(nil, starling.Options{Finder: f, Engine: starling.EngineOptions{Warn: a.warn}})
	defer db.Close()
	m, err := db.LoadModule(ctx, ref, starling.ToolOptions{})
	if err != nil {
		return guest.Source{}, starling.ModuleDocument{}, err
	}
	return m.Source, m.Document(), nil
}
