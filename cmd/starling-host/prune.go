package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/tenant"
)

// selection is the flags that select runs to remove or to archive.
type selection struct {
	eventlog.PruneOptions // without those that options and named set

	olderThan time.Duration
	before    string
	runs      []string
}

func (s *selection) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(aged(&s.olderThan), "older-than", "only runs that began longer ago, such as 36h or 30d")
	f.StringVar(&s.before, "before", "", "only runs that began before this `TIME` (RFC 3339)")
	status := choice(&s.Status, eventlog.StatusCompleted, eventlog.StatusFailed, eventlog.StatusCancelled, eventlog.StatusOpen)
	set := status.set
	status.set = func(text string) error {
		if text == "in progress" || text == "in-progress" || text == "in_progress" { // as the Starling runtime calls it
			text = eventlog.StatusOpen
		}
		return set(text)
	}
	choiceFlag(cmd, "status", "", "only runs in this state", status)
	f.StringVar(&s.Namespace, "namespace", "", "only runs whose ids begin with `NAME` and a slash")
	f.StringArrayVar(&s.runs, "run", nil, "only this `RUN`, which must exist; may be repeated")
	f.IntVar(&s.Limit, "limit", 0, "at most `N` runs, the oldest first; 0 for any number")
	f.BoolVar(&s.IncludeOpen, "include-open", false, "also runs that have not ended; no program may be working on them")
	f.BoolVar(&s.IncludeOpen, "include-in-progress", false, "the old name of --include-open")
	_ = f.MarkHidden("include-in-progress")
}

// options returns what the flags select at this time.
func (s selection) options(now time.Time) (o eventlog.PruneOptions, err error) {
	o = s.PruneOptions
	switch {
	case s.Limit < 0:
		return o, usagef("", "--limit must be at least 0")
	case len(s.runs) > 0 && (s.olderThan > 0 || s.before != "" || s.Status != "" || s.Namespace != "" || s.Limit > 0):
		return o, usagef("", "--run excludes the other flags that select runs")
	case s.olderThan > 0 && s.before != "":
		return o, usagef("", "--older-than and --before exclude each other")
	case s.Status == eventlog.StatusOpen && !s.IncludeOpen:
		return o, needsFlag("--include-open", "--status %s selects runs that a program may be working on", eventlog.StatusOpen)
	case s.olderThan > 0:
		o.Before = now.Add(-s.olderThan)
	case s.before != "":
		if o.Before, err = time.Parse(time.RFC3339, s.before); err != nil || o.Before.IsZero() { // which would select all
			return o, needsFlag("--before 2026-01-31T00:00:00Z", "--before %q is not a time (RFC 3339)", s.before)
		}
	}
	return o, nil
}

// named adds the runs that the flags name to the options. A named run that does not exist, or that
// the options would skip, is an error, because it was meant to be selected.
func (s selection) named(ctx context.Context, log database, o *eventlog.PruneOptions) error {
	for _, name := range s.runs {
		id, err := starling.FindRun(ctx, log, name)
		if err != nil {
			return err
		}
		switch run, err := log.Run(ctx, id); {
		case err != nil:
			return err
		case run.TerminalKind == 0 && !s.IncludeOpen:
			return needsFlag("--include-open", "run %s has not ended, and a program may be working on it", run.RunID)
		}
		o.RunIDs = append(o.RunIDs, id)
	}
	return nil
}

type pruneFlags struct {
	selection
	confirm bool
	compact bool
}

func (a *app) pruneCommand() *cobra.Command {
	var f pruneFlags
	cmd := subcommand("prune [DB]", "remove runs", func(cmd *cobra.Command, args []string) error {
		why := "prune"
		cmd.Flags().Visit(func(flag *pflag.Flag) {
			if name := flag.Name; name != "confirm" && name != "compact" && name != "output" {
				why += " --" + name + " " + flag.Value.String()
			}
		})
		return a.prune(cmd.Context(), args[0], why, f)
	}, f.addTo, a.outputFlag)
	cmd.Args = namedToChange(func() bool { return f.confirm })
	cmd.Flags().BoolVar(&f.confirm, "confirm", false, "remove them")
	cmd.Flags().BoolVar(&f.compact, "compact", false, "shrink the file afterwards")
	return cmd
}

