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
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
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
	case kind == "a proof":
		return a.verifyProof(ctx, where, policy)
	case kind == "a receipt":
		doc, err := readBounded(where, seal.MaxStatementBytes)
		if err != nil {
			return err
		}
		return a.verifyReceipts(ctx, doc, policy)
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
	if !f.noReplay {
		refused = func(run starling.Verdict) string { return refusalOf(run).message }
		bar := a.progressBar(-1, progressbar.OptionShowCount())
		defer bar.Exit()
		options.Executed = func(starling.Verdict) { _ = bar.Add(1) }
	}
	v, err := starling.VerifyBundle(ctx, file, options)
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

func (a *app) verifyProof(ctx context.Context, path string, policy *seal.Policy) error {
	doc, err := readBounded(path, seal.MaxStatementBytes)
	if err != nil {
		return err
	}
	v := starling.VerifyProof(ctx, doc, policy)
	return cmp.Or(a.emit(v.Document(), func() { view.Proof(a.stdout, v) }), unless(v.Invalid == nil, exitInvalid))
}
