package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/terminal"
)

func (a *app) validateCommand() *cobra.Command {
	cmd := readCommand("validate [DB] [RUN]", "check the hash chain, Merkle root and invariants", func(ctx context.Context, log database, args []string) error {
		db := starling.Over(log, starling.Options{})
		defer db.Close()
		ids, unlisted, err := make([]string, 1), error(nil), error(nil)
		if len(args) == 1 {
			if ids, unlisted = db.RunIDs(ctx); unlisted != nil && len(ids) == 0 {
				return unreadable(ctx, unlisted)
			}
		} else if ids[0], err = db.Find(ctx, args[1]); err != nil {
			return err
		}
		code, done, invalid, newer, headless, miscounted := exitOK, 0, 0, 0, 0, 0
		err = db.ValidateAll(ctx, ids, func(v starling.Validation) error {
			c := checked(v)
			done++
			if c.Miscounted {
				miscounted++
			}
			switch {
			case errors.Is(c.Err, eventlog.ErrSchemaTooNew):
				code = worse(code, exitRefused)
				newer++
			case c.Err != nil:
				code = exitInvalid
				invalid++
			case !c.Report.HeadKept:
				headless++
			}
			return a.printChecked(c)
		})
		if err != nil {
			return interrupted(ctx, err, "checked", done, len(ids))
		}
		if !a.asJSON && len(args) == 1 {
			unknown := ""
			if newer > 0 {
				unknown = fmt.Sprintf(", %d of a newer program", newer)
			}
			a.stdout.Printf("%s: %d valid, %d invalid%s\n", display.Plural(len(ids), "run"), len(ids)-invalid-newer, invalid, unknown)
		}
		if headless+miscounted > 0 && !a.asJSON && eventlog.Preflight(ctx, log) == nil {
			if headless > 0 {
				a.stderr.Printf("%s without a complete summary, because another program wrote the events or it was lost: only the chain covers the last event\n", display.Plural(headless, "run"))
			}
			if miscounted > 0 {
				a.stderr.Printf("%s with recorded bytes that are not those of the events: limits and usage of tenants are wrong by the difference\n", display.Plural(miscounted, "run"))
			}
			a.hint(display.Command("starling-host migrate", named(args[0])))
		}
		if unlisted != nil {
			return unreadable(ctx, unlisted)
		}
		return silent(code)
	}, a.outputFlag)
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 && args[0] != starling.LastRun && !onServer(args[0]) && isNew(args[0]) && !isNew(defaultDatabase) {
			return usagef("a run of "+defaultDatabase+" is checked with: "+display.Command("starling-host validate", defaultDatabase, args[0]), "%s: no such database", args[0])
		}
		return nil
	}
	return cmd
}

// checked is the result of checking one run.
type checked starling.Validation

func (a *app) printChecked(c checked) error {
	return a.emit(c.document(), func() {
		id := c.RunID
		switch {
		case errors.Is(c.Err, eventlog.ErrSchemaTooNew):
			a.stdout.Printf("%s    %s  %s\n", terminal.Middle.Of("newer"), id, eventlog.Corruption(c.Err))
		case c.Err != nil:
			a.stdout.Printf("%s  %s  %s\n", terminal.Bad.Of("invalid"), id, eventlog.Corruption(c.Err))
		case c.Report.Open:
			a.stdout.Printf("%s     %s  %s, head %s\n", terminal.Middle.Of("open"), id, c.eventCount(), c.Report.Head)
		default:
			a.stdout.Printf("%s    %s  %s, root %s\n", terminal.Good.Of("valid"), id, c.eventCount(), c.Report.Root)
		}
	})
}

// eventCount describes the number of events of a run, and whether they are encrypted.
func (c checked) eventCount() string {
	text := display.Plural(c.Report.Events, "event")
	if c.Report.Encrypted > 0 {
		text += fmt.Sprintf(", %d encrypted", c.Report.Encrypted)
	}
	if c.Opened {
		text += " and opened"
	}
	if c.Miscounted {
		text += ", recorded bytes miscounted"
	}
	if c.Report.Unknown != "" {
		text += ", unknown fields ignored: " + display.Printable(c.Report.Unknown)
	}
	return text
}

// checkedDocument is the output of "validate -o json" for each run.
type checkedDocument struct {
	RunID      string `json:"run_id"`
	Valid      bool   `json:"valid"`
	Status     string `json:"status,omitempty"`
	Events     uint64 `json:"events,omitempty"`
	Encrypted  uint64 `json:"encrypted,omitempty"`
	Opened     bool   `json:"opened,omitempty"`
	Unknown    string `json:"unknown_fields,omitempty"`
	Miscounted bool   `json:"miscounted,omitempty"`
	Head       string `json:"head,omitempty"`
	MerkleRoot string `json:"merkle_root,omitempty"`
	Seq        uint64 `json:"seq,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Invariant  string `json:"invariant,omitempty"`
	Error      string `json:"error,omitempty"`
}

func (c checked) document() checkedDocument {
	doc := checkedDocument{RunID: c.RunID, Valid: c.Err == nil}
	if c.Err == nil {
		doc.Status = eventlog.RunSummary{TerminalKind: c.Report.Terminal}.Status()
		doc.Events, doc.Encrypted, doc.Head = c.Report.Events, c.Report.Encrypted, c.Report.Head.String()
		doc.Opened, doc.Unknown, doc.Miscounted = c.Opened, c.Report.Unknown, c.Miscounted
		if !c.Report.Open {
			doc.MerkleRoot = c.Report.Root.String()
		}
		return doc
	}
	doc.Error = eventlog.Corruption(c.Err)
	if corrupt := (*eventlog.CorruptError)(nil); errors.As(c.Err, &corrupt) {
		doc.Seq, doc.Kind, doc.Invariant = corrupt.Seq, corrupt.Kind.String(), corrupt.Invariant
	}
	return doc
}
