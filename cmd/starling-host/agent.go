package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
)

// agentFlags are the flags of the commands that let a model work.
type agentFlags struct {
	file      string // of the agent; resume alone has a flag for it
	database  string
	provider  string
	isolation string
	noReissue bool
	policy    string
	trust     string
}

func (a *app) agentCommand() *cobra.Command {
	return parent("agent", "let a model work with tools, on the record", a.agentRunCommand(), a.agentResumeCommand())
}

func (a *app) agentRunCommand() *cobra.Command {
	var f agentFlags
	cmd := subcommand("run FILE GOAL", "run an agent and record what it does", func(cmd *cobra.Command, args []string) error {
		goal, err := a.readInput(cmd.Context(), args[1], maxGoal)
		if err != nil {
			return err
		}
		f.file = args[0]
		if len(bytes.TrimSpace(goal)) == 0 {
			return usagef(cmd.CommandPath()+" --help", "the goal is empty")
		}
		return a.agentRun(cmd.Context(), strings.TrimSuffix(string(goal), "\n"), f)
	})
	cmd.Flags().StringVar(&f.database, "db", defaultDatabase, "`PATH` of the database, created with mode 0600")
	a.agentFlagsOf(cmd, &f)
	return cmd
}

func (a *app) agentResumeCommand() *cobra.Command {
	var f agentFlags
	cmd := subcommand("resume [DB] RUN [MESSAGE]", "resume a run whose process died", func(cmd *cobra.Command, args []string) error {
		f.database = args[0]
		message := ""
		if len(args) == 3 {
			message = args[2]
		}
		ctx := cmd.Context()
		if err := mustBeThere(f.database); err != nil {
			return err
		}
		db, resumed, err := a.openAgent(ctx, f)
		if err != nil {
			return err
		}
		defer db.Close()
		runID, err := db.Find(ctx, args[1])
		if err != nil {
			return err
		}
		a.stderr.Printf("run %s\n", runID)
		events, err := resumed.Resume(a.asking(ctx), runID, message, agent.WithReissueTools(!f.noReissue))
		if err != nil {
			return err
		}
		return a.follow(ctx, db, runID, events, f)
	})
	cmd.Flags().StringVar(&f.file, "agent", "agent.yaml", "`FILE` of the agent that started the run")
	cmd.Flags().BoolVar(&f.noReissue, "no-reissue", false, "do not resume a run that has calls without an outcome")
	a.agentFlagsOf(cmd, &f)
	return cmd
}

// agentFlagsOf adds the flags that "agent run" and "agent resume" share.
func (a *app) agentFlagsOf(cmd *cobra.Command, f *agentFlags) {
	cmd.Flags().StringVar(&f.provider, "provider", "", "let `script:FILE` play the model")
	policyFlag(cmd, &f.policy)
	trustFlag(cmd, &f.trust)
	isolationFlag(cmd, &f.isolation)
	a.outputFlag(cmd)
}

// maxGoal bounds the goal, in bytes.
const maxGoal = 4 << 20

func (a *app) agentRun(ctx context.Context, goal string, f agentFlags) error {
	db, agent, err := a.openAgent(ctx, f)
	if err != nil {
		return err
	}
	defer db.Close()
	runID, events, err := agent.Stream(a.asking(ctx), goal)
	if err != nil {
		return err
	}
	a.stderr.Printf("run %s\n", runID)
	return a.follow(ctx, db, runID, events, f)
}

// openAgent opens the agent of a file and the database that records its runs.
func (a *app) openAgent(ctx context.Context, f agentFlags) (*starling.DB, *starling.Agent, error) {
	file, err := openAgentFile(f)
	if err != nil {
		return nil, nil, err
	}
	rules, err := openPolicy(f.policy)
	if err != nil {
		return nil, nil, err
	}
	db, err := a.open(ctx, f.database, f.isolation, f.trust, nil)
	if err != nil {
		return nil, nil, err
	}
	opened, err := db.OpenAgentFile(ctx, file, starling.AgentOptions{Policy: rules})
	if err != nil {
		db.Close()
		return nil, nil, explainAgent(err)
	}
	if !file.BudgetCounts() {
		a.warn("the price of " + display.Printable(file.Model) + " is not known, so the budget in usd bounds nothing")
	}
	return db, opened, nil
}

// openAgentFile reads the file of an agent, and lets a script play its model if the
// flags say so.
func openAgentFile(f agentFlags) (*agentfile.File, error) {
	file, err := agentfile.Load(f.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &failure{code: exitUsage, message: starling.PlainError(err), hint: "name the agent's file; resume takes it with --agent FILE"}
	}
	if err != nil {
		return nil, explainFile(err)
	}
	if f.provider == "" {
		return file, nil
	}
	path, ok := strings.CutPrefix(f.provider, "script:")
	if !ok || path == "" {
		return nil, usagef("the agent's file sets the real provider", "--provider %q: only script:FILE can replace the provider", f.provider)
	}
	file.Endpoint = agentfile.Endpoint{Provider: "script", Script: path}
	return file, nil
}

// explainAgent words why an agent cannot be opened.
func explainAgent(err error) error {
	if _, ok := errors.AsType[*config.Error](err); ok || errors.Is(err, fs.ErrNotExist) {
		return explainFile(err)
	}
	return err
}

// explainFile describes an error in a file, such as an agent's or its script.
func explainFile(err error) error {
	if errors.As(err, new(*config.Error)) {
		return explain(err)
	}
	return &failure{code: exitUsage, message: starling.PlainError(err)}
}
