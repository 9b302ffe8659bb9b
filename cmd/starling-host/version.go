package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
)

func (a *app) versionCommand() *cobra.Command {
	licenses := false
	cmd := subcommand("version", "print the version and the formats", func(*cobra.Command, []string) error {
		if licenses {
			r, err := gzip.NewReader(bytes.NewReader(licensesText))
			if err != nil {
				return err
			}
			_, err = io.Copy(a.stdout.Exact(), r)
			return err
		}
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
	cmd.Flags().BoolVar(&licenses, "licenses", false, "print the licences of everything that is inside of the program")
	return cmd
}

// licensesText is made by licenses.sh, and compressed.
//
//go:generate ./licenses.sh
//go:embed licenses.txt.gz
var licensesText []byte

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
