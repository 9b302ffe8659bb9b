package main

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/internal/display"
)

// demoFiles is the agent of the demo.
//
//go:embed demo
var demoFiles embed.FS

// The location of the demo, and the instructions of its model.
const (
	demoFolder = "starling-demo"
	demoGoal   = "Roll two dice."
)

func (a *app) demoCommand() *cobra.Command {
	f := agentFlags{file: filepath.Join(demoFolder, "agent.yaml"), isolation: isolationInline}
	cmd := subcommand("demo", "run an agent with a scripted model, and replay it", func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if err := writeDemo(); err != nil {
			return &failure{code: exitFailed, message: "demo: " + err.Error(), hint: "run it in a folder that you can write to"}
		}
		a.stderr.Printf("A script plays the model, and its programs run in the sandbox.\nIts goal: %s\n\n", demoGoal)
		a.stderr.Printf("$ %s\n", display.Command("starling-host agent run --db "+display.ShellWord(f.database), f.file, demoGoal))
		if err := a.agentRun(ctx, demoGoal, f); err != nil {
			return err
		}
		a.stderr.Printf("\nNow replay the run from the log alone and compare every byte:\n\n$ %s\n", display.Command("starling-host replay", f.database, starling.LastRun))
		log, err := openDatabase(ctx, f.database)
		if err != nil {
			return err
		}
		defer log.Close()
		if err := a.replay(ctx, log, []string{f.database, starling.LastRun}, replayFlags{}); err != nil {
			return err
		}
		a.stderr.Printf(demoNext, display.Command("starling-host show", f.database, starling.LastRun), display.Command("starling-host replay --engine machine", f.database, starling.LastRun),
			display.Command("starling-host validate", f.database), display.ShellWord(f.file))
		return nil
	})
	cmd.Flags().StringVar(&f.database, "db", filepath.Join(demoFolder, defaultDatabase), "`PATH` of the database, created with mode 0600")
	return cmd
}

const demoNext = `
What to try next:

  %s
      what it did and when, as a tree
  %s
      the same on another engine, with the same fuel
  %s
      chain and Merkle root, without executing anything
  $EDITOR %s
      a real model: two lines, and a key in the environment
`

// writeDemo writes the files of the demo where they are missing.
func writeDemo() error {
	return fs.WalkDir(demoFiles, "demo", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path := filepath.Join(demoFolder, filepath.FromSlash(strings.TrimPrefix(name, "demo")))
		if entry.IsDir() {
			return os.MkdirAll(path, 0o755)
		}
		text, err := demoFiles.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		return errors.Join(err, f.Close())
	})
}
