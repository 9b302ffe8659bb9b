package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/toolcase"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
)

type toolTestFlags struct {
	callFlags
	tool   string // as the user names it
	record bool
	from   string
	with   []string
	read   readFlags
}

func (a *app) toolTestCommand() *cobra.Command {
	var f toolTestFlags
	cmd := subcommand("test TOOL [CASE...]", "run the cases of a tool", func(cmd *cobra.Command, args []string) error {
		if f.record && f.from != "" {
			return usagef("", "test: --record and --from exclude each other")
		}
		if !f.record && (f.policy != "" || len(f.allow) > 0 || f.allowPrivate || len(f.with) > 0) {
			return usagef("", "test: a case needs no network and no other tools: --policy, --allow-host, --allow-private and --with are for --record")
		}
		f.tool = args[0]
		return a.toolTest(cmd.Context(), args[1:], f)
	}, f.addConditions, a.outputFlag)
	cmd.Args = cobra.MinimumNArgs(1)
	cmd.Flags().BoolVar(&f.record, "record", false, "make real calls, and write what they did into the cases")
	cmd.Flags().StringVar(&f.from, "from", "", "make cases of the runs of a `DB`: of those named after TOOL, or of all")
	cmd.Flags().StringArrayVar(&f.with, "with", nil, "let the tool call the tools of this `FILE|FOLDER` with --record; may be repeated")
	f.read.add(cmd)
	return cmd
}

func (a *app) toolTest(ctx context.Context, names []string, f toolTestFlags) error {
	t, err := newTrial(f.callFlags)
	if err != nil {
		return err
	}
	var end func()
	if t.DB, end, err = a.scratch(ctx, f.callFlags); err != nil {
		return err
	}
	defer end()
	if t.Module, err = t.DB.LoadModule(ctx, f.tool, t.Options); err != nil {
		return err
	}
	if f.from != "" {
		return a.casesFrom(ctx, t, names, f)
	}
	cases, err := toolcase.Load(f.tool, names...)
	if err != nil {
		return err
	}
	if len(cases) == 0 {
		return usagef("make one of a run: starling-host run "+display.ShellWord(f.tool)+" INPUT && starling-host tool test "+display.ShellWord(f.tool)+" --from starling.db @last",
			"test: there are no cases in %s", filepath.Join(toolcase.FolderOf(f.tool), toolcase.Folder))
	}
	failures := 0
	for _, c := range cases {
		if f.record {
			if err := a.recordCase(ctx, t, c, f); err != nil {
				return err
			}
			continue
		}
		v, err := c.Run(ctx, t)
		if err != nil {
			return err
		}
		if !v.Passed {
			failures++
		}
		if err := a.printCase(v); err != nil {
			return err
		}
	}
	if failures > 0 && !a.asJSON {
		a.stdout.Printf("%d of %s failed\n", failures, display.Plural(len(cases), "case"))
		a.hint("to accept what the tool does now: " + display.Command("starling-host tool test --record", append([]string{f.tool}, names...)...))
	}
	return silent(min(failures, 1) * exitFailed)
}

// newTrial returns a trial in which failures read as they are printed, without hint.
func newTrial(f callFlags) (t toolcase.Trial, err error) {
	t.Text = func(t *starling.Tool, err error) string {
		f := explain(err)
		if call, ok := errors.AsType[*starling.CallError](err); ok {
			f = failed(t, call.Run.Failure)
		}
		return strings.Join(append([]string{display.Printable(display.OneLine(f.message))}, f.details...), "\n")
	}
	t.Options, err = f.options()
	return t, err
}

// scratch opens a database that ends with the command.
func (a *app) scratch(ctx context.Context, f callFlags) (db *starling.DB, remove func(), err error) {
	dir, err := os.MkdirTemp("", "starling-host-tool")
	if err != nil {
		return nil, nil, err
	}
	if db, err = a.open(ctx, filepath.Join(dir, defaultDatabase), f.isolation, f.trust, nil); err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return db, func() { db.Close(); os.RemoveAll(dir) }, nil
}

func (a *app) printCase(v toolcase.Verdict) error {
	return a.emit(v, func() {
		word := terminal.Good.Of("pass")
		if !v.Passed {
			word = terminal.Bad.Of("FAIL")
		}
		used := ""
		if v.Fuel > 0 {
			used = "  fuel " + display.Digits(v.Fuel) + ", " + display.Plural(v.Effects, "effect")
		}
		a.stdout.Printf("%s  %s%s\n", word, v.Case, used)
		for _, p := range v.Problems {
			a.stdout.Printf("      %s\n", p.What)
			for _, line := range p.Diff {
				look := map[byte]terminal.Style{'-': terminal.Bad, '+': terminal.Good}[line[0]]
				a.stdout.Printf("        %s\n", look.Of(line))
			}
		}
	})
}

// recordCase makes the call of a case for real, and writes down what it did.
func (a *app) recordCase(ctx context.Context, t toolcase.Trial, c *toolcase.Case, f toolTestFlags) error {
	others, err := loadAll(ctx, t.DB, f.with, t.Options)
	if err != nil {
		return err
	}
	err = t.Record(ctx, c, others)
	why, ok := errors.AsType[*toolcase.UnrecordedError](err)
	if !ok {
		return cmp.Or(err, a.writeCase(c))
	}
	out := &failure{code: exitRefused, message: c.Path + ": " + why.Reason, details: why.Refused}
	switch {
	case why.Refused != nil:
		out.hint = "correct input.json of the case, or, if the case is about this error, write it below: -- error.txt --"
	case why.Tool:
		out.hint = "let it call the tools of a file: " + display.Command("starling-host tool test --record --with FILE", f.tool, c.Name)
	case why.Host != "":
		out.hint = "allow it: " + display.Command("starling-host tool test --record"+allowFlags(why.Host, f.callFlags), f.tool, c.Name)
	default:
		out.code = exitFailed
	}
	return out
}

// casesFrom writes cases of recorded calls.
func (a *app) casesFrom(ctx context.Context, t toolcase.Trial, runs []string, f toolTestFlags) error {
	log, err := f.read.open(ctx, f.from)
	if err != nil {
		return err
	}
	defer log.Close()
	db := starling.Over(log, starling.Options{})
	for i := range runs {
		if runs[i], err = db.Find(ctx, runs[i]); err != nil {
			return err
		}
	}
	if len(runs) == 0 {
		if runs, err = db.RunIDs(ctx); err != nil {
			return unreadable(ctx, err)
		}
	}
	written := 0
	err = t.Cases(ctx, db, runs, f.tool, func(c *toolcase.Case) error {
		written++
		return a.writeCase(c)
	}, a.warn)
	if err == nil && written == 0 {
		err = usagef("list the runs with: starling-host runs "+display.ShellWord(named(f.from)), "test: no case was made: none of the runs has a call of this tool that can be repeated")
	}
	return err
}

// writtenDocument is the output of "tool test --record -o json" for each case.
type writtenDocument struct {
	Case    string `json:"case"`
	Path    string `json:"path"`
	Changed bool   `json:"changed"`
}

// writeCase writes a case to its file.
func (a *app) writeCase(c *toolcase.Case) error {
	changed, err := c.Write()
	if err != nil {
		return &failure{code: exitFailed, message: starling.PlainError(err)}
	}
	return a.emit(writtenDocument{c.Name, c.Path, changed}, func() {
		word := map[bool]string{true: "written", false: "unchanged"}[changed]
		a.stdout.Printf("%s  %s, %s\n", word, c.Path, display.Plural(len(c.Effects), "effect"))
	})
}
