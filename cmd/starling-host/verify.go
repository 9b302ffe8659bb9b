package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/internal/zstd"
)

type verifyFlags struct {
	trust                 trustFlags
	checkpoints, archives []string
	noReplay              bool
	engine                string
	timeout               time.Duration
}

func (a *app) verifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := subcommand("verify [FILE]", "check a sealed database, an archive, a bundle, a proof or receipts", func(cmd *cobra.Command, args []string) error {
		where := defaultDatabase
		if len(args) > 0 {
			where = args[0]
		}
		return a.verify(cmd.Context(), where, f)
	}, a.outputFlag)
	f.trust.add(cmd)
	cmd.Flags().StringArrayVar(&f.checkpoints, "checkpoint", nil, "the database must contain the checkpoint in `FILE`; may be repeated")
	cmd.Flags().StringArrayVar(&f.archives, "archive", nil, "the database must have sealed the runs in this archive, `FILE|FOLDER`; may be repeated")
	cmd.Flags().BoolVar(&f.noReplay, "no-replay", false, "check a bundle without executing it")
	engineFlag(cmd, &f.engine)
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "execute a bundle for at most `DURATION`; 0 for no limit")
	return cmd
}

func (a *app) verify(ctx context.Context, where string, f verifyFlags) error {
	policy, err := f.trust.trusted()
	if err != nil {
		return err
	}
	kind, err := kindOf(where)
	if err != nil {
		return err
	}
	switch {
	case kind != "" && len(f.checkpoints)+len(f.archives) > 0:
		return usagef("", "--checkpoint and --archive apply to a database; %s is %s", where, kind)
	case kind == "an archive" && policy != nil:
		return usagef(display.Command("starling-host verify DB --archive", where)+" --key VKEY", "%s is an archive: the signature is in its database", where)
	case kind == "an archive":
		return a.checkArchive(ctx, where)
	case kind == "a bundle":
		return a.verifyBundle(ctx, where, policy, f)
	case kind == "a proof", kind == "a receipt":
		doc, err := readBounded(where, seal.MaxStatementBytes)
		if err != nil {
			return err
		}
		if kind == "a receipt" {
			return a.verifyReceipts(ctx, doc, policy)
		}
		v := starling.VerifyProof(ctx, doc, policy)
		return cmp.Or(a.emit(v.Document(), func() { view.Proof(a.stdout, v) }), unless(v.Invalid == nil, exitInvalid))
	}
	return a.verifyDatabase(ctx, where, policy, f)
}

// kindOf returns "an archive", "a bundle", "a proof" or "a receipt" for a file with the first bytes of one, and "" for
// any other, and for the address of a server.
func kindOf(path string) (string, error) {
	head := headOf(path)
	switch text := strings.TrimSpace(head); {
	case strings.HasPrefix(head, `{"archive":`), zstd.Is([]byte(head)):
		return "an archive", nil
	case strings.HasPrefix(head, "PK"), isBundle(path):
		return "a bundle", nil
	case strings.Contains(head[:min(len(head), 200)], `"payloadType"`):
		return "a receipt", nil
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		return "a proof", nil
	}
	return "", mustBeThere(path)
}

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > limit {
		return nil, &failure{code: exitInvalid, message: fmt.Sprintf("%s has %s; the limit is %s", path, display.Size(uint64(info.Size())), display.Size(uint64(limit)))}
	}
	text, err := keyfile.ReadFile(path, limit)
	if err != nil {
		return nil, &failure{code: exitUsage, message: err.Error()}
	}
	return text, nil
}

