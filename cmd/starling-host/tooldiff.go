package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
)

type diffFlags struct {
	database string
	read     readFlags
}

func (a *app) toolDiffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "compare two versions of a tool, also on recorded runs",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.toolDiff(cmd.Context(), args[0], args[1], f)
		},
	}
	cmd.Flags().StringVar(&f.database, "db", "", "execute the runs in this `DB` again with NEW")
	f.read.add(cmd)
	a.outputFlag(cmd)
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

func (a *app) toolDiff(ctx context.Context, old, new string, f diffFlags) error {
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
	if f.database != "" {
		log, err := f.read.open(ctx, f.database)
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
	code := exitOK
	if !doc.Same {
		code = exitFailed
	}
	return cmp.Or(a.emit(doc, func() { a.printDiff(doc) }), silent(code))
}

func (a *app) printDiff(doc diffDocument) {
	a.stdout.Printf("old  %.16s  %s  %s\n", doc.Old.Digest, display.Size(uint64(doc.Old.Size)), doc.Old.Source)
	a.stdout.Printf("new  %.16s  %s  %s\n", doc.New.Digest, display.Size(uint64(doc.New.Size)), doc.New.Source)
	for _, c := range doc.Changes {
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
	if len(doc.Changes) == 0 {
		a.stdout.Printf("%s: imports, tools, schemas, hosts and limits\n", terminal.Good.Of("same"))
	}
	if doc.Runs == nil {
		return
	}
	r := doc.Runs
	a.stdout.Printf("%s: %d the same, %d differ", display.Plural(uint64(r.Same+len(r.Differ)), "run"), r.Same, len(r.Differ))
	if r.Skipped > 0 {
		a.stdout.Printf("; %d with other modules left out", r.Skipped)
	}
	a.stdout.Printf("\n")
	for _, v := range r.Verdicts {
		a.explainVerdict(v)
	}
}
