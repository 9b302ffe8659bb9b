package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
)

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
