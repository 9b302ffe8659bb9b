package main

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/terminal"
)

func (a *app) signCommand() *cobra.Command {
	var f artifact.Finder
	var key, name string
	cmd := subcommand("sign TOOL", "sign a tool in a file or in a registry", func(cmd *cobra.Command, args []string) error {
		if key == "" {
			return usagef("make one with: starling-host seal keygen seal.key --name example.com/tools", "sign: --key FILE is missing")
		}
		k, err := readSealKey(key)
		if err != nil {
			return err
		}
		return a.sign(cmd.Context(), args[0], name, k, f)
	}, a.registryFlags(&f))
	cmd.Flags().StringVar(&key, "key", "", "`KEYFILE` with the key that signs")
	cmd.Flags().StringVar(&name, "name", "", "sign a file under this `NAME`, such as example.com/tools/dice")
	return cmd
}

func (a *app) sign(ctx context.Context, ref, name string, key *seal.Key, f artifact.Finder) error {
	var wasm, earlier []byte
	var place string
	var store func(signed []byte) error
	if artifact.IsRemote(ref) {
		if name != "" {
			return usagef("", "--name is for files: a tool in a registry is signed under the name of its repository")
		}
		p, err := f.Pull(ctx, ref, false)
		if err != nil {
			return err
		}
		source, _, err := a.examine(ctx, p.Source.Source, f)
		if err != nil {
			return err
		}
		name, wasm, place = artifact.SignedName(ref), source.Wasm, p.Source.Source
		store = func(signed []byte) error { return f.Attach(ctx, ref, p, signed) }
	} else {
		source, _, err := a.examine(ctx, ref, f)
		if err != nil {
			return err
		}
		switch {
		case source.Source == "":
			return usagef("", "sign: %s has no file to sign", ref)
		case name == "":
			name = source.Name
		case name != source.Name && !strings.HasSuffix(name, "/"+source.Name):
			return usagef("", "--name: the last word of %q must be the name of the file, %s", name, source.Name)
		}
		wasm, place = source.Wasm, artifact.SignatureFile(source.Source)
		if earlier, err = config.ReadFile(place); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		store = func(signed []byte) error { return keyfile.Replace(place, signed, 0o644) }
	}
	digest := canon.Sum(wasm)
	signed, err := seal.ToolStatement{Name: name, Module: digest}.Sign(key, earlier)
	if err == nil {
		err = store(signed)
	}
	if err != nil {
		return err
	}
	return a.printShared(sharedDocument{Name: place, Digest: digest.String()}, "signed as "+name)
}

// verifiedDocument is the output of "tool verify -o json".
type verifiedDocument struct {
	Name   string   `json:"name"` // that was signed
	Digest string   `json:"digest"`
	By     []string `json:"by"`
}

func (a *app) verifyToolCommand() *cobra.Command {
	var f artifact.Finder
	var trust string
	var keys []string
	cmd := subcommand("verify TOOL", "check who signed a tool", func(cmd *cobra.Command, args []string) error {
		if (trust == "") == (len(keys) == 0) {
			return usagef("starling-host tool verify --help", "verify: give --key VKEY or --trust FILE")
		}
		vkeys, err := vkeysIn("--key", keys)
		if err != nil {
			return err
		}
		finder, err := finderOf(trust)
		if err != nil {
			return err
		}
		if f.Trust = finder.Trust; f.Trust == nil {
			f.Trust = artifact.TrustKeys(vkeys...)
		}
		found, err := f.Verify(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if len(found.By) == 0 {
			return usagef("", "verify: %s is part of this program and has no signature", args[0])
		}
		doc := verifiedDocument{Name: found.Signed, Digest: canon.Sum(found.Wasm).String(), By: found.By}
		return a.emit(doc, func() {
			a.stdout.Printf("%s: %s\n", terminal.Good.Of("signed"), doc.Name)
			a.stdout.Printf("digest  %s\n", doc.Digest)
			for _, key := range doc.By {
				a.stdout.Printf("by      %s\n", key)
			}
		})
	}, a.registryFlags(&f))
	cmd.Flags().StringVar(&trust, "trust", "", "`FILE` that says which keys may sign which tools")
	cmd.Flags().StringArrayVar(&keys, "key", nil, "accept signatures of this `VKEY`, or a file with it; may be repeated")
	return cmd
}
