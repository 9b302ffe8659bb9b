package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/agentfile"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/budget"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/replay"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/runtime/yaml"
)

const agentRunHelp = `Let a model work with tools until it answers, and record the run.

FILE says what the agent is: its provider and model, its prompt, its tools and
what a run may spend. spec/agent.schema.json describes it, and
examples/agent/agent.yaml is one. GOAL is what the model is told; @FILE reads it
from a file, - from standard input.

What the model says is printed on standard output, as it says it if that is a
terminal; its tool calls and everything else are on standard error. Everything
is recorded: prompts as hashes of what they are made of, answers, calls, and what
the tools asked of the world. The run is replayed from the database alone.

With --provider script:FILE the model is played by a script, which needs no key
and no network.`

const agentRunExample = `  starling-host agent run agent.yaml "Which plan is customer 42 on?"
  starling-host agent run examples/agent/agent.yaml "Roll two dice."
  starling-host agent run agent.yaml --provider script:turns.yaml "Go."`

const agentResumeHelp = `Go on with a run that has no end: its process died, or could not go on.

A turn without an answer is taken again. Tool calls without an outcome are made
again under fresh ids; their effects have the idempotency keys that they had, so
a server that knows these does nothing twice. With --no-reissue a run that has
such calls is left as it is.

MESSAGE is said to the model where it goes on. The agent must be the one that
began the run: what the model was told is compared with the record.`

// agentFlags are the flags of the commands that let a model work.
type agentFlags struct {
	file      string // of the agent; resume alone has a flag for it
	database  string
	provider  string
	isolation string
	output    string
	noReissue bool
	policy    string
}

func (a *app) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agent",
		Short:   "let a model work with tools, on the record",
		GroupID: groupRun,
		Args:    knownSubcommand,
		RunE:    showHelp,
	}
	cmd.AddCommand(a.agentRunCommand(), a.agentResumeCommand())
	return cmd
}

func (a *app) agentRunCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:     "run FILE GOAL",
		Short:   "run an agent and record what it does",
		Long:    agentRunHelp,
		Example: agentRunExample,
		Args:    arguments(2, "FILE", "GOAL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			goal, err := a.readInput(args[1], maxGoal)
			if err != nil {
				return err
			}
			f.file = args[0]
			if len(bytes.TrimSpace(goal)) == 0 {
				return usagef(cmd.CommandPath()+" --help", "the goal is empty")
			}
			return a.agentRun(cmd.Context(), strings.TrimSuffix(string(goal), "\n"), f)
		},
	}
	cmd.Flags().StringVar(&f.database, "db", defaultDatabase, "`PATH` of the database, created with mode 0600")
	agentFlagsOf(cmd, &f)
	return cmd
}

func (a *app) agentResumeCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:     "resume DB RUN [MESSAGE]",
		Short:   "go on with a run that has no end",
		Long:    agentResumeHelp,
		Example: "  starling-host agent resume starling.db @last\n  starling-host agent resume starling.db @last 'Go on, but roll once only.'",
		Args:    arguments(2, "DB", "RUN", "MESSAGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.database = args[0]
			message := ""
			if len(args) == 3 {
				message = args[2]
			}
			return a.agentResume(cmd.Context(), args[1], message, f)
		},
	}
	cmd.Flags().StringVar(&f.file, "agent", "agent.yaml", "`FILE` of the agent that began the run")
	cmd.Flags().BoolVar(&f.noReissue, "no-reissue", false, "leave a run alone that has calls without an outcome")
	agentFlagsOf(cmd, &f)
	return cmd
}

// agentFlagsOf adds the flags that both commands have.
func agentFlagsOf(cmd *cobra.Command, f *agentFlags) {
	cmd.Flags().StringVar(&f.provider, "provider", "", "let `script:FILE` play the model")
	policyFlag(cmd, &f.policy)
	isolationFlag(cmd, &f.isolation)
	outputFlag(cmd, &f.output)
}

// maxGoal bounds what a model is told at the beginning, in bytes.
const maxGoal = 4 << 20

func (a *app) agentRun(ctx context.Context, goal string, f agentFlags) error {
	w, err := a.openWork(ctx, f)
	if err != nil {
		return err
	}
	defer w.close()
	runID, events, err := w.agent.RunStream(w.ctx, goal)
	if err != nil {
		return err
	}
	a.stderr.printf("run %s\n", runID)
	return a.follow(runID, events, f)
}

func (a *app) agentResume(ctx context.Context, ref, message string, f agentFlags) error {
	if !onServer(f.database) {
		if err := mustBeThere(f.database); err != nil {
			return err
		}
	}
	w, err := a.openWork(ctx, f)
	if err != nil {
		return err
	}
	defer w.close()
	runID, err := resolveRun(ctx, w.log, ref)
	if err != nil {
		return err
	}
	a.stderr.printf("run %s\n", runID)
	if w.load.policy != nil {
		earlier, err := w.log.Read(ctx, runID)
		if err == nil {
			err = w.load.policy.Resume(earlier)
		}
		if err != nil {
			return err
		}
	}
	events, err := w.agent.ResumeStream(w.ctx, runID, message, agent.WithReissueTools(!f.noReissue))
	if err != nil {
		return err
	}
	return a.follow(runID, events, f)
}

