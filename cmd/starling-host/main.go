// Command starling-host runs an agent's untrusted WebAssembly tools, records their host
// calls, and proves afterwards what they did.
//
// Each subcommand has a file, with its flags and its output, and one in the folder help, with its
// help. The packages below decide everything else.
//
//	run tools           run, agent, demo, tool, check, policy, ask
//	connect assistants  mcp, mcpserver, mcpconfig, over package gateway
//	prove what they did replay, validate, seal, verify, bundle
//	read a log          runs, show, inspect, report
//	host tenants        serve, tenant, tenantlimits, tenantpolicy, secret, masterkey, queue, observe
//	keep a log in order archive, import, backup, prune, partitions, migrate, doctor
//	used by all         main, exit, units, database, version
//
// Three rules hold for all subcommands:
//
//   - Standard output has results and nothing else; everything else, from the
//     run's id to errors and hints, is on standard error.
//   - Text that comes from a tool or a database is hostile. All output goes through a
//     printer (internal/terminal), which escapes what a terminal obeys.
//   - The exit code is the outcome (exit.go), and documents printed with
//     "-o json" are a contract (docs/cli-json.md).
package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
)

func main() {
	guest.WorkerMain()
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Main runs the command with these arguments and returns its exit code.
//
// The first SIGINT or SIGTERM cancels the work in progress, and the end of a run
// is recorded. Afterwards signals have their usual effect again, so that a second
// one ends the process at once; then the run stays open in the log.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	return (&app{stdin: stdin, stdout: terminal.New(stdout), stderr: terminal.New(stderr)}).execute(ctx, args)
}

// execute runs the command with these arguments until it ends or ctx does, and returns
// its exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.root()
	if len(args) > 0 && args[0] == "runs" {
		args = excludedLast(args)
	}
	root.SetArgs(doubleDashes(root, args))
	cmd, err := root.ExecuteContextC(ctx)
	if a.stdout.Err() != nil {
		err = &failure{code: exitFailed, message: "standard output: " + a.stdout.Err().Error()}
	}
	if err != nil {
		f := explain(err)
		if f.hint = withArguments(cmd, f.hint); f.needs != "" {
			f.hint = again(cmd, f.needs)
		}
		return f.report(a.stderr)
	}
	return exitOK
}

// maxInputOfHint is the longest input of a tool, in bytes, that a hint repeats.
const maxInputOfHint = 200

// withArguments returns a hint with the names of arguments in its command, such as DB, replaced by
// the arguments of the failed command, and the word FLAGS by its flags.
func withArguments(cmd *cobra.Command, hint string) string {
	text, command, found := strings.Cut(hint, "starling-host ")
	if !found {
		return hint
	}
	given := map[string]string{}
	if f := cmd.Flags().Lookup("db"); f != nil && cmd.Name() != "serve" { // which reads it from its file, too
		given["DB"] = f.Value.String()
	}
	args, _ := withDatabase(cmd, cmd.Flags().Args())
	for i, name := range operands(cmd) {
		name = strings.Trim(name, "[]")
		if i < len(args) && (name == "DB" || name == "TOOL" || name == "RUN" || name == "INPUT" && len(args[i]) <= maxInputOfHint) {
			given[name] = args[i]
		}
	}
	var words []string
	for _, word := range strings.Split(command, " ") {
		switch value, ok := given[word]; {
		case word == "FLAGS":
			words = append(words, givenFlags(cmd, "")...)
		case word == "INPUT" && len(args) < 2 && slices.Contains(operands(cmd), "[INPUT]"): // it was left out
		case ok && !strings.HasPrefix(value, "-"):
			words = append(words, display.ShellWord(named(value)))
		default:
			words = append(words, word)
		}
	}
	return text + "starling-host " + strings.Join(words, " ")
}

// again is the command that has failed, with one more flag, or with another value for it.
func again(cmd *cobra.Command, flag string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), " ")
	words := append(append([]string{cmd.CommandPath()}, givenFlags(cmd, name)...), flag)
	return display.Command(strings.Join(words, " "), lists.Map(cmd.Flags().Args(), named)...)
}

// givenFlags returns the flags of a command, as words for a shell, except the named one.
func givenFlags(cmd *cobra.Command, without string) (words []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == without {
			return
		}
		for _, value := range valuesOf(f) {
			words = append(words, "--"+f.Name)
			if f.NoOptDefVal == "" {
				words = append(words, display.ShellWord(named(value)))
			}
		}
	})
	return words
}

// valuesOf returns the values of a flag, which is several if it may be repeated.
func valuesOf(f *pflag.Flag) []string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	return []string{f.Value.String()}
}

