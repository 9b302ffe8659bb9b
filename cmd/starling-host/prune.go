package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/eventlog/sqlitelog"
	"github.com/starling-host/starling/host/tenant"
)

const pruneHelp = `Remove whole runs from a database. Without --confirm, nothing is removed: it says
what would be. Without other flags, all runs are selected that have ended.

With --run those are selected that are named, and none if one of them is not there.
What they held is overwritten in a file, where that of others stays legible until its
room is used; with --compact, it is in no page of it any more.

Runs without an end are selected by --include-open alone. Nobody may be at work on
them: what is removed under a program that writes it fails there.

Runs are removed a few at a time, so that a host that has the database open goes
on meanwhile; a removal that is interrupted can be repeated. Modules are removed as
well that no tenant has, that no run names any more, and that no program has stored
within the last hour. The room of what is removed is used by the runs to come;
--compact gives it back to the file system.

Also on a full disk this works for the database of a host, which has set room aside
for it (FILE.spare). End the host before, so that it does not take that room.

To keep what is removed, archive it first with the same flags, of which --before
names the same runs however much later it is.`

const pruneExample = `  starling-host prune starling.db --older-than 30d
  starling-host prune starling.db --older-than 30d --status failed --confirm
  starling-host prune starling.db --run @last`

// selection is the flags that select runs to remove or to archive.
type selection struct {
	olderThan time.Duration
	before    string
	status    string
	namespace string
	runs      []string
	limit     int
	open      bool
}

func (s *selection) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(ageFlag{&s.olderThan}, "older-than", "only runs that began longer ago, such as 36h or 30d")
	f.StringVar(&s.before, "before", "", "only runs that began before this `TIME` (RFC 3339)")
	f.Var(statusFlag{choiceFlag{&s.status, statuses}}, "status", "only runs in this state")
	f.StringVar(&s.namespace, "namespace", "", "only runs whose ids begin with `NAME` and a slash")
	f.StringArrayVar(&s.runs, "run", nil, "only this `RUN`, which has to be there; may be repeated")
	f.IntVar(&s.limit, "limit", 0, "at most `N` runs, the oldest first; 0 for any number")
	f.BoolVar(&s.open, "include-open", false, "also runs that have no end, at which nobody may be at work")
	f.BoolVar(&s.open, "include-in-progress", false, "the old name of --include-open")
	_ = f.MarkHidden("include-in-progress")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp))
}

// options returns what the flags select at this time.
func (s selection) options(now time.Time) (o eventlog.PruneOptions, err error) {
	o = eventlog.PruneOptions{Status: s.status, Namespace: s.namespace, Limit: s.limit, IncludeOpen: s.open}
	switch {
	case s.limit < 0:
		return o, usagef("", "--limit must be at least 0")
	case len(s.runs) > 0 && s.bounded():
		return o, usagef("", "--run says which runs, so the flags that select others have no place beside it")
	case s.olderThan > 0 && s.before != "":
		return o, usagef("", "--older-than and --before exclude each other")
	case s.status == eventlog.StatusOpen && !s.open:
		return o, usagef("add --include-open", "--status %s selects runs at which somebody may be at work", eventlog.StatusOpen)
	case s.olderThan > 0:
		o.Before = now.Add(-s.olderThan)
	case s.before != "":
		if o.Before, err = time.Parse(time.RFC3339, s.before); err != nil || o.Before.IsZero() { // which would select all
			return o, usagef("write it as 2026-01-31T00:00:00Z", "--before %q is no time", s.before)
		}
	}
	return o, nil
}

// bounded reports whether there are flags that select runs by what they are.
func (s selection) bounded() bool {
	return s.olderThan > 0 || s.before != "" || s.status != "" || s.namespace != "" || s.limit > 0
}

// named adds the runs that the flags name to the options. One that is not there, or that
// the options would pass over, is an error: who names a run means it to be selected.
func (s selection) named(ctx context.Context, log database, o *eventlog.PruneOptions) error {
	for _, name := range s.runs {
		id, err := resolveRun(ctx, log, name)
		if err != nil {
			return err
		}
		switch run, err := log.Run(ctx, id); {
		case err != nil:
			return err
		case run.TerminalKind == 0 && !s.open:
			return usagef("add --include-open", "run %s has no end, and somebody may be at work on it", run.RunID)
		}
		o.RunIDs = append(o.RunIDs, id)
	}
	return nil
}

// ageFlag is a flag that takes a positive duration, also in days.
type ageFlag struct{ value *time.Duration }

func (f ageFlag) String() string {
	if f.value == nil || *f.value == 0 {
		return ""
	}
	return f.value.String()
}

func (f ageFlag) Type() string { return "AGE" }

func (f ageFlag) Set(s string) error {
	const day = 24 * time.Hour
	d, err := time.ParseDuration(s)
	if digits, ok := strings.CutSuffix(s, "d"); ok {
		var days uint64
		days, err = strconv.ParseUint(digits, 10, 16) // which fits into a duration
		d = time.Duration(days) * day
	}
	if err != nil || d <= 0 {
		return errors.New("must be a positive duration, such as 90m, 36h or 30d")
	}
	*f.value = d
	return nil
}

type pruneFlags struct {
	selection
	confirm bool
	compact bool
	output  string
}