// work is an agent that is ready to run, with everything that it needs.
type work struct {
	ctx   context.Context // with the variables that the tools see
	agent *agent.Agent
	log   database
	box   *agentfile.Toolbox
	load  *moduleLoader
}

// openWork makes an agent of its file.
func (a *app) openWork(ctx context.Context, f agentFlags) (*work, error) {
	file, err := openAgentFile(f)
	if err != nil {
		return nil, err
	}
	w := &work{}
	if err := w.open(ctx, file, f); err != nil {
		w.close()
		return nil, err
	}
	if !dollarsCount(file) {
		a.stderr.printf("warning: nobody knows the price of %s, so the budget in usd bounds nothing\n", file.Model)
	}
	return w, nil
}

// dollarsCount reports whether a budget in dollars, if there is one, can be kept. A
// script costs nothing.
func dollarsCount(file *agentfile.File) bool {
	_, known := budget.Cost(file.Model, provider.Usage{})
	return known || file.Budget().MaxUSD == 0 || file.Endpoint.Script != ""
}

// open opens everything. What it has opened when it fails is to be closed.
func (w *work) open(ctx context.Context, file *agentfile.File, f agentFlags) error {
	model, err := file.Provider(ctx, os.Getenv)
	if err != nil {
		return explainFile(err)
	}
	if w.log, err = openForRuns(ctx, f.database); err != nil {
		return err
	}
	if w.load, err = newModuleLoader(ctx, w.log, f.isolation); err != nil {
		return err
	}
	if w.load.policy, err = openPolicy(f.policy); err != nil {
		return err
	}
	if w.box, err = file.OpenTools(ctx, w.load, os.Getenv); err != nil {
		return err
	}
	w.agent = &agent.Agent{Provider: model, Tools: w.box.Tools, Log: w.log, Config: file.Config(), Budget: file.Budget()}
	if w.load.policy != nil {
		ctx, w.agent.Tools = policy.With(ctx, w.load.policy), guarded(w.load.policy, w.box.Tools)
	}
	w.agent.Config.Retries, w.agent.Config.AppVersion = w.box.Retries, programVersion()
	w.ctx, err = tool.WithVariablesJSON(ctx, file.Variables)
	return err
}

// replaying returns the agent for the replay of a run: with the recorded tools of
// the servers that cannot be reached.
func (w *work) replaying(ctx context.Context, events []event.Event, resolve replay.Resolver) (*agent.Agent, error) {
	started, err := events[0].AsRunStarted()
	if err != nil {
		return nil, err
	}
	a := *w.agent
	a.Tools, a.Config.Retries = slices.Clone(a.Tools), maps.Clone(a.Config.Retries)
	for _, ref := range started.ToolSchemas {
		retry, misses := w.box.Misses(ref)
		if !misses {
			continue
		}
		t, err := resolve(ctx, ref)
		if err != nil {
			return nil, err
		}
		if a.Tools = append(a.Tools, t); retry != nil {
			a.Config.Retries[ref.Name] = *retry
		}
	}
	return &a, nil
}

// openReplayingAgent makes an agent of its file that replays: its model is never
// asked, so it needs no key, and its modules are not recorded.
func openReplayingAgent(ctx context.Context, path string, engine *sandbox.Engine) (*work, error) {
	file, err := openAgentFile(agentFlags{file: path})
	if err != nil {
		return nil, err
	}
	unused := func(name string) string { return cmp.Or(os.Getenv(name), "unused") }
	model, err := file.Provider(ctx, unused)
	if err != nil {
		return nil, explainFile(err)
	}
	load := &moduleLoader{engine: &runEngine{guest.Inline(engine), func(context.Context) error { return nil }}}
	box, err := file.OpenToolsForReplay(ctx, load, os.Getenv)
	if err != nil {
		return nil, err
	}
	a := &agent.Agent{Provider: model, Tools: box.Tools, Config: file.Config(), Budget: file.Budget()}
	a.Config.Retries = box.Retries
	return &work{agent: a, box: box}, nil
}

// openAgentFile reads the file of an agent, and lets a script play its model if the
// flags say so.
func openAgentFile(f agentFlags) (*agentfile.File, error) {
	file, err := agentfile.Load(f.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &failure{code: exitUsage, message: plainError(err), hint: "name the agent's file; resume takes it with --agent FILE"}
	}
	if err != nil {
		return nil, explainFile(err)
	}
	if f.provider == "" {
		return file, nil
	}
	path, ok := strings.CutPrefix(f.provider, "script:")
	if !ok || path == "" {
		return nil, usagef("the agent's file names the real one", "--provider %q: only script:FILE can take the place of a provider", f.provider)
	}
	file.Endpoint = agentfile.Endpoint{Provider: "script", Script: path}
	return file, nil
}

// explainFile words what is wrong with a file, such as that of an agent or of its
// script.
func explainFile(err error) error {
	bad, ok := errors.AsType[*yaml.Error](err)
	if !ok {
		return &failure{code: exitUsage, message: plainError(err)}
	}
	return &failure{code: exitUsage, message: bad.Message(), details: printableLines(bad.Excerpt()), hint: bad.Hint}
}

// close releases whatever was opened.
func (w *work) close() {
	if w.box != nil {
		w.box.Close()
	}
	if w.load != nil {
		w.load.close()
	}
	if w.log != nil {
		w.log.Close()
	}
}
