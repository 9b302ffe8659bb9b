package main

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/verifier"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agent"
)

func (a *app) bundleCommand() *cobra.Command {
	var out, receipts string
	var archives []string
	var html bool
	cmd := databaseCommand("bundle [DB] RUN...", "write runs and their proofs to one file", openDatabase, func(ctx context.Context, log database, args []string) error {
		where, runs := args[0], args[1:]
		issuer, err := issuerOf(receipts)
		if err != nil {
			return err
		}
		options := starling.Options{Receipts: issuer}
		if len(archives) > 0 {
			if options.Archived, err = openArchives(ctx, archives, runs); err != nil {
				return err
			}
			defer options.Archived.Close()
		}
		b, err := starling.Over(log, options).Bundle(ctx, runs...)
		if err != nil {
			return notSealed(where, err)
		}
		file, err := b.Bytes()
		if err != nil {
			return err
		}
		if html {
			if file, err = verifier.Page(file, agent.Version()); err != nil {
				return err
			}
		}
		if err := writeFile(ctx, out, file, 0o600, false); err != nil {
			return err
		}
		a.stdout.Printf("%s and %s%s in %s, %s\n", display.Plural(len(b.Runs), "run"), display.Plural(len(b.Modules), "module"), withFiles(len(b.Files)), out, display.Size(uint64(len(file))))
		if slices.ContainsFunc(b.Runs, func(events []event.Event) bool {
			_, encrypted := event.AsEncrypted(events[0].Payload)
			return encrypted
		}) {
			a.warn("a run of a tenant is encrypted: the file proves that it was sealed, and shows and executes nothing of it")
			a.hint("replay from the database with the master key: " + display.Command("starling-host replay", named(where), runs[0]) + " --key-file FILE")
		}
		if len(b.Proofs) == 0 {
			const proves = ", so the file proves that tools did what is recorded, and not who recorded it"
			if last := b.Runs[0][len(b.Runs[0])-1]; !last.Kind.Terminal() {
				a.warn("a run that has not ended is in no checkpoint" + proves)
				return nil
			}
			a.warn(named(where) + " was never sealed" + proves)
			a.hint(display.Command("starling-host seal --key seal.key", named(where)))
		}
		return nil
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) == 1 && isDatabase(args[0]) {
			return usagef(cmd.CommandPath()+" @last -o last.starling", "bundle: missing argument RUN")
		}
		if out == "" {
			return usagef(cmd.CommandPath()+" @last -o last.starling", "bundle: -o FILE is missing")
		}
		return nil
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write `FILE`")
	cmd.Flags().StringArrayVar(&archives, "archive", nil, "take the runs from this archive, `FILE|FOLDER`, and the proofs from DB; may be repeated")
	cmd.Flags().StringVar(&receipts, "receipts", "", "add receipts of the calls, signed with the key in `KEYFILE`")
	cmd.Flags().BoolVar(&html, "html", false, "write a page that shows and verifies the runs in a browser")
	return cmd
}

// notSealed explains that a run is in no checkpoint.
func notSealed(where string, err error) error {
	if errors.Is(err, seal.ErrNotSealed) || errors.Is(err, seal.ErrNoLog) {
		return usagef(display.Command("starling-host seal --key seal.key", named(where)), "%s", starling.PlainError(err))
	}
	return err
}

func (a *app) proveCommand() *cobra.Command {
	return databaseCommand("prove [DB] RUN [SEQ]", "prove that a run or one of its events was sealed", openDatabase, func(ctx context.Context, log database, args []string) error {
		seq := uint64(0)
		if len(args) == 3 {
			var err error
			if seq, err = strconv.ParseUint(args[2], 10, 63); err != nil || seq == 0 {
				return usagef("events are numbered from 1", "SEQ %q is not the number of an event", args[2])
			}
		}
		s, err := starling.Over(log, starling.Options{}).Prove(ctx, args[1], seq)
		if err != nil {
			return notSealed(args[0], err)
		}
		doc, err := s.JSON()
		if err != nil {
			return err
		}
		_, err = a.stdout.Exact().Write(doc)
		return err
	})
}

func (a *app) receiptCommand() *cobra.Command {
	var key, call string
	var leafOnly, asPEM bool
	var read readFlags
	cmd := subcommand("receipt [DB] RUN", "print signed receipts of the calls of a run", func(cmd *cobra.Command, args []string) error {
		if key == "" {
			return usagef("make one with: starling-host seal keygen seal.key", "receipt: --key FILE is missing")
		}
		issuer, err := issuerOf(key)
		if err != nil {
			return err
		}
		if asPEM {
			return pem.Encode(a.stdout.Exact(), issuer.Key.PEM())
		}
		issuer.LeafOnly = leafOnly
		log, err := read.open(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer log.Close()
		db := starling.Over(log, starling.Options{Receipts: issuer})
		defer db.Close()
		receipts, err := db.Receipts(cmd.Context(), args[1])
		if errors.Is(err, receipt.ErrOpen) {
			return &failure{code: exitRefused, message: "the run has not ended, and has no receipts yet", hint: display.Command("starling-host show", args...)}
		}
		if err != nil {
			return err
		}
		if call != "" {
			one := receipt.OfCall(receipts, call)
			if one == nil {
				return usagef(display.Command("starling-host show", args...), "receipt: the run has no call %q", call)
			}
			receipts = []*receipt.Receipt{one}
		}
		if len(receipts) == 0 {
			return &failure{code: exitRefused, message: "the run called no tool, so it has no receipts", hint: display.Command("starling-host show", args...)}
		}
		for _, r := range receipts {
			if err := a.writeValue(r); err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().StringVar(&key, "key", "", "`KEYFILE` with the key that signs")
	cmd.Flags().StringVar(&call, "call", "", "only the receipt of the call with this `ID`")
	cmd.Flags().BoolVar(&leafOnly, "leaf-only", false, "omit the digests of input and result")
	cmd.Flags().BoolVar(&asPEM, "pem", false, "print the public key as PEM instead")
	read.add(cmd)
	return cmd
}

// issuerOf returns what signs receipts with the key in a file, or nil for no file.
func issuerOf(file string) (*receipt.Issuer, error) {
	key, err := readSealKey(file)
	if key == nil {
		return nil, err
	}
	return &receipt.Issuer{Key: key}, nil
}

// verifyReceipts checks the receipts in a text.
func (a *app) verifyReceipts(ctx context.Context, doc []byte, policy *seal.Policy) error {
	code := exitOK
	return cmp.Or(starling.VerifyReceipts(ctx, doc, policy, func(v starling.ReceiptVerdict) error {
		if v.Invalid != nil {
			code = exitInvalid
		}
		return a.emit(v.Document(), func() { view.Receipt(a.stdout, v) })
	}), silent(code))
}
