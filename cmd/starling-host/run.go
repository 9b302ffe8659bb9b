package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/host/wasm"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/step"
)

const runHelp = `Run one tool and record the run.

TOOL is a .wasm file, or a folder with a tool, which is built first: Go files, or a
tool.ts or tool.js, which the command starling-build of guest-sdk/js builds. INPUT is
a JSON document, @FILE to read it from a file, or - to read it from standard
input; without it the input is {}.

The input is checked against the tool's schema before anything is recorded. The
tool's result is printed on standard output as canonical JSON, and nothing else
is. The run's id, what the tool logged, what it used and how to replay the run
are on standard error.

The tool reaches the hosts that --allow-host names and no other. Addresses that
are not public also need --allow-private. With --policy a file decides instead, as
"starling-host policy" says: about requests, arguments, limits, and where secrets go.
The value of a secret NAME is in the environment variable STARLING_SECRET_NAME.

With --isolation process the tool runs in a process of its own, within bounds on
what that may take of the machine. Whatever becomes of it, this program goes on.
The run is the same and replays the same.

Ctrl-C cancels the call, which is recorded; a second one ends the program.`

const runExample = `  starling-host run dice.wasm '{"rolls":5}'
  echo '{"rolls":5}' | starling-host run dice.wasm - -o json
  starling-host run dice.wasm --fuel 100M --memory 32MiB --timeout 10s`

// runFlags are the flags of run. Zero numbers stand for the host's defaults.
type runFlags struct {
	tool         string
	database     string
	allow        []string
	allowPrivate bool
	policy       string
	fuel         uint64
	memory       uint64
	effects      uint64
	timeout      time.Duration
	isolation    string
	output       string
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:     "run TOOL [INPUT]",
		Short:   "run a tool and record what it does",
		Long:    runHelp,
		Example: runExample,
		GroupID: groupRun,
		Args:    arguments(1, "TOOL", "INPUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			input := "{}"
			if len(args) == 2 {
				input = args[1]
			}
			return a.run(cmd.Context(), args[0], input, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.tool, "tool", "", "`NAME` of the tool, when the module holds several")
	flags.StringVar(&f.database, "db", defaultDatabase, "`PATH` of the database, created with mode 0600")
	flags.StringArrayVar(&f.allow, "allow-host", nil, "let the tool reach `HOST[:PORT]`; may be repeated")
	flags.BoolVar(&f.allowPrivate, "allow-private", false, "also reach loopback, private and other special addresses")
	policyFlag(cmd, &f.policy)
	limits := sandbox.DefaultLimits()
	flags.Var(countFlag{&f.fuel, fuelUnits, "N", 0}, "fuel",
		"instructions that the call may use, such as 10M or 2G (default "+formatFuel(limits.Fuel)+")")
	memoryFlag(cmd, &f.memory)
	flags.Var(countFlag{&f.effects, fuelUnits, "N", 0}, "effects",
		"readings of the clock, random numbers and requests that the call may have, such as 10k (default "+grouped(limits.Effects)+")")
	flags.DurationVar(&f.timeout, "timeout", time.Duration(limits.TimeoutMs)*time.Millisecond, "wall-clock time of the call, as `DURATION`")
	isolationFlag(cmd, &f.isolation)
	outputFlag(cmd, &f.output)
	return cmd
}

// memoryFlag adds --memory, in bytes.
func memoryFlag(cmd *cobra.Command, value *uint64) {
	standard := formatSize(uint64(sandbox.DefaultLimits().MemoryPages) * wasm.PageSize)
	cmd.Flags().Var(countFlag{value, sizeUnits, "SIZE", wasm.MaxPages * wasm.PageSize}, "memory",
		"linear memory of a call, such as 64MiB (default "+standard+")")
}

// limits returns what the flags ask for; zero fields are the host's defaults.
func (f *runFlags) limits() (sandbox.Limits, error) {
	if f.timeout < time.Millisecond {
		return sandbox.Limits{}, usagef("", "--timeout must be at least 1ms")
	}
	return sandbox.Limits{
		Fuel:        f.fuel,
		MemoryPages: uint32(wasm.Pages(f.memory)),
		TimeoutMs:   f.timeout.Milliseconds(),
		Effects:     f.effects,
	}, nil
}

// options turns the flags into the conditions under which the tool runs.
func (f *runFlags) options() (guest.Options, error) {
	limits, err := f.limits()
	if err != nil {
		return guest.Options{}, err
	}
	if f.policy != "" && (len(f.allow) > 0 || f.allowPrivate) {
		return guest.Options{}, usagef("write the hosts into the policy", "--policy and --allow-host exclude each other")
	}
	door, err := openEgress(f.allow, f.allowPrivate)
	if err != nil {
		return guest.Options{}, usagef("", "--allow-host %s", err)
	}
	return guest.Options{Limits: limits, Egress: door, Allow: f.allow}, nil
}

// openEgress returns a client that reaches the hosts and no others; without any it
// reaches what a policy allows, or nothing. The error begins with the one that is no
// rule.
func openEgress(hosts []string, private bool) (*egress.Client, error) {
	if len(hosts) == 0 {
		return egress.New(egress.Config{}), nil
	}
	rules := egress.Rules{Private: private}
	for _, host := range hosts {
		rule, err := egress.ParseRule(host)
		if err != nil {
			return nil, fmt.Errorf("%q: %s", host, plainError(err))
		}
		rules.Allow = append(rules.Allow, rule)
	}
	return egress.New(egress.Config{Authorize: rules}), nil
}

func (a *app) run(ctx context.Context, ref, input string, f runFlags) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	rules, err := openPolicy(f.policy)
	if err != nil {
		return err
	}
	options.Limits = narrowed(rules, options.Limits)
	module, err := load(ctx, ref, f.isolation, options)
	if err != nil {
		return err
	}
	defer module.close(context.WithoutCancel(ctx))
	tool, err := module.choose(f.tool)
	if err != nil {
		return err
	}
	doc, err := a.readInput(input, sandbox.DefaultLimits().InputBytes)
	if err != nil {
		return err
	}
	if err := checkInput(tool, doc); err != nil {
		return err
	}
	return a.record(ctx, module, tool, rules, doc, f)
}

