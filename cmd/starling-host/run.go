package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
)

// runFlags are the flags of run. Zero numbers stand for the host's defaults.
type runFlags struct {
	callFlags
	tool    string
	args    []string
	stdin   string
	program bool // its input is that of a program
	with    []string
	dirs    []string
	seal    string
}

// callFlags are those under which tools are called and recorded.
type callFlags struct {
	database     string
	allow        []string
	allowPrivate bool
	policy       string
	trust        string
	limits       sandbox.Limits // without memory and timeout
	memory       uint64
	timeout      time.Duration
	isolation    string
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := subcommand("run TOOL [INPUT]", "run a tool and record what it does", func(cmd *cobra.Command, args []string) error {
		input, program := "{}", cmd.Flags().Changed("arg") || cmd.Flags().Changed("stdin")
		if program && len(args) == 2 {
			return usagef("", "--arg and --stdin are the input of a program and exclude INPUT")
		} else if program {
			text, err := a.readInput(cmd.Context(), f.stdin, sandbox.DefaultLimits().InputBytes)
			if err != nil {
				return err
			}
			if !utf8.Valid(text) {
				return usagef("", "--stdin: the standard input of a program is text in UTF-8")
			}
			doc, err := json.Marshal(map[string]any{"args": append([]string{}, f.args...), "stdin": string(text)})
			if err != nil {
				return err
			}
			f.program, input = true, string(doc)
		} else if len(args) == 2 {
			input = args[1]
		} else if f, ok := a.stdin.(*os.File); ok {
			// A program that starts this one may leave a pipe open and empty, so it is not read unasked.
			if info, err := f.Stat(); err == nil && (info.Mode()&fs.ModeNamedPipe != 0 || info.Mode().IsRegular()) {
				a.hint("standard input is not read; to read the input from it: " + display.Command("starling-host run", args[0]) + " -")
			}
		}
		return a.run(cmd.Context(), args[0], input, f)
	}, f.add, a.outputFlag)
	cmd.Flags().StringVar(&f.tool, "tool", "", "`NAME` of the tool, if the module has several")
	cmd.Flags().StringArrayVar(&f.args, "arg", nil, "an argument of a WASI command, as one `WORD`; may be repeated")
	cmd.Flags().StringVar(&f.stdin, "stdin", "", "the standard input of a WASI command: `TEXT`, @FILE, or - for this program's own")
	dirFlag(cmd, &f.dirs, "the tool")
	cmd.Flags().StringVar(&f.seal, "seal", "", "seal the database afterwards with the key in `KEYFILE`")
	cmd.Flags().StringArrayVar(&f.with, "with", nil, "let the tool call the tools of this `FILE|FOLDER`; may be repeated")
	return cmd
}

func (f *callFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.database, "db", defaultDatabase, "`PATH` of the database, created with mode 0600")
	f.addConditions(cmd)
}

// addConditions adds the flags of calls that are not recorded in a database of the user.
func (f *callFlags) addConditions(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.allow, "allow-host", nil, "let the tool reach `HOST[:PORT]`; may be repeated")
	flags.BoolVar(&f.allowPrivate, "allow-private", false, "also reach loopback, private and other special addresses")
	policyFlag(cmd, &f.policy)
	trustFlag(cmd, &f.trust)
	limits := sandbox.DefaultLimits()
	flags.Var(counted(&f.limits.Fuel, display.FuelUnits(), "N", 0), "fuel",
		"instructions that the call may use, such as 10M or 2G (default "+display.Fuel(limits.Fuel)+")")
	memoryFlag(cmd, &f.memory)
	flags.Var(counted(&f.limits.Effects, display.FuelUnits(), "N", 0), "effects",
		"clock readings, random numbers and requests of a call, such as 10k (default "+display.Digits(limits.Effects)+")")
	flags.Var(counted(&f.limits.OutputBytes, display.SizeUnits(), "SIZE", agentfile.MaxOutput), "output-limit",
		"the largest output of a call, up to "+display.Size(agentfile.MaxOutput)+" (default "+display.Size(limits.OutputBytes)+")")
	flags.DurationVar(&f.timeout, "timeout", time.Duration(limits.TimeoutMs)*time.Millisecond, "wall-clock time of the call, as `DURATION`")
	isolationFlag(cmd, &f.isolation)
}

// memoryFlag adds --memory, in bytes.
func memoryFlag(cmd *cobra.Command, value *uint64) {
	standard := display.Size(uint64(sandbox.DefaultLimits().MemoryPages) * sandbox.PageSize)
	cmd.Flags().Var(counted(value, display.SizeUnits(), "SIZE", sandbox.MaxPages*sandbox.PageSize), "memory",
		"linear memory of a call, such as 64MiB (default "+standard+")")
}

