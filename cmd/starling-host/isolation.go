package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/host/worker"
)

// Where a tool runs, as --isolation names it.
const (
	isolationInline  = "inline"
	isolationProcess = "process"
)

// isolationFlag adds --isolation.
func isolationFlag(cmd *cobra.Command, where *string) {
	choices := []string{isolationInline, isolationProcess}
	*where = isolationInline
	cmd.Flags().Var(choiceFlag{where, choices}, "isolation", "where the tool runs, inline or in a process of its own")
	_ = cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

// runEngine is what a run executes its tool in.
type runEngine struct {
	guest.Engine
	close func(context.Context) error
}

// newRunEngine starts the best engine for a way to run tools that this machine
// has. Workers are configured by c, but for how they execute modules.
func newRunEngine(ctx context.Context, isolation string, c worker.Config) (*runEngine, error) {
	if isolation != isolationProcess {
		engine, err := newEngine(ctx, "")
		if err != nil {
			return nil, err
		}
		return &runEngine{guest.Inline(engine), engine.Close}, nil
	}
	var failed error
	for _, config := range engineConfigs() {
		c.Interpreter, c.CacheDir = config.Interpreter, config.CacheDir
		engine, err := worker.New(ctx, c)
		if err == nil {
			return &runEngine{engine, engine.Close}, nil
		}
		failed = err
	}
	return nil, failed
}

// inForeground is how modules are compiled for who waits in front of the machine.
var inForeground = worker.Compiler{Foreground: true}

// compileApart compiles a module in a process that may die of it. Where no
// process can be started it compiles in this one and says so: what can happen
// then is that the module takes this program's memory and time, and the user
// has chosen to run it on a machine of their own.
func compileApart(ctx context.Context, rewritten []byte, dir string) error {
	err := inForeground.Compile(ctx, rewritten, dir)
	if !errors.Is(err, worker.ErrNoProcess) {
		return err
	}
	newPrinter(os.Stderr).printf("warning: the module is compiled without bounds on time and memory: %s\n", plainError(err))
	return sandbox.Compile(ctx, rewritten, dir)
}
