package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/recorded"
	"github.com/starling-host/starling/host/registry"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/replay"
)

const replayHelp = `Execute a recorded run again and compare every event, byte for byte.

The log is checked first, as validate does. Then the tool runs again in the
sandbox, with the log in place of the world: no network, no clock, no
randomness. The database is opened for reading only and need hold nothing but
the run; the tool's module is in it.

The verdict is on standard output: "identical", or the first event at which the
execution left the recording. A run without a terminal event, because its
process died, is identical if its events are.

With --engine the other engine executes the tool. Compiler and interpreter share
no code, and give the same bytes and the same count of fuel: what both call
identical does not rest on a mistake of one. The interpreter is some thirty times
slower.

With --trace every import that the tool calls is printed: the fuel spent by then,
the function, its arguments and its answer. With --profile the fuel of the call
is written to a file that "go tool pprof" reads, by function and by call stack:
of a call that was recorded anywhere, at any time, exactly.

With --agent the run of an agent is replayed by that agent as its file has it now,
to see whether what was changed since makes a difference: a prompt, a tool, a
limit. Another provider or model is refused, unless --force is given, which
relaxes nothing else.

With --module another version of the tool takes the place of the recorded one,
to see what it would have done with the same input and the same answers.

A log says itself how much its calls may compute, and so how long a replay takes.
With --timeout a run from somebody else that takes longer is given up, without a
verdict, and with --all the next one follows.

Runs of tenants that were erased are never replayed. With --all and the master key
they are counted, and do not change the exit code.`

const replayExample = `  starling-host replay starling.db @last
  starling-host replay starling.db --all --timeout 1m
  starling-host replay starling.db @last --engine interpreter
  starling-host replay starling.db @last --module dice.wasm
  starling-host replay starling.db @last --trace
  starling-host replay starling.db @last --profile fuel.pprof && go tool pprof -top fuel.pprof`

type replayFlags struct {
	all    bool
	module string
	engine string
	agent  string
	force  bool

	timeout time.Duration // of each run; zero for none

	trace   bool
	profile string
	output  string

	read readFlags
}

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:               "replay DB [RUN]",
		Short:             "execute a run again and compare every event",
		Long:              replayHelp,
		Example:           replayExample,
		GroupID:           groupProve,
		Args:              arguments(1, "DB", "RUN"),
		ValidArgsFunction: completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.all != (len(args) == 1) {
				return usagef(cmd.CommandPath()+" --help", "replay: name one RUN, or --all")
			}
			if f.agent != "" && f.module != "" || f.force && f.agent == "" {
				return usagef("", "replay: --agent and --module exclude each other, and --force belongs to --agent")
			}
			if f.timeout < 0 {
				return usagef("", "replay: --timeout must be 0 or more")
			}
			if f.all && (f.trace || f.profile != "") {
				return usagef("", "replay: --trace and --profile look at one RUN")
			}
			return a.replay(cmd.Context(), args, f)
		},
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "replay every run of the database, on all processors")
	cmd.Flags().StringVar(&f.module, "module", "", "replay against another `TOOL`: a .wasm file or a folder with a tool")
	engineFlag(cmd, &f.engine)
	cmd.Flags().StringVar(&f.agent, "agent", "", "replay by the agent of `FILE`, as it is now")
	cmd.Flags().BoolVar(&f.force, "force", false, "with --agent, also if its provider or model is another one")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "give a run up that takes longer than `DURATION`; 0 for none")
	cmd.Flags().BoolVar(&f.trace, "trace", false, "print each import that the tool calls, with arguments and answer")
	cmd.Flags().StringVar(&f.profile, "profile", "", "write where the fuel went to `FILE`, for go tool pprof; an older profile is replaced")
	f.read.add(cmd)
	outputFlag(cmd, &f.output)
	return cmd
}

func (a *app) replay(ctx context.Context, args []string, f replayFlags) error {
	log, err := f.read.open(ctx, args[0])
	if err != nil {
		return err
	}
	defer log.Close()
	o := newObservers(a, f)
	r, err := newReplayer(ctx, log, f, o)
	if err != nil {
		return err
	}
	defer r.close(context.WithoutCancel(ctx))
	if r.work != nil {
		for _, absent := range r.work.box.Absent {
			a.stderr.printf("warning: %s; the record of each run says which tools it has\n", printable(plainError(absent)))
		}
	}
	if f.all {
		return a.replayAll(ctx, r, f)
	}
	runID, err := resolveRun(ctx, log, args[1])
	if err != nil {
		return err
	}
	if err := o.prepare(ctx, r, runID); err != nil {
		return err
	}
	v, err := r.replay(ctx, runID)
	if err = errors.Join(err, o.close()); err != nil {
		return err
	}
	if err := a.printVerdict(v, f); err != nil {
		return err
	}
	return silent(v.code())
}

// replayer replays the runs of one database.
type replayer struct {
	log     database
	engine  *sandbox.Engine
	modules *recorded.Modules
	checks  *moduleChecks
	other   []byte // the module that takes the place of every recorded one; nil for none
	options replay.Options
	timeout time.Duration // of each run; zero for none
	work    *work         // the agent that replays; nil for what the log says
}