// options are the conditions under which tools run.
func (f *callFlags) options() (o starling.ToolOptions, err error) {
	if f.timeout < time.Millisecond {
		return o, usagef("", "--timeout must be at least 1ms")
	}
	o.Limits = f.limits // zero fields are the host's defaults
	o.Limits.MemoryPages, o.Limits.TimeoutMs = uint32(sandbox.Pages(f.memory)), f.timeout.Milliseconds()
	if f.policy != "" && (len(f.allow) > 0 || f.allowPrivate) {
		return o, usagef("write the hosts into the policy, and check it: "+display.Command("starling-host policy check", f.policy), "--policy and --allow-host exclude each other")
	}
	o.AllowHosts, o.AllowPrivate = f.allow, f.allowPrivate
	o.Policy, err = openPolicy(f.policy)
	return o, err
}

func (a *app) run(ctx context.Context, ref, input string, f runFlags) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	options.Name = f.tool
	if f.program {
		options.Sidecar = []byte("{}")
	}
	key, err := readSealKey(f.seal)
	if err != nil {
		return err
	}
	db, err := a.open(ctx, f.database, f.isolation, f.trust, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	tool, err := db.Load(ctx, ref, options)
	if err != nil {
		return err
	}
	if len(f.with) > 0 {
		others, err := loadAll(ctx, db, f.with, options)
		if err != nil {
			return err
		}
		tool = tool.Calling(others...)
	}
	doc := []byte(input)
	if !f.program {
		doc, err = a.readInput(ctx, input, sandbox.DefaultLimits().InputBytes)
	}
	if err != nil {
		return err
	}
	checked, err := tool.Input(doc)
	if err != nil {
		return err
	}
	if _, err := db.Log(ctx); err != nil { // before a run is announced
		return err
	}
	files, err := giveFolders(ctx, db, f.dirs)
	if err != nil {
		return err
	}
	if tool = tool.In(files); len(f.dirs) > 0 && !tool.FindsFiles() {
		a.warnOfDirs(tool.Name() + " does not look")
	}
	runID := starling.NewRunID()
	a.stderr.Printf("run %s\n", runID)
	run, err := tool.CallAs(a.asking(ctx), runID, checked)
	if run == nil {
		return err
	}
	var unwritten error
	if err == nil {
		run.Changed, unwritten = writeBack(ctx, files, run.ID)
	}
	err = cmp.Or(a.reportRun(tool, run, err, f), unwritten)
	if out, ok := errors.AsType[*failure](err); ok && run.Failure != nil {
		if log, err := db.Log(ctx); err == nil {
			out.details = append(out.details, terminal.Indented(strings.Join(endedIn(ctx, log, runID, nil, nil), "\n"))...)
		}
	}
	if key != nil {
		sealed, failed := db.Seal(context.WithoutCancel(ctx), key)
		if failed != nil {
			return cmp.Or(err, error(&failure{code: exitFailed, message: "the run is recorded, but not sealed: " + starling.PlainError(failed)}))
		}
		a.stderr.Printf("sealed: %s, root %s\n", view.Leaves(sealed.Checkpoint, sealed.Removed), sealed.Checkpoint.Root)
	}
	return err
}

// loadAll loads all tools of the modules that the references name. Two of them do not have
// the same name.
func loadAll(ctx context.Context, db *starling.DB, refs []string, o starling.ToolOptions) (all []*starling.Tool, err error) {
	from := map[string]string{}
	for _, ref := range refs {
		m, err := db.LoadModule(ctx, ref, o)
		if err != nil {
			return nil, err
		}
		for _, t := range m.All(o) {
			if other, taken := from[t.Name()]; taken {
				return nil, usagef("", "--with: %s has a tool %q, and so does %s", ref, t.Name(), other)
			}
			from[t.Name()] = ref
			all = append(all, t)
		}
	}
	return all, nil
}

// open opens a database to record runs in. Trust is the path of a trust file, or empty. Receipts, unless
// it is nil, signs receipts.
func (a *app) open(ctx context.Context, where, isolation, trust string, receipts *receipt.Issuer) (*starling.DB, error) {
	outliveReaders()
	finder, err := finderOf(trust)
	if err != nil {
		return nil, err
	}
	return starling.Open(ctx, where, starling.Options{
		AppVersion: agent.Version(),
		Finder:     finder,
		Receipts:   receipts,
		Engine:     starling.EngineOptions{Processes: isolation == isolationProcess, Warn: a.warn},
	})
}

// warn prints a warning for the person in front of the machine.
func (a *app) warn(text string) {
	a.stderr.Printf("%s %s\n", terminal.Middle.Of("warning:"), text)
}

// readInput returns the document of an INPUT argument. limit bounds its bytes, including white
// space.
func (a *app) readInput(ctx context.Context, input string, limit uint64) ([]byte, error) {
	return await.Do(ctx, func() ([]byte, error) { return a.readWhole(input, limit) })
}

func (a *app) readWhole(input string, limit uint64) ([]byte, error) {
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
		if info, err := os.Stat(input); err == nil && info.Mode().IsRegular() {
			return nil, usagef("pass the content of the file: "+display.Command("starling-host run TOOL", "@"+input), "the input is the name of a file, not JSON: %s", input)
		}
		from, name = strings.NewReader(input), "the input"
	}
	doc, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	if err != nil {
		return nil, &failure{code: exitUsage, message: err.Error()}
	}
	if uint64(len(doc)) > limit {
		return nil, usagef("", "%s is larger than %s", name, display.Size(limit))
	}
	return doc, nil
}
