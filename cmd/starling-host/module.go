package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/registry"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/host/worker"
)

// compileCacheDir returns the folder of the engine's compiled code, or empty
// when the user has no cache folder; code is then compiled in each process.
func compileCacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(base, "starling-host", "compiled")
}

// engineConfigs are the ways to execute modules, the best first. The folder of
// compiled code may be unusable, and some machines have no compiler; a run and
// its replay give the same bytes in every way.
func engineConfigs() []sandbox.Config {
	return []sandbox.Config{{CacheDir: compileCacheDir(), Compile: compileApart}, {Compile: compileApart}, {Interpreter: true}}
}

// The engines, as flags name them.
const (
	engineCompiler    = "compiler"
	engineInterpreter = "interpreter"
)

// newEngine starts the engine of the given name, or the best one that this
// machine has when the name is empty. "doctor" says which. Each of adjust may
// change its configuration.
func newEngine(ctx context.Context, name string, adjust ...func(*sandbox.Config)) (engine *sandbox.Engine, err error) {
	for _, config := range engineConfigs() {
		if name != "" && config.Interpreter != (name == engineInterpreter) {
			continue
		}
		for _, change := range adjust {
			change(&config)
		}
		if engine, err = sandbox.New(ctx, config); err == nil {
			return engine, nil
		}
	}
	return nil, err
}

// engineFlag adds --engine.
func engineFlag(cmd *cobra.Command, name *string) {
	choices := []string{engineCompiler, engineInterpreter}
	cmd.Flags().Var(choiceFlag{name, choices}, "engine", "what executes modules, compiler or interpreter (default the best that works here)")
	_ = cmd.RegisterFlagCompletionFunc("engine", cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
}

// loaded is a module that is ready to run, with the engine that it runs in.
type loaded struct {
	*guest.Module
	source registry.Module
	engine *runEngine
}

// load finds a module and loads it into an engine of its own.
func load(ctx context.Context, ref, isolation string, o guest.Options) (*loaded, error) {
	source, err := registry.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	engine, err := newRunEngine(ctx, isolation, worker.Config{Compiler: inForeground})
	if err != nil {
		return nil, err
	}
	o.Name = source.Name
	module, err := guest.Load(ctx, engine, source.Wasm, o)
	if err != nil {
		engine.close(ctx)
		return nil, err
	}
	return &loaded{Module: module, source: source, engine: engine}, nil
}

func (m *loaded) close(ctx context.Context) {
	m.Module.Close(ctx)
	m.engine.close(ctx)
}

// choose returns the tool of that name, or the only one if name is empty.
func (m *loaded) choose(name string) (*guest.Tool, error) {
	tools := m.Tools()
	if name == "" && len(tools) == 1 {
		return tools[0], nil
	}
	var names []string
	for _, t := range tools {
		if t.Name() == name {
			return t, nil
		}
		names = append(names, t.Name())
	}
	all := strings.Join(names, ", ")
	if name == "" {
		return nil, usagef("choose one with --tool NAME", "the module holds several tools: %s", all)
	}
	return nil, usagef("", "the module has no tool %q, it has: %s", name, all)
}
