package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/starling-host/starling"
)

const demoHelp = `Run the example agent, with a model that follows a script, and replay the run.

It needs a checkout of starling-host, in which it looks for examples/agent from
the current folder upwards, and Go, with which the tools are built. It needs no
key and no network. What it records is in starling-demo.db, or where --db says.`

// The parts of a checkout that the demo needs, and what its model is told.
const (
	demoAgent    = "examples/agent/agent.yaml"
	demoDatabase = "starling-demo.db"
	demoGoal     = "Roll two dice."
)

func (a *app) demoCommand() *cobra.Command {
	f := agentFlags{isolation: isolationInline, output: outputText}
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "run an agent with a scripted model, and replay it",
		Long:    demoHelp,
		Example: "  starling-host demo",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.database, "db", demoDatabase, "`PATH` of the database, created with mode 0600")
	return cmd
}

func (a *app) demo(ctx context.Context, f agentFlags) error {
	var err error
	if f.file, err = findUpwards(demoAgent); err != nil {
		return err
	}
	a.stderr.printf("A script plays the model, and its tools are real. It is told: %s\n\n", demoGoal)
	a.stderr.printf("$ %s\n", pasteable("starling-host agent run --db "+shellWord(f.database), f.file, demoGoal))
	if err := a.agentRun(ctx, demoGoal, f); err != nil {
		return err
	}
	a.stderr.printf("\nNow the same again, from the record alone, and every byte is compared:\n\n$ %s\n", pasteable("starling-host replay", f.database, starling.LastRun))
	if err := a.replay(ctx, []string{f.database, starling.LastRun}, replayFlags{output: outputText}); err != nil {
		return err
	}
	a.stderr.printf(demoNext, pasteable("starling-host show", f.database, starling.LastRun), pasteable("starling-host replay --engine interpreter", f.database, starling.LastRun),
		pasteable("starling-host validate", f.database), shellWord(f.file))
	return nil
}

const demoNext = `
What to try next:

  %s
      what happened, event by event
  %s
      the same on another engine, with the same fuel
  %s
      chain and Merkle root, without executing anything
  $EDITOR %s
      a real model: two lines, and a key in the environment
`

// findUpwards returns the path of a file below the current folder or one of those
// above it.
func findUpwards(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for up := ""; ; up = filepath.Join(up, "..") {
		path := filepath.Join(up, filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", usagef("git clone the project and run it there", "demo: no %s here or in a folder above", name)
		}
		dir = parent
	}
}
