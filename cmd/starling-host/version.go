package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
)

func (a *app) versionCommand() *cobra.Command {
	return subcommand("version", "print the version and the formats", func(*cobra.Command, []string) error {
		for _, line := range [][2]any{
			{"starling-host", agent.Version()},
			{"go", runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH},
			{"wazero", dependencyVersion("github.com/tetratelabs/wazero")},
			{"abi", abi.Version},
			{"cost table", sandbox.CostTableVersion},
			{"event schema", event.SchemaVersion},
		} {
			a.stdout.Printf("%-15s  %v\n", line[0], line[1])
		}
		return nil
	})
}

func dependencyVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dep := range info.Deps {
		if dep.Path == path {
			return dep.Version
		}
	}
	return "unknown"
}
