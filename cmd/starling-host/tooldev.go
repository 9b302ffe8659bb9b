package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/toolcase"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
)

type toolDevFlags struct {
	callFlags
	tool, caseName string
}

func (a *app) toolDevCommand() *cobra.Command {
	var f toolDevFlags
	cmd := subcommand("dev TOOL [INPUT]", "build and run a tool whenever it changes", func(cmd *cobra.Command, args []string) error {
		d := &developing{app: a, f: f, ref: args[0], hint: func(hint string) string { return withArguments(cmd, hint) }}
		if len(args) == 2 {
			d.input = args[1]
		}
		return d.run(cmd.Context())
	}, f.addConditions)
	cmd.Flags().StringVar(&f.tool, "tool", "", "`NAME` of the tool, if the module has several")
	cmd.Flags().StringVar(&f.caseName, "case", "", "run with the input of the case `NAME`")
	cmd.Flags().StringVar(&f.database, "db", "", "record the runs in the database `PATH` (default one that is removed at the end)")
	return cmd
}

// developing is the state of tool dev.
type developing struct {
	*app
	f     toolDevFlags
	ref   string
	input string // "" for that of a case
	hint  func(string) string

	db     *starling.DB
	output string // of the last run that had one, for reading
	fuel   uint64 // of the last run
}

// run repeats until ctx ends.
func (d *developing) run(ctx context.Context) (err error) {
	if d.f.database != "" {
		if d.db, err = d.open(ctx, d.f.database, d.f.isolation, d.f.trust, nil); err != nil {
			return err
		}
		defer d.db.Close()
	} else {
		var remove func()
		if d.db, remove, err = d.scratch(ctx, d.f.callFlags); err != nil {
			return err
		}
		defer remove()
	}
	if _, err := d.f.options(); err != nil {
		return err
	}
	if _, err := os.Stat(d.ref); err != nil {
		return usagef("name the folder or the file that you change", "dev: %s", starling.PlainError(err))
	}
	defer func() {
		if d.stdout.Terminal {
			d.stdout.Printf("\n") // behind the ^C
		}
	}()
	for ctx.Err() == nil {
		before := toolcase.Stamp(d.ref)
		err := d.once(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			f := explain(err)
			f.hint = d.hint(strings.Replace(f.hint, "starling-host run TOOL", "starling-host tool dev TOOL", 1))
			f.report(d.stdout)
		}
		d.stdout.Printf("%s\n\n", terminal.Faint.Of("watching "+d.ref+"; Ctrl-C ends"))
		if d.stdout.Err() != nil {
			return nil // it is reported
		}
		toolcase.Await(ctx, d.ref, before)
	}
	return nil
}

// once builds the tool, runs it, and prints the screen.
func (d *developing) once(ctx context.Context) error {
	began := time.Now()
	trial, err := newTrial(d.f.callFlags)
	if err != nil {
		return err
	}
	trial.Module, err = d.db.LoadModule(ctx, d.ref, trial.Options)
	if d.stdout.Terminal {
		fmt.Fprint(d.stdout.Raw(), "\x1b[H\x1b[2J")
	}
	state := "ready in"
	if err != nil {
		state = "failed after"
	}
	d.stdout.Printf("%s  %s, %s %s\n", terminal.Strong.Of(filepath.Base(d.ref)), time.Now().Format(time.TimeOnly), state, display.Duration(time.Since(began)))
	if err != nil {
		return err
	}
	defer trial.Module.Close()
	cases, err := toolcase.Load(d.ref)
	if err != nil {
		return err
	}
	input, name, err := d.chosen(ctx, cases)
	if err != nil {
		return err
	}
	trial.Options.Name = cmp.Or(d.f.tool, name)
	t, err := trial.Module.Choose(trial.Options)
	if err != nil {
		return err
	}
	doc, err := t.Input(input)
	if err != nil {
		return err
	}
	d.printLines("input", []string{display.Printable(string(doc.JSON))})
	run, failure := t.CallAs(ctx, starling.NewRunID(), doc)
	if run == nil || ctx.Err() != nil {
		return failure
	}
	if err := d.printRun(ctx, run); err != nil {
		return err
	}
	if called, ok := errors.AsType[*starling.CallError](failure); ok {
		failure = outcome(t, called, runFlags{callFlags: d.f.callFlags})
	}
	return errors.Join(failure, d.printCases(ctx, cases, trial))
}

