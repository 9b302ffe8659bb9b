package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/runtime/agent"
)

const toolDiffHelp = `Compare two versions of a tool: imports, tools, descriptions, schemas, requested hosts
and wanted limits.

With --db, also compare what they do: each recorded run of OLD's tools is executed
again with NEW, with the same input and the recorded answers, as "replay --module"
does. A run differs if the output or any request differs. Fuel and memory are not
compared. Runs that use other modules, too, are counted and left out.

The exit code is 0 if nothing differs, and 1 otherwise. Digest and size are printed and
do not count as a difference.`

type diffFlags struct {
	database string
	read     readFlags
}

func (a *app) toolDiffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:     "diff OLD NEW",
		Short:   "compare two versions of a tool, also on recorded runs",
		Long:    toolDiffHelp,
		Example: "  starling-host tool diff dice.wasm tools/dice.wasm\n  starling-host tool diff dice.wasm tools/dice.wasm --db starling.db",
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
	Same    bool        `json:"same"`
	Old     moduleBytes `json:"old"`
	New     moduleBytes `json:"new"`
	Changes []change    `json:"changes"`
	Runs    *diffRuns   `json:"runs,omitempty"` // without --db there are none
}

// change is something that one of the two lacks, or has otherwise.
type change struct {
	What string `json:"what"`
	Tool string `json:"tool,omitempty"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

type diffRuns struct {
	Same    int                    `json:"same"`
	Skipped int                    `json:"skipped"` // they use other modules, too
	Differ  []agent.ReplayDocument `json:"differ"`

	differ []starling.Verdict
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
	doc := diffDocument{Old: from.moduleBytes, New: to.moduleBytes, Changes: changesOf(from, to)}
	doc.Same = len(doc.Changes) == 0
	if f.database != "" {
		if doc.Runs, err = a.diffRuns(ctx, from.Digest, new, f); err != nil {
			return err
		}
		doc.Same = doc.Same && len(doc.Runs.differ) == 0
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
	for _, v := range r.differ {
		a.explainVerdict(v)
	}
}

// changesOf compares what two modules say of themselves.
func changesOf(from, to moduleDocument) []change {
	all := []change{}
	compare := func(tool, what, old, new string) {
		if old != new {
			all = append(all, change{what, tool, old, new})
		}
	}
	missing := func(in, of []string) string {
		return listOr(slices.DeleteFunc(slices.Clone(in), func(name string) bool { return slices.Contains(of, name) }), "")
	}
	compare("", "abi", from.ABI, to.ABI)
	compare("", "imports", missing(from.Imports, to.Imports), missing(to.Imports, from.Imports))
	limits := func(l abi.Limits) string {
		return fmt.Sprintf("fuel %d, memory %d, timeout %dms", l.Fuel, l.MemoryBytes, l.TimeoutMs)
	}
	byName := func(tools []guest.ToolDocument, name string) int {
		return slices.IndexFunc(tools, func(t guest.ToolDocument) bool { return t.Name == name })
	}
	for _, t := range from.Tools {
		i := byName(to.Tools, t.Name)
		if i < 0 {
			all = append(all, change{What: "removed", Tool: t.Name, Old: t.Description})
			continue
		}
		u := to.Tools[i]
		compare(t.Name, "description", t.Description, u.Description)
		compare(t.Name, "input", canonical(t.InputSchema), canonical(u.InputSchema))
		compare(t.Name, "output", canonical(t.OutputSchema), canonical(u.OutputSchema))
		compare(t.Name, "hosts", missing(t.Effects, u.Effects), missing(u.Effects, t.Effects))
		compare(t.Name, "repeat", fmt.Sprint(t.Idempotent), fmt.Sprint(u.Idempotent))
		compare(t.Name, "limits", limits(t.Limits), limits(u.Limits))
	}
	for _, u := range to.Tools {
		if byName(from.Tools, u.Name) < 0 {
			all = append(all, change{What: "added", Tool: u.Name, New: u.Description})
		}
	}
	return all
}

// canonical is a schema without differences in spelling.
func canonical(schema []byte) string {
	if doc, err := canon.JSON(schema); err == nil {
		return string(doc)
	}
	return string(schema)
}

// diffRuns executes the runs of a module again with another one, and returns those that differ.
func (a *app) diffRuns(ctx context.Context, digest, new string, f diffFlags) (*diffRuns, error) {
	log, err := f.read.open(ctx, f.database)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	db := starling.Over(log, starling.Options{})
	defer db.Close()
	ids, err := db.RunIDs(ctx)
	if err != nil {
		return nil, err
	}
	made := &diffRuns{Differ: []agent.ReplayDocument{}}
	var of []string
	for _, id := range ids {
		for first, err := range log.Events(ctx, id, 0) {
			if err != nil {
				return nil, err
			}
			used, err := first.Modules()
			switch others := slices.DeleteFunc(slices.Clone(used), func(d canon.Hash) bool { return d.String() == digest }); {
			case err != nil || len(others) == len(used): // of other tools
			case len(others) > 0:
				made.Skipped++
			default:
				of = append(of, id)
			}
			break
		}
	}
	r, err := db.Replayer(ctx, starling.ReplayOptions{Module: new, Engine: starling.EngineOptions{Warn: a.warn}})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return made, r.ReplayAll(ctx, of, func(v starling.Verdict) error {
		if v.Identical() {
			made.Same++
		} else {
			made.differ, made.Differ = append(made.differ, v), append(made.Differ, v.Document())
		}
		return nil
	})
}
