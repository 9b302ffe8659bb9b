package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
)

func (a *app) toolCommand() *cobra.Command {
	describe := subcommand("describe TOOL", "print name, description, schemas, requested hosts, imports and digest", func(cmd *cobra.Command, args []string) error {
		_, doc, err := a.examine(cmd.Context(), args[0], artifact.Finder{})
		if err != nil {
			return err
		}
		return a.emit(doc, func() {
			view.Module(a.stdout, doc)
		})
	}, a.outputFlag)
	return parent("tool", "write tools, and look at them",
		a.toolNewCommand(), a.toolBuildCommand(), a.toolDevCommand(), a.toolTestCommand(), describe, a.checkCommand(),
		a.pushCommand(), a.pullCommand(), a.listCommand(), a.signCommand(), a.verifyToolCommand(), a.toolDiffCommand())
}

// examine loads a module and describes it. Nothing is recorded.
func (a *app) examine(ctx context.Context, ref string, f artifact.Finder) (guest.Source, starling.ModuleDocument, error) {
	db := starling.Over(nil, starling.Options{Finder: f, Engine: starling.EngineOptions{Warn: a.warn}})
	defer db.Close()
	m, err := db.LoadModule(ctx, ref, starling.ToolOptions{})
	if err != nil {
		return guest.Source{}, starling.ModuleDocument{}, err
	}
	return m.Source, m.Document(), nil
}

func (a *app) checkCommand() *cobra.Command {
	var memory uint64
	cmd := subcommand("check TOOL", "check whether the host accepts a module, and print its certificate", func(cmd *cobra.Command, args []string) error {
		source, err := artifact.Finder{}.Find(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		c, err := starling.Certify(cmd.Context(), source.Wasm, sandbox.Limits{MemoryPages: uint32(sandbox.Pages(memory))})
		if err != nil {
			return err
		}
		return a.emit(c, func() {
			a.stdout.Printf("accepted     %s\n", source.Source)
			view.Certificate(a.stdout, c)
		})
	}, a.outputFlag)
	memoryFlag(cmd, &memory)
	return cmd
}

func (a *app) toolDiffCommand() *cobra.Command {
	var database string
	var read readFlags
	cmd := subcommand("diff OLD NEW", "compare two versions of a tool, also on recorded runs", func(cmd *cobra.Command, args []string) error {
		ctx, old, new := cmd.Context(), args[0], args[1]
		_, from, err := a.examine(ctx, old, artifact.Finder{})
		if err != nil {
			return err
		}
		_, to, err := a.examine(ctx, new, artifact.Finder{})
		if err != nil {
			return err
		}
		doc := diffDocument{Old: from.ModuleBytes, New: to.ModuleBytes, Changes: from.Changes(to)}
		doc.Same = len(doc.Changes) == 0
		if database != "" {
			log, err := read.open(ctx, database)
			if err != nil {
				return err
			}
			defer log.Close()
			db := starling.Over(log, starling.Options{})
			defer db.Close()
			if doc.Runs, err = db.DiffRuns(ctx, from.Digest, starling.ReplayOptions{Module: new, Engine: starling.EngineOptions{Warn: a.warn}}); err != nil {
				return err
			}
			doc.Same = doc.Same && len(doc.Runs.Differ) == 0
		}
		return cmp.Or(a.emit(doc, func() {
			a.stdout.Printf("old  %.16s  %s  %s\n", doc.Old.Digest, display.Size(uint64(doc.Old.Size)), doc.Old.Source)
			a.stdout.Printf("new  %.16s  %s  %s\n", doc.New.Digest, display.Size(uint64(doc.New.Size)), doc.New.Source)
			a.printDifferences(doc.Changes, "imports, tools, schemas, hosts and limits", doc.Runs, "with other modules left out")
		}), unless(doc.Same, exitFailed))
	}, a.outputFlag)
	cmd.Flags().StringVar(&database, "db", "", "execute the runs in this `DB` again with NEW")
	read.add(cmd)
	return cmd
}

// diffDocument is the output of "tool diff -o json".
type diffDocument struct {
	Same    bool                    `json:"same"`
	Old     starling.ModuleBytes    `json:"old"`
	New     starling.ModuleBytes    `json:"new"`
	Changes []starling.Change       `json:"changes"`
	Runs    *starling.RunDifference `json:"runs,omitempty"` // without --db there are none
}

// printDifferences prints changes, or what is the same, and how runs differ, unless runs is nil.
func (a *app) printDifferences(changes []starling.Change, same string, runs *starling.RunDifference, skipped string) {
	for _, c := range changes {
		what := c.What
		if c.Tool != "" {
			what = "tool " + c.Tool + ": " + what
		}
		a.stdout.Printf("%s\n", what)
		for _, line := range terminal.PrintableLines(c.Old) {
			a.stdout.Printf("  - %s\n", line)
		}
		for _, line := range terminal.PrintableLines(c.New) {
			a.stdout.Printf("  + %s\n", line)
		}
	}
	if len(changes) == 0 {
		a.stdout.Printf("%s: %s\n", terminal.Good.Of("same"), same)
	}
	if runs == nil {
		return
	}
	a.stdout.Printf("%s: %d the same, %d differ", display.Plural(uint64(runs.Same+len(runs.Differ)), "run"), runs.Same, len(runs.Differ))
	if runs.Skipped > 0 {
		a.stdout.Printf("; %d %s", runs.Skipped, skipped)
	}
	a.stdout.Printf("\n")
	for _, v := range runs.Verdicts {
		a.explainVerdict(v)
	}
}