func (a *app) pruneCommand() *cobra.Command {
	var f pruneFlags
	cmd := &cobra.Command{
		Use:     "prune DB",
		Short:   "remove runs",
		Long:    pruneHelp,
		Example: pruneExample,
		GroupID: groupKeep,
		Args:    arguments(1, "DB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.prune(cmd.Context(), args[0], f)
		},
	}
	f.addTo(cmd)
	cmd.Flags().BoolVar(&f.confirm, "confirm", false, "remove them")
	cmd.Flags().BoolVar(&f.compact, "compact", false, "make the file smaller afterwards")
	outputFlag(cmd, &f.output)
	return cmd
}

func (a *app) prune(ctx context.Context, where string, f pruneFlags) error {
	o, err := f.options(time.Now())
	if err != nil {
		return err
	}
	switch {
	case f.compact && !f.confirm:
		return usagef("add --confirm", "--compact changes the file")
	case f.compact && onServer(where):
		return usagef("", "--compact is for files: a PostgreSQL server uses the room of removed runs by itself")
	}
	if f.confirm {
		setAside, err := a.giveUpSpare(where)
		if err != nil {
			return err
		}
		defer setAside()
	}
	log, err := openToPrune(ctx, where, f.confirm)
	if err != nil {
		return err
	}
	defer log.Close()
	if err := f.named(ctx, log, &o); err != nil {
		return err
	}
	o.DryRun = !f.confirm
	report, err := eventlog.PruneInSteps(ctx, log, o)
	doc := newPruneDocument(o, report)
	if err == nil && f.confirm {
		err = a.collect(ctx, log, &doc)
	}
	if err == nil && f.compact {
		err = compact(ctx, log, &doc)
	}
	if err == nil {
		err = log.Close()
	}
	return errors.Join(a.printPruned(doc, f.output), err)
}

// giveUpSpare gives back the room that a host has set aside for a removal, so that a full
// disk can be relieved, and returns what sets it aside again. There is none for a server.
func (a *app) giveUpSpare(path string) (setAside func(), err error) {
	nothing := func() {}
	if onServer(path) {
		return nothing, nil
	}
	given, err := sqlitelog.GiveUp(path)
	if !given {
		return nothing, err
	}
	return func() {
		if err := sqlitelog.SetAside(path); err != nil {
			a.stderr.printf("the room for the next time could not be set aside: %s\n", plainError(err))
		}
	}, nil
}

// openToPrune opens a database that must be there, for reading only unless
// something is to be removed.
func openToPrune(ctx context.Context, where string, confirm bool) (database, error) {
	if !confirm {
		return openDatabase(ctx, where)
	}
	if !onServer(where) {
		if err := mustBeThere(where); err != nil {
			return nil, err
		}
	}
	return openForRuns(ctx, where)
}

// collect removes the modules that nobody needs any more. A role that was given the right
// to remove runs by an older version of this program may lack that to remove modules.
func (a *app) collect(ctx context.Context, log database, doc *pruneDocument) (err error) {
	c, err := tenant.Collect(ctx, log, time.Now())
	doc.Modules, doc.ModuleBytes = c.Modules, c.Bytes
	if pglog.Denied(err) {
		a.stderr.printf("warning: the modules that nobody needs any more are not removed: %s\n", plainError(err))
		a.stderr.printf("hint: as the owner of the tables: starling-host migrate postgres://OWNER@... --retention-role ROLE\n")
		return nil
	}
	return err
}

func compact(ctx context.Context, log database, doc *pruneDocument) error {
	file, ok := log.(*sqlitelog.Log)
	if !ok {
		return errors.ErrUnsupported
	}
	freed, err := sqlitelog.Compact(ctx, file)
	doc.FreedBytes = &freed
	if errors.Is(err, sqlitelog.ErrNotCompactable) {
		return &failure{code: exitFailed, message: plainError(err), hint: "starling-host backup DB FILE"}
	}
	return err
}

// pruneDocument is what "prune -o json" prints.
type pruneDocument struct {
	Runs   int    `json:"runs"`
	Events int64  `json:"events"`
	DryRun bool   `json:"dry_run"`
	Before string `json:"before,omitempty"`

	Modules     int   `json:"collected_modules,omitempty"`
	ModuleBytes int64 `json:"collected_bytes,omitempty"`

	FreedBytes *int64 `json:"freed_bytes,omitempty"`
}

func newPruneDocument(o eventlog.PruneOptions, r eventlog.PruneReport) pruneDocument {
	doc := pruneDocument{Runs: r.Runs, Events: r.Events, DryRun: o.DryRun}
	if !o.Before.IsZero() {
		doc.Before = o.Before.UTC().Format(timeLayout)
	}
	return doc
}

func (a *app) printPruned(doc pruneDocument, output string) error {
	if output == outputJSON {
		return a.writeValue(doc)
	}
	verb, before := "removed", ""
	if doc.DryRun {
		verb = "would remove"
	}
	if doc.Before != "" {
		before = " that began before " + doc.Before
	}
	a.stdout.printf("%s %s with %s%s\n", verb, plural(doc.Runs, "run"), plural(uint64(doc.Events), "event"), before)
	a.printCollected(tenant.Collected{Modules: doc.Modules, Bytes: doc.ModuleBytes})
	if doc.FreedBytes != nil {
		a.stdout.printf("gave back %s\n", formatSize(uint64(*doc.FreedBytes)))
	}
	if doc.DryRun && doc.Runs > 0 {
		a.stderr.printf("nothing was removed; to remove them: --confirm\n")
	}
	return nil
}

func (a *app) printCollected(c tenant.Collected) {
	if c.Modules > 0 {
		a.stdout.printf("removed %s of %s that nobody needs any more\n", plural(c.Modules, "module"), formatSize(uint64(c.Bytes)))
	}
}
