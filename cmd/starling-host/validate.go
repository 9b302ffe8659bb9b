package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
)

const validateHelp = `Check one run, or every run, without executing anything: the hash chain, the
Merkle root, the invariants of a log, and that the modules of the run are in the
database with the digests that it recorded.

A run without a terminal event is open: it is in progress, or its process died.
That is said and is no error.

Of a run that is encrypted, which is said as well, everything is checked that can
be seen without its key: the chain and the root over what is stored, and the order
of the events. With the master key (--key-file) it is checked as it was before it
was encrypted as well, and so are its modules.

A run that a newer version of this program recorded, with events that this one does not
know, is named and not checked; then the exit code is 4.

Every run with events is checked, whichever program wrote them. The database keeps the
hash of the last event of each run apart from the events, and a run that lacks it is
named: "migrate" adds it.`

const validateExample = `  starling-host validate starling.db
  starling-host validate starling.db @last`

func (a *app) validateCommand() *cobra.Command {
	var output string
	var f readFlags
	cmd := &cobra.Command{
		Use:               "validate DB [RUN]",
		Short:             "check chain, Merkle root and invariants",
		Long:              validateHelp,
		Example:           validateExample,
		GroupID:           groupProve,
		Args:              arguments(1, "DB", "RUN"),
		ValidArgsFunction: completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.validate(cmd.Context(), f, args, output)
		},
	}
	f.add(cmd)
	outputFlag(cmd, &output)
	return cmd
}

func (a *app) validate(ctx context.Context, f readFlags, args []string, output string) error {
	log, err := f.open(ctx, args[0])
	if err != nil {
		return err
	}
	defer log.Close()
	var ids []string
	if len(args) == 2 {
		id, err := resolveRun(ctx, log, args[1])
		if err != nil {
			return err
		}
		ids = []string{id}
	} else if ids, err = allRuns(ctx, log); err != nil {
		return err
	}
	code, invalid, newer, headless := exitOK, 0, 0, 0
	modules := newModuleChecks(log)
	check := func(ctx context.Context, id string) (checked, error) {
		c := checked{runID: id}
		c.report, c.err = checkRun(ctx, log, id, modules)
		if c.err == nil && c.report.Sealed > 0 {
			c.opened, c.err = opens(ctx, log, id)
		}
		return c, ctx.Err()
	}
	err = inOrder(ctx, ids, check, func(c checked) error {
		switch {
		case errors.Is(c.err, eventlog.ErrSchemaTooNew):
			code = worse(code, exitRefused)
			newer++
		case c.err != nil:
			code = exitInvalid
			invalid++
		case !c.report.HeadKept:
			headless++
		}
		return a.printChecked(c, output)
	})
	if err != nil {
		return err
	}
	if output == outputText && len(args) == 1 {
		unknown := ""
		if newer > 0 {
			unknown = fmt.Sprintf(", %d of a newer program", newer)
		}
		a.stdout.printf("%s: %d valid, %d invalid%s\n", plural(len(ids), "run"), len(ids)-invalid-newer, invalid, unknown)
	}
	if headless > 0 && output == outputText && eventlog.Preflight(ctx, log) == nil {
		a.stderr.printf("%s without a kept summary of all events, since another program wrote them or it was lost: only the chain covers the last event\n"+
			"hint: starling-host migrate %s\n", plural(headless, "run"), shellWord(named(args[0])))
	}
	return silent(code)
}

// checked is what the check of one run found.
type checked struct {
	runID  string
	report eventlog.Report
	opened bool  // the run is encrypted, and was checked with its key as well
	err    error // the run is not valid
}

// checkRun checks a run's events as they are stored and, if they are encrypted and
// the key is at hand, as they were before, and its modules. An error says why the
// run is not valid; to be unreadable is one reason.
func checkRun(ctx context.Context, log database, runID string, modules *moduleChecks) (eventlog.Report, error) {
	options := eventlog.CheckOptions{Strict: true, AllowOpen: true}
	report, err := eventlog.CheckRun(ctx, asStored(log), runID, options)
	if err != nil {
		return report, err
	}
	if report.Sealed > 0 {
		opened, err := opens(ctx, log, runID)
		if err != nil || !opened { // which modules a sealed run has only its key tells
			return report, err
		}
		if _, err := eventlog.CheckRun(ctx, log, runID, options); err != nil {
			return report, err
		}
	}
	for first, err := range eventlog.Events(ctx, log, runID, 0) {
		if err != nil {
			return report, err
		}
		return report, modules.of(ctx, first)
	}
	return report, nil
}

// corruption returns what is wrong with a log without the words that every such
// error begins with.
func corruption(err error) string {
	if corrupt := (*eventlog.CorruptError)(nil); errors.As(err, &corrupt) {
		err = corrupt
	}
	text := strings.TrimPrefix(err.Error(), eventlog.ErrLogCorrupt.Error()+": ")
	return strings.TrimPrefix(text, eventlog.ErrSchemaTooNew.Error()+": ")
}

func (a *app) printChecked(c checked, output string) error {
	if output == outputJSON {
		return a.writeValue(c.document())
	}
	id := c.runID
	switch {
	case errors.Is(c.err, eventlog.ErrSchemaTooNew):
		a.stdout.printf("newer    %s  %s\n", id, corruption(c.err))
	case c.err != nil:
		a.stdout.printf("invalid  %s  %s\n", id, corruption(c.err))
	case c.report.Open:
		a.stdout.printf("open     %s  %s, head %s\n", id, c.eventCount(), c.report.Head)
	default:
		a.stdout.printf("valid    %s  %s, root %s\n", id, c.eventCount(), c.report.Root)
	}
	return nil
}

// eventCount says how many events a run has, and whether they are encrypted.
func (c checked) eventCount() string {
	text := plural(c.report.Events, "event")
	if c.report.Sealed > 0 {
		text += fmt.Sprintf(", %d sealed", c.report.Sealed)
	}
	if c.opened {
		text += " and opened"
	}
	return text
}

// checkedDocument is what "validate -o json" prints for each run.
type checkedDocument struct {
	RunID      string `json:"run_id"`
	Valid      bool   `json:"valid"`
	Status     string `json:"status,omitempty"`
	Events     uint64 `json:"events,omitempty"`
	Sealed     uint64 `json:"sealed,omitempty"`
	Opened     bool   `json:"opened,omitempty"`
	Head       string `json:"head,omitempty"`
	MerkleRoot string `json:"merkle_root,omitempty"`
	Seq        uint64 `json:"seq,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Invariant  string `json:"invariant,omitempty"`
	Error      string `json:"error,omitempty"`
}

func (c checked) document() checkedDocument {
	doc := checkedDocument{RunID: c.runID, Valid: c.err == nil}
	if c.err == nil {
		doc.Status = terminalStatus(c.report.Terminal)
		doc.Events, doc.Sealed, doc.Head = c.report.Events, c.report.Sealed, c.report.Head.String()
		doc.Opened = c.opened
		if !c.report.Open {
			doc.MerkleRoot = c.report.Root.String()
		}
		return doc
	}
	doc.Error = corruption(c.err)
	if corrupt := (*eventlog.CorruptError)(nil); errors.As(c.err, &corrupt) {
		doc.Seq, doc.Kind, doc.Invariant = corrupt.Seq, corrupt.Kind.String(), corrupt.Invariant
	}
	return doc
}