func (a *app) verifyDatabase(ctx context.Context, where string, policy *seal.Policy, f verifyFlags) error {
	var given seal.Evidence
	for _, path := range f.checkpoints {
		signed, err := readBounded(path, seal.MaxCheckpointBytes)
		if err != nil {
			return err
		}
		given.Checkpoints = append(given.Checkpoints, signed)
	}
	log, err := openDatabase(ctx, where)
	if err != nil {
		return err
	}
	defer log.Close()
	err = eachArchive(f.archives, func(path string) error {
		read, err := store.ReadArchive(ctx, path)
		given.Archives = append(given.Archives, read)
		return err
	})
	if err != nil {
		return err
	}
	r, err := starling.Over(log, starling.Options{}).Verify(ctx, policy, given)
	switch unread := (*starling.UnreadError)(nil); {
	case errors.Is(err, seal.ErrNoLog) && len(f.checkpoints) > 0:
		return &failure{code: exitInvalid, message: named(where) + " has no checkpoint, but --checkpoint expects one: its seals were removed, or it is another database"}
	case errors.Is(err, seal.ErrNoLog):
		return usagef(display.Command("starling-host seal --key seal.key", named(where)), "%s was never sealed, so there is nothing to compare its runs with", named(where))
	case errors.As(err, &unread):
		return interrupted(ctx, err, "compared", int(r.Present+r.Gone), int(r.Newest.Leaves))
	case err != nil:
		return unreadable(ctx, err)
	}
	doc := r.Document()
	return cmp.Or(a.emit(doc, func() {
		view.SealReport(a.stdout, r, where, len(given.Archives))
		if r.Unsealed > 0 || len(r.Unexplained) > 0 {
			a.hint(display.Command("starling-host seal --key seal.key", named(where)))
		}
	}), unless(doc.Verdict == "valid", exitInvalid))
}

func (a *app) verifyBundle(ctx context.Context, path string, policy *seal.Policy, f verifyFlags) error {
	started := time.Now()
	file, err := readBundle(ctx, path)
	if err != nil {
		return err
	}
	options := starling.BundleOptions{
		Policy: policy, WithoutReplay: f.noReplay, Timeout: f.timeout,
		Engine: starling.EngineOptions{Kind: starling.EngineKind(f.engine), Warn: a.warn},
	}
	if f.engine == engineV8 {
		node, err := newNode(ctx)
		if err != nil {
			return err
		}
		defer node.Close()
		options.Execute = node.Replay
	}
	var refused func(starling.Verdict) string
	erase := func() error { return nil }
	if !f.noReplay {
		refused = func(run starling.Verdict) string { return refusalOf(run).message }
		bar := a.progressBar(-1, progressbar.OptionShowCount())
		erase, options.Executed = bar.Finish, func(starling.Verdict) { _ = bar.Add(1) }
	}
	v, err := starling.VerifyBundle(ctx, file, options)
	_ = erase()
	if err != nil {
		return err
	}
	err = a.emit(v.Document(), func() { view.Bundle(a.stdout, v, len(file), time.Since(started), refused) })
	code := exitOK
	if v.Invalid != nil {
		code = exitInvalid
	}
	for _, run := range v.Runs {
		code = worse(code, verdictCode(run))
	}
	return cmp.Or(err, silent(code))
}

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
		code, done, invalid, newer, headless, miscounted := exitOK, 0, []string(nil), 0, 0, 0
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
				invalid = append(invalid, c.RunID)
			case !c.Report.HeadKept:
				headless++
			}
			return a.printChecked(c)
		})
		if err != nil {
			return interrupted(ctx, err, "checked", done, len(ids))
		}
		if !a.asJSON && len(args) == 1 {
			unknown := map[bool]string{true: fmt.Sprintf(", %d of a newer program", newer)}[newer > 0]
			a.stdout.Printf("%s: %d valid, %d invalid%s\n", display.Plural(len(ids), "run"), len(ids)-len(invalid)-newer, len(invalid), unknown)
			for _, id := range invalid[:min(len(invalid), 10)] { // among the lines above they are hard to find
				a.stdout.Printf("%s  %s\n", terminal.StatusStyle("invalid").Of("invalid"), id)
			}
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