func (a *app) prune(ctx context.Context, where, why string, f pruneFlags) error {
	o, err := f.options(time.Now())
	if err != nil {
		return err
	}
	switch {
	case f.compact && !f.confirm:
		return needsFlag("--confirm", "--compact changes the file")
	case f.compact && onServer(where):
		return usagef("", "--compact is for files: a PostgreSQL server reuses the space of removed runs by itself")
	}
	do := toRead
	if f.confirm {
		do = toChange
		setAside, err := a.giveUpSpare(where)
		if err != nil {
			return err
		}
		defer setAside()
	}
	log, err := do.open(ctx, where)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := f.named(ctx, log, &o); err != nil {
		return err
	}
	o.DryRun, o.Why = !f.confirm, why
	report, err := eventlog.PruneInSteps(ctx, log, o)
	doc := pruneDocument{PruneReport: report, Before: o.Before.UTC()}
	if err == nil && f.confirm {
		doc.ModuleCount, err = a.collect(ctx, log)
	}
	if err == nil && f.compact {
		err = compact(ctx, log, &doc)
	}
	sealed := false
	if err == nil && f.confirm && report.Runs > 0 {
		sealed, err = seal.Kept(ctx, log)
	}
	if err == nil {
		err = log.Close()
	}
	if err = errors.Join(a.printPruned(doc), err); err == nil && sealed {
		a.sealRemovals(where)
	}
	return err
}

func (a *app) sealRemovals(where string) {
	a.stderr.Printf("until the removal is sealed, verify reports the runs as missing\n")
	a.hint(display.Command("starling-host seal --key seal.key", named(where)))
}

// giveUpSpare releases the room that a host has set aside for removals, so that runs can be removed
// from a full disk. It returns a function that sets it aside again. A server has no such room.
func (a *app) giveUpSpare(path string) (setAside func(), err error) {
	nothing := func() {}
	if onServer(path) {
		return nothing, nil
	}
	given, err := store.GiveUp(path)
	if !given {
		return nothing, err
	}
	return func() {
		if err := store.SetAside(path); err != nil {
			a.stderr.Printf("the space for the next removal could not be reserved: %s\n", starling.PlainError(err))
		}
	}, nil
}

// collect removes the modules that nothing uses. A role that was given the right
// to remove runs by an older version of this program may lack that to remove modules.
func (a *app) collect(ctx context.Context, log database) (c eventlog.ModuleCount, err error) {
	c, err = tenant.Collect(ctx, log, time.Now())
	if store.Denied(err) {
		a.warn("modules that nothing uses were not removed: " + starling.PlainError(err))
		a.hint("as the owner of the tables: starling-host migrate postgres://OWNER@... --retention-role ROLE")
		err = nil
	}
	return c, err
}

func compact(ctx context.Context, log database, doc *pruneDocument) error {
	file, ok := log.(*store.File)
	if !ok {
		return errors.ErrUnsupported
	}
	freed, err := store.Compact(ctx, file)
	doc.FreedBytes = &freed
	if errors.Is(err, store.ErrNotCompactable) {
		return &failure{code: exitFailed, message: starling.PlainError(err), hint: "starling-host backup DB FILE"}
	}
	return err
}

// pruneDocument is the output of "prune -o json".
type pruneDocument struct {
	eventlog.PruneReport
	Before time.Time `json:"before,omitzero"`
	eventlog.ModuleCount
	FreedBytes *int64 `json:"freed_bytes,omitempty"`
}

func (a *app) printPruned(doc pruneDocument) error {
	return a.emit(doc, func() {
		verb, before := "removed", ""
		if doc.DryRun {
			verb = "would remove"
		}
		if !doc.Before.IsZero() {
			before = " that began before " + display.Time(doc.Before)
		}
		a.stdout.Printf("%s %s with %s%s\n", verb, display.Plural(doc.Runs, "run"), display.Plural(uint64(doc.Events), "event"), before)
		a.printCollected(doc.ModuleCount)
		if doc.FreedBytes != nil {
			a.stdout.Printf("freed %s\n", display.Size(uint64(*doc.FreedBytes)))
		}
		if doc.DryRun && doc.Runs > 0 {
			a.stderr.Printf("nothing was removed; to remove these runs: --confirm\n")
		}
	})
}