// newReplayer prepares for replays: against the module that each run recorded,
// or against the one that the flags name.
func newReplayer(ctx context.Context, log database, f replayFlags, o *observers) (*replayer, error) {
	var other []byte
	if f.module != "" {
		source, err := registry.Open(ctx, f.module)
		if err != nil {
			return nil, err
		}
		other = source.Wasm
	}
	engine, err := newEngine(ctx, f.engine, o.attach)
	if err != nil {
		return nil, err
	}
	r := &replayer{
		log:     log,
		engine:  engine,
		modules: recorded.New(guest.Inline(engine), log, other),
		checks:  newModuleChecks(log),
		other:   other,
		options: replay.Options{OtherModule: other != nil, Force: f.force},
		timeout: f.timeout,
	}
	if f.agent != "" {
		if r.work, err = openReplayingAgent(ctx, f.agent, engine); err != nil {
			r.close(ctx)
			return nil, err
		}
	}
	return r, nil
}

func (r *replayer) close(ctx context.Context) {
	if r.work != nil {
		r.work.close()
	}
	r.modules.Close()
	r.engine.Close(ctx)
}

// verdict is what became of one replay. When corrupt or refused is set, replay
// says nothing.
type verdict struct {
	runID   string
	replay  replay.Verdict
	corrupt error    // the log is not valid; nothing was executed
	refused *failure // the run cannot be executed
	erased  bool     // since its tenant was erased
}

func (v verdict) code() int {
	switch {
	case v.corrupt != nil, v.replay.Divergence != nil:
		return exitInvalid
	case v.refused != nil:
		return v.refused.code
	}
	return exitOK
}

// replay checks and replays one run. An error ends the whole command; what is
// wrong with the run is in the verdict.
func (r *replayer) replay(ctx context.Context, runID string) (verdict, error) {
	v := verdict{runID: runID}
	switch _, err := checkRun(ctx, r.log, runID, r.checks); {
	case errors.Is(err, eventlog.ErrSchemaTooNew):
		v.refused = &failure{code: exitRefused, message: corruption(err)}
		return v, ctx.Err()
	case err != nil:
		v.corrupt = err
		return v, ctx.Err()
	}
	events, err := r.log.Read(ctx, runID)
	if err != nil {
		v.corrupt = err
		return v, ctx.Err()
	}
	v.replay, err = r.execute(ctx, events)
	switch {
	case ctx.Err() != nil:
		return v, ctx.Err()
	case err != nil && errors.Is(err, eventlog.ErrLogCorrupt):
		v.corrupt = err
	case errors.Is(err, event.ErrSealed) && erasedIn(ctx, r.log, runID):
		v.refused, v.erased = &failure{code: exitRefused, message: "its tenant was erased, and nobody can read it"}, true
	case err != nil:
		v.refused = explain(err)
	}
	return v, nil
}

// execute executes a run again, for no longer than it may take.
func (r *replayer) execute(ctx context.Context, events []event.Event) (v replay.Verdict, err error) {
	if r.timeout > 0 {
		var cancel context.CancelFunc
		gaveUp := &failure{code: exitFailed, message: fmt.Sprintf("given up after %v, as --timeout says", r.timeout)}
		ctx, cancel = context.WithTimeoutCause(ctx, r.timeout, gaveUp)
		defer cancel()
	}
	lease := r.modules.Lease()
	defer lease.Release()
	if r.work != nil {
		var recorded *agent.Agent
		if recorded, err = r.work.replaying(ctx, events, lease.Resolve); err == nil {
			v, err = replay.RunAgent(ctx, events, recorded, r.options)
		}
	} else {
		v, err = replay.Run(ctx, events, lease.Resolve, r.options)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return v, err
}

// printVerdict prints what became of one replay.
func (a *app) printVerdict(v verdict, f replayFlags) error {
	if f.output == outputJSON {
		return a.writeValue(v.document())
	}
	switch {
	case v.corrupt != nil:
		a.stdout.printf("invalid: %s\n", corruption(v.corrupt))
	case v.refused != nil:
		a.stdout.printf("not replayed: run %s: %s\n", v.runID, v.refused.message)
	case v.replay.Divergence != nil:
		writeDivergence(a.stdout, v.replay.Divergence, v.replay.Events)
	case v.replay.Open:
		a.stdout.printf("identical: %s of an open run\n", plural(v.replay.Events, "event"))
	default:
		a.stdout.printf("identical: %s\n", plural(v.replay.Events, "event"))
	}
	return nil
}

// document is what "replay -o json" prints for each run.
func (v verdict) document() replay.Document {
	doc := v.replay.Document(v.runID)
	switch {
	case v.corrupt != nil:
		doc.Verdict, doc.Error = replay.Invalid, corruption(v.corrupt)
	case v.refused != nil:
		doc.Verdict, doc.Error = replay.NotReplayed, v.refused.message
	}
	return doc
}