// chosen returns the input, and the tool that a case names.
func (d *developing) chosen(ctx context.Context, cases []*toolcase.Case) (input []byte, tool string, err error) {
	if d.input != "" {
		input, err = d.readInput(ctx, d.input, 1<<20)
		return input, "", err
	}
	i := slices.IndexFunc(cases, func(c *toolcase.Case) bool { return d.f.caseName == "" || c.Name == d.f.caseName })
	switch {
	case i >= 0:
		return cases[i].Input, cases[i].Tool, nil
	case d.f.caseName != "":
		return nil, "", usagef("", "dev: there is no case %q", d.f.caseName)
	}
	return []byte("{}"), "", nil
}

// printRun prints what a run did, and how that differs from the last one.
func (d *developing) printRun(ctx context.Context, run *starling.Run) error {
	d.printLines("log", terminal.PrintableLines(run.Log))
	if run.Failure == nil {
		now := toolcase.Pretty(run.Result)
		d.printLines("output", strings.Split(now, "\n"))
		if d.output != "" {
			d.printLines("change", display.LineDifference(d.output, now))
		}
		d.output = now
	}
	change := ""
	if d.fuel != 0 && d.fuel != run.Meter.Fuel {
		change = fmt.Sprintf(", %+.1f%% (was %s)", (float64(run.Meter.Fuel)/float64(d.fuel)-1)*100, display.Digits(d.fuel))
	}
	d.fuel = run.Meter.Fuel
	d.stdout.Printf("fuel     %s%s\n", display.Digits(d.fuel), change)
	log, err := d.db.Log(ctx)
	if err != nil {
		return err
	}
	events, err := log.Read(ctx, run.ID)
	if err != nil {
		return err
	}
	var effects []string
	for _, ev := range events {
		if ev.Kind == event.KindSideEffectRecorded {
			effects = append(effects, event.Line(ev, 150))
		}
	}
	d.printLines("effects", append([]string{fmt.Sprint(run.Meter.Effects)}, effects...))
	v, err := d.db.Replay(ctx, run.ID)
	if err != nil {
		return err
	}
	word, rest, _ := strings.Cut(v.String(), ":")
	d.stdout.Printf("replay   %s:%s\n", terminal.StatusStyle(word).Of(word), rest)
	return nil
}

// printLines prints lines beside a name: on a terminal as much as leaves room for the other parts of
// the screen.
func (d *developing) printLines(name string, lines []string) {
	most, width := 40, 200
	if w, h := d.stdout.Size(); w > 0 {
		most, width = max((h-14)/2, 4), max(w-10, 20)
	}
	change := name == "change"
	if change && len(lines) > most { // what is the same around the changes has no room
		lines = slices.DeleteFunc(lines, func(line string) bool { return line[0] != '-' && line[0] != '+' })
	}
	for _, line := range lines[:min(len(lines), most)] {
		look := terminal.Plain
		if change {
			look = map[byte]terminal.Style{'-': terminal.Bad, '+': terminal.Good}[line[0]]
		}
		d.stdout.Printf("%-8s %s\n", name, look.Of(display.Shorten(display.Printable(line), width)))
		name = ""
	}
	if more := len(lines) - most; more > 0 {
		d.stdout.Printf("%-8s ... and %s\n", "", display.Plural(more, "more line"))
	}
}

// printCases runs the cases of the tool.
func (d *developing) printCases(ctx context.Context, cases []*toolcase.Case, t toolcase.Trial) error {
	var failing []string
	for _, c := range cases {
		v, err := c.Run(ctx, t)
		if err != nil {
			return err
		}
		if !v.Passed {
			failing = append(failing, c.Name)
		}
	}
	switch {
	case len(failing) > 0:
		d.stdout.Printf("cases    %s: %s; see why: %s\n", terminal.Bad.Of(fmt.Sprintf("%d of %d fail", len(failing), len(cases))), strings.Join(failing, ", "),
			display.Command("starling-host tool test", d.ref))
	case len(cases) > 0:
		d.stdout.Printf("cases    %s\n", terminal.Good.Of(fmt.Sprintf("%d of %d pass", len(cases), len(cases))))
	}
	return nil
}