// checkInput returns what is wrong with an input, before there is a run.
func checkInput(t *guest.Tool, doc []byte) error {
	if err := t.CheckInput(doc); err != nil {
		return err
	}
	clean, err := step.CanonicalArgs(doc)
	if err != nil {
		return err
	}
	if why := t.TooLarge(clean); why != "" {
		return usagef("", "%s", why)
	}
	return nil
}

// record runs the tool and prints what came of it. The module is in the
// database before the run begins, so a run that is there can be replayed from
// the database alone, however it ended.
func (a *app) record(ctx context.Context, module *loaded, tool *guest.Tool, rules *policy.Run, input []byte, f runFlags) error {
	log, err := openForRuns(ctx, f.database)
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := log.PutModule(ctx, module.source.Wasm); err != nil {
		return err
	}
	runID := event.NewID()
	a.stderr.printf("run %s\n", runID)
	var ended ending
	direct := agent.Direct{Log: log, Tool: ended.of(tool), AppVersion: programVersion()}
	if rules != nil {
		direct.Tool = rules.Guard(ended.of(tool.Under(rules)))
	}
	result, err := direct.RunWithID(ctx, runID, input)
	if err != nil {
		return err
	}
	// The run is over, also for a context that was cancelled to end it.
	ended.denied = lastDenied(context.WithoutCancel(ctx), log, runID)
	ended.unnamed = rules != nil && !rules.NamesTool(tool.Name())
	return a.reportRun(tool, result, ended, f)
}

// readInput returns the document that an INPUT argument stands for, of at most so many
// bytes with its white space.
func (a *app) readInput(input string, limit uint64) ([]byte, error) {
	var from io.Reader
	name, isFile := strings.CutPrefix(input, "@")
	switch {
	case input == "-":
		from, name = a.stdin, "standard input"
	case isFile:
		f, err := os.Open(name)
		if err != nil {
			return nil, &failure{code: exitUsage, message: err.Error()}
		}
		defer f.Close()
		from = f
	default:
		from, name = strings.NewReader(input), "the input"
	}
	doc, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err != nil {
		return nil, &failure{code: exitUsage, message: err.Error()}
	}
	if uint64(len(doc)) > limit {
		return nil, usagef("", "%s is larger than %s", name, formatSize(limit))
	}
	return doc, nil
}