// doubleDashes writes out flags that have one dash before their whole name, as in
// -dry-run: the programs of the Starling runtime take them in that form.
func doubleDashes(root *cobra.Command, args []string) []string {
	names := make(map[string]bool)
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names[f.Name] = len(f.Name) > 1 })
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "="); strings.HasPrefix(arg, "-") && names[name] {
			args[i] = "-" + arg
		}
	}
	return args
}

// app is the state that the subcommands share.
type app struct {
	stdin  io.Reader
	stdout *terminal.Printer
	stderr *terminal.Printer
	asJSON bool // standard output is for programs
}

// emit prints the result of a command: as a document for programs, or as text.
func (a *app) emit(document any, text func()) error {
	if a.asJSON {
		return a.writeValue(document)
	}
	text()
	return nil
}

// table prints rows below their titles, see [terminal.Columns]. Without rows it prints nothing.
func (a *app) table(rows [][]string, titles ...string) {
	if len(rows) > 0 {
		terminal.Table(a.stdout, rows, nil, terminal.Columns(titles...)...)
	}
}

// writeDocument prints a JSON document and a line break.
func (a *app) writeDocument(doc []byte) error {
	_, err := a.stdout.Exact().Write(append(bytes.Clone(doc), '\n'))
	return err
}

// writeValue prints v as a JSON document on one line.
func (a *app) writeValue(v any) error {
	enc := json.NewEncoder(a.stdout.Exact())
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// outliveReaders makes a write to a closed pipe at standard output or error fail, instead of ending
// the process: a command that records continues, as in "agent run ... 2>&1 | head". Ignoring the
// signal would pass that on to MCP servers; a signal that is caught has its usual effect there.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// helpTexts has a file for each command, such as help/agent-run.txt: what the command does and, behind
// the line "Examples:", how it is called.
//
//go:embed help
var helpTexts embed.FS

// describe gives a command its help and its examples. Those of cobra have theirs.
func describe(cmd *cobra.Command) {
	name := strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), "starling-host "), " ", "-")
	if file, err := helpTexts.ReadFile("help/" + name + ".txt"); err == nil {
		text, examples, _ := strings.Cut(string(file), "\n\nExamples:\n")
		cmd.Long, cmd.Example = strings.Replace(text, "FIELDS", searchFields(), 1), strings.TrimSuffix(examples, "\n")
	}
}

// help prints the help of a command. That of the program fits a terminal of 24 lines, and ends with
// the groups of the commands that it does not list itself.
func help(root *cobra.Command, ofCommand func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		describe(cmd)
		if cmd != root {
			ofCommand(cmd, args)
			return
		}
		var more strings.Builder
		for _, group := range root.Groups() {
			var names []string
			for _, sub := range root.Commands() {
				if sub.GroupID == group.ID && !strings.Contains(cmd.Long, "\n  "+sub.Name()+" ") {
					names = append(names, sub.Name())
				}
			}
			fmt.Fprintf(&more, "  %-8s  %s\n", group.Title, strings.Join(names, ", "))
		}
		fmt.Fprint(root.OutOrStdout(), strings.Replace(cmd.Long, "COMMANDS\n", more.String(), 1))
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "starling-host",
		Short:   "run untrusted tools in a sandbox and prove what they did",
		Version: agent.Version(),

		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownSubcommand,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if a.stderr.Terminal && !serves[cmd.Name()] {
				cmd.SetContext(guest.WithProgress(cmd.Context(), a.stderr.Doing))
			}
			return noEmptyFlag(cmd, args)
		},
		RunE: showHelp,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout.Lines())
	root.SetErr(a.stderr.Lines())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := cmd.CommandPath() + " --help"
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			var known []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
			if near := display.Nearest(unknown.GetSpecifiedName(), known); near != "" {
				hint = "did you mean --" + near + "?"
			} else if cmd.Name() == "runs" {
				hint = "a word to exclude comes after --, as in: starling-host runs -- -timeout"
			}
		}
		return usagef(hint, "%v", err)
	})
	root.SetVersionTemplate("starling-host {{.Version}}\n")
	root.SetHelpFunc(help(root, root.HelpFunc()))
	wrapped := fmt.Sprintf("Flags.FlagUsagesWrapped %d ", a.stdout.Width())
	root.SetUsageTemplate(strings.NewReplacer("Flags.FlagUsages ", wrapped, " about a command", "").Replace(root.UsageTemplate()))
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	add := func(group string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: group, Title: group})
		for _, cmd := range commands {
			cmd.GroupID = group
			complete(cmd)
		}
		root.AddCommand(commands...)
	}
	add("tools", a.runCommand(), a.agentCommand(), a.demoCommand(), a.toolCommand(), a.policyCommand())
	add("proof", a.replayCommand(), a.validateCommand(), a.sealCommand(), a.verifyCommand(), a.proveCommand(), a.receiptCommand(), a.bundleCommand())
	add("log", a.runsCommand(), a.showCommand(), a.debugCommand(), a.workspaceCommand(), a.exportCommand(), a.inspectCommand(), a.mcpCommand())
	add("tenants", a.serveCommand(), a.readyCommand(), a.tenantCommand(), a.secretCommand(), a.queueCommand(), a.hostsCommand())
	add("upkeep", a.pruneCommand(), a.partitionsCommand(), a.archiveCommand(), a.importCommand(), a.backupCommand(), a.restoreCommand(), a.forkCommand())
	add("other", a.migrateCommand(), a.doctorCommand(), a.versionCommand())
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "print the exit codes"})
	return root
}

