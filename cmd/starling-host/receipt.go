package main

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/view"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/display"
)

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