func (a *app) printCollected(c eventlog.ModuleCount) {
	if c.Modules > 0 {
		a.stdout.Printf("removed modules and files that nothing uses: %d, of %s\n", c.Modules, display.Size(uint64(c.Bytes)))
	}
}

type partitionsFlags struct {
	store.Retirement
	ahead           int
	dropBefore, key string
}

func (a *app) partitionsCommand() *cobra.Command {
	var f partitionsFlags
	cmd := subcommand("partitions DB", "divide a server's events by month, and drop old months", func(cmd *cobra.Command, args []string) error {
		return a.partitions(cmd.Context(), args[0], f)
	})
	flags := cmd.Flags()
	flags.IntVar(&f.ahead, "ahead", 3, "make the partitions of this month and the `N` next ones")
	flags.StringVar(&f.dropBefore, "drop-before", "", "drop the partitions that end before this `MONTH`, such as 2026-01")
	flags.StringVar(&f.ArchiveTo, "archive-to", "", "write their runs to an archive in this `FOLDER` first")
	flags.StringVar(&f.key, "key", "", "`KEYFILE` with the key that signs: seal the runs before, and their removal afterwards")
	flags.BoolVar(&f.DryRun, "dry-run", false, "print the steps and change nothing")
	return cmd
}

func (a *app) partitions(ctx context.Context, where string, f partitionsFlags) error {
	var err error
	switch {
	case !onServer(where):
		return usagef("to remove runs from a file: "+display.Command("starling-host prune", where), "%s is a file: only a PostgreSQL server has partitions", where)
	case f.ahead < 0 || f.ahead > 120:
		return usagef("", "--ahead must be from 0 to 120")
	case f.dropBefore == "" && f.ArchiveTo+f.key != "":
		return needsFlag("--drop-before 2026-01", "--archive-to and --key are for the partitions to drop")
	case f.dropBefore != "":
		f.Why = "partitions --drop-before " + f.dropBefore
		if f.Before, err = time.Parse("2006-01", f.dropBefore); err != nil || f.Before.After(time.Now()) {
			return needsFlag("--drop-before 2026-01", "--drop-before %q is not a month until now", f.dropBefore)
		}
	}
	key, err := readSealKey(f.key)
	if err != nil {
		return err
	}
	do, did := toChange, ""
	if f.DryRun {
		do, did = toRead, "would have "
	}
	log, err := do.open(ctx, where)
	if err != nil {
		return err
	}
	defer log.Close()
	server := log.(*store.Server)
	made, err := server.MakePartitions(ctx, time.Now(), f.ahead, f.DryRun)
	if err != nil {
		return err
	}
	for _, p := range made {
		a.stdout.Printf("%smade %s\n", did, p.Name)
	}
	if f.Before.IsZero() {
		return nil
	}
	sealed, err := seal.Kept(ctx, log)
	sign := sealed && key != nil && !f.DryRun
	if err == nil && sign {
		_, err = sealNow(ctx, log, where, key)
	}
	if err != nil {
		return err
	}
	dropped, err := store.DropPartitions(ctx, server, f.Retirement)
	for _, d := range dropped {
		to := ""
		if d.Archive != "" {
			to = ", archived in " + d.Archive
		}
		a.stdout.Printf("%sdropped %s: %s, %s%s\n", did, d.Name, display.Plural(d.Runs, "run"), display.Plural(uint64(d.Events), "event"), to)
	}
	if len(dropped) == 0 || f.DryRun {
		return err
	}
	if sign {
		_, e := sealNow(ctx, log, where, key)
		err = errors.Join(err, e)
	}
	var c eventlog.ModuleCount
	if err == nil {
		c, err = a.collect(ctx, log)
	}
	a.printCollected(c)
	if err = cmp.Or(err, log.Close()); err == nil && sealed && !sign {
		a.sealRemovals(where)
	}
	return err
}
