package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/step"
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
	dirs      []string // of a run that begins
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
	dirFlag(cmd, &f.dirs, "the agent's tools")
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
		db, resumed, _, err := a.openAgent(ctx, f)
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
		return a.follow(ctx, db, runID, events, nil, f)
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
	db, agent, files, err := a.openAgent(ctx, f)
	if err != nil {
		return err
	}
	defer db.Close()
	if len(f.dirs) > 0 && !slices.ContainsFunc(agent.Tools, step.FindsFiles) {
		a.warnOfDirs("no tool looks")
	}
	runID, events, err := agent.Stream(a.asking(ctx), goal)
	if err != nil {
		return err
	}
	a.stderr.Printf("run %s\n", runID)
	return a.follow(ctx, db, runID, events, files, f)
}

// openAgent opens the agent of a file, the database that records its runs, and the files of --dir. A script
// plays the agent's model if the flags say so.
func (a *app) openAgent(ctx context.Context, f agentFlags) (*starling.DB, *starling.Agent, *starling.Files, error) {
	file, err := agentfile.Load(f.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, &failure{code: exitUsage, message: starling.PlainError(err), hint: "name the agent's file; resume takes it with --agent FILE"}
	}
	if err != nil {
		return nil, nil, nil, explainFile(err)
	}
	if f.provider != "" {
		path, ok := strings.CutPrefix(f.provider, "script:")
		if !ok || path == "" {
			return nil, nil, nil, usagef("the agent's file sets the real provider", "--provider %q: only script:FILE can replace the provider", f.provider)
		}
		file.Endpoint = agentfile.Endpoint{Provider: "script", Script: path}
	}
	rules, err := openPolicy(f.policy)
	if err != nil {
		return nil, nil, nil, err
	}
	db, err := a.open(ctx, f.database, f.isolation, f.trust, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	files, err := giveFolders(ctx, db, f.dirs)
	if err != nil {
		db.Close()
		return nil, nil, nil, err
	}
	opened, err := db.OpenAgentFile(ctx, file, starling.AgentOptions{Policy: rules, Files: files})
	if err != nil {
		db.Close()
		return nil, nil, nil, explainAgent(err)
	}
	if !file.BudgetCounts() {
		a.warn("the price of " + display.Printable(file.Model) + " is not known, so the budget in usd bounds nothing")
	}
	return db, opened, files, nil
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

// follow prints the progress of a run, writes back what it has left in the files, and prints its result.
func (a *app) follow(ctx context.Context, db *starling.DB, runID string, events <-chan agent.AgentEvent, files *starling.Files, f agentFlags) error {
	p := &view.Progress{Out: a.stdout, Err: a.stderr, Stream: a.stdout.Terminal && !a.asJSON}
	var done agent.Done
	for ev := range events {
		if d, ok := ev.(agent.Done); ok {
			done = d
			continue
		}
		p.Print(ev)
	}
	p.Line()
	if done.Result == nil {
		return stayedOpen(runID, done.Err, f)
	}
	changed, unwritten, left := []string(nil), error(nil), hex.EncodeToString(done.Result.Meter.Workspace)
	written := files != nil && done.Result.TerminalKind == event.KindRunCompleted
	if written {
		changed, unwritten = writeBack(ctx, files, runID)
	}
	if left != "" && (!written || unwritten != nil) {
		a.hint("to get the files as the run left them: " + display.Command("starling-host workspace get", named(f.database), runID, "FOLDER"))
	}
	err := a.agentEnd(ctx, db, p, done.Result, agentDocument{Workspace: left, Changed: changed}, f)
	return cmp.Or(unwritten, err, agentOutcome(done.Result, done.Err))
}

// stayedOpen explains a run that has no end.
func stayedOpen(runID string, err error, f agentFlags) error {
	for _, refused := range []error{agent.ErrRunAlreadyTerminal, agent.ErrAgentChanged, agent.ErrPartialToolCall, agent.ErrRunInUse, agent.ErrNoModel} {
		if errors.Is(err, refused) {
			return &failure{code: exitUsage, message: starling.PlainError(err), hint: hint.Of(err)}
		}
	}
	if errors.Is(err, event.ErrEncrypted) {
		return &failure{code: exitRefused, message: fmt.Sprintf("run %s is encrypted: only its host can continue it", runID)}
	}
	out := *explain(err)
	if out.hint == "" && !errors.Is(err, agent.ErrRunNotFound) {
		out.hint = "the run is open; go on with: " + display.Command("starling-host agent resume --agent "+display.ShellWord(f.file), named(f.database), runID)
	}
	return &out
}

// agentDocument is the output of "agent run -o json" and "agent resume -o json".
type agentDocument struct {
	span.Document
	Database  string   `json:"database"`
	Workspace string   `json:"workspace,omitempty"`
	Changed   []string `json:"changed,omitempty"`
}

// agentEnd prints the result of a run, and its files, which are in the document.
func (a *app) agentEnd(ctx context.Context, db *starling.DB, p *view.Progress, r *agent.Result, doc agentDocument, f agentFlags) error {
	p.Note(fmt.Sprintf("%s, %s, %s tokens in, %s out, $%s, fuel %s, wall time %s",
		display.Plural(r.TurnCount, "turn"), display.Plural(r.ToolCallCount, "tool call"), display.Digits(uint64(r.InputTokens)), display.Digits(uint64(r.OutputTokens)),
		display.Dollars(r.TotalCostUSD), display.Digits(r.Meter.Fuel), display.Duration(r.Duration)))
	a.reportChanged(doc.Changed)
	a.stderr.Printf("replay: %s\n", display.Command("starling-host replay", named(f.database), r.RunID))
	if a.asJSON {
		ctx = context.WithoutCancel(ctx) // the run has ended, even if that was why
		log, err := db.Log(ctx)
		if err != nil {
			return err
		}
		summary, err := log.Run(ctx, r.RunID)
		if err != nil {
			return err
		}
		if doc.Document, err = span.Read(ctx, log, summary); err != nil {
			return err
		}
		doc.Database = named(f.database)
		return a.writeValue(doc)
	}
	if p.Stream || r.FinalText == "" && r.TerminalKind != event.KindRunCompleted {
		return nil
	}
	_, err := fmt.Fprintln(a.stdout.Exact(), r.FinalText)
	return err
}

// agentOutcome returns how the program ends after a run that ended with err, nil if
// all is well.
func agentOutcome(r *agent.Result, err error) error {
	why := r.Error
	if e, ok := errors.AsType[*agent.BudgetExceeded](err); ok && r.ErrorType == event.ErrorBudget { // whose bound is in an event before
		why += ": " + e.Event().Describe()
	}
	out := &failure{code: exitFailed, message: "the run failed: " + starling.PlainError(errors.New(why))}
	switch {
	case r.TerminalKind == event.KindRunCompleted:
		return nil
	case r.TerminalKind == event.KindRunCancelled:
		return &failure{code: exitCancelled, message: "cancelled; the run is recorded as cancelled"}
	case r.ErrorType == event.ErrorBudget:
		out.code, out.hint = exitLimit, "raise the budget in the agent's file"
	case r.ErrorType == event.ErrorMaxTurns:
		out.code, out.hint = exitLimit, "raise max_turns in the agent's file"
	case r.ErrorType == event.ErrorCut:
		out.code, out.hint = exitLimit, "raise max_output_tokens in the agent's file, or ask for less"
	case r.ErrorType == event.ErrorRefused:
		out.code = exitRefused
	}
	return out
}