// complete derives the number and the completion of arguments from the usage of a command and its
// subcommands: arguments in brackets are optional, and DB and RUN are completed.
func complete(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = arguments
	}
	names := operands(cmd)
	if len(names) > 1 && names[0] == "[DB]" && strings.HasPrefix(names[1], "RUN") && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = completing(runWords)
	}
	if slices.Contains(names, "[DB]") && !ownDatabase[cmd.Name()] {
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			args, left := withDatabase(cmd, args)
			if left && isNew(defaultDatabase) && cmd.Name() != "import" { // which makes it
				args[slices.Index(args, defaultDatabase)] = "FOLDER/" + defaultDatabase
				return usagef("go to the folder of the database, or name it: "+display.Command(cmd.CommandPath(), args...), "there is no %s here", defaultDatabase)
			}
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
}

// serves are the commands whose standard error is a log while they load modules.
var serves = map[string]bool{"serve": true, "inspect": true, "mcp": true}

// subcommand is a command that runs something, with the flags that add adds.
func subcommand(use, short string, run func(*cobra.Command, []string) error, add ...func(*cobra.Command)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: run}
	for _, flag := range add {
		flag(cmd)
	}
	return cmd
}

// parent is a command that only has subcommands.
func parent(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: knownSubcommand, RunE: showHelp}
	cmd.AddCommand(subcommands...)
	return cmd
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// knownSubcommand refuses the arguments of a command that only has subcommands.
func knownSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help"
	if near := display.Nearest(args[0], lists.Map(cmd.Commands(), (*cobra.Command).Name)); near != "" {
		hint = "did you mean " + cmd.CommandPath() + " " + near
	}
	return usagef(hint, "unknown command %q", args[0])
}

// noEmptyFlag refuses a flag that is given without a value, as by a script whose variable
// is not set: prune --namespace "$TENANT" would remove the runs of all tenants. The standard input
// of a program may be empty.
func noEmptyFlag(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "stdin" {
			err = usagef("omit it for the default", "--%s has no value", f.Name)
		}
	})
	return err
}

// operands returns the names of the arguments of a command, given its flags. Those in brackets are
// optional.
func operands(cmd *cobra.Command) []string {
	names := strings.Fields(cmd.Use)[1:]
	on := func(name string) bool { f := cmd.Flags().Lookup(name); return f != nil && f.Value.String() == "true" }
	switch {
	case cmd.Name() == "replay" && on("all"): // of RUN
		return names[:1]
	case cmd.Name() == "archive" && on("check"): // of FILE alone
		return names[1:]
	case cmd.Name() == "receipt" && on("pem"): // which reads no database
		return nil
	}
	return names
}

// arguments checks the number of a command's arguments against their names.
func arguments(cmd *cobra.Command, args []string) error {
	names, hint := operands(cmd), cmd.CommandPath()+" --help"
	must := required(names)
	_, left := withDatabase(cmd, args)
	switch {
	case len(args) < len(must):
		return usagef(hint, "%s: missing argument %s", cmd.Name(), must[len(args)])
	case len(args) > len(names):
		return usagef(hint, "%s: unexpected argument %q", cmd.Name(), args[len(names)])
	case left && len(args) > 0 && isDatabase(args[0]): // so it is the other argument that was left out
		missing := must[len(args)-1]
		if missing == "RUN" {
			hint = display.Command(cmd.CommandPath(), named(args[0]), starling.LastRun)
		}
		return usagef(hint, "%s: missing argument %s", cmd.Name(), missing)
	}
	return nil
}

// required returns the names of arguments that must be given.
func required(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasPrefix(name, "[") })
}
