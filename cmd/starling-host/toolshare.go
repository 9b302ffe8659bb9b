package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/terminal"
)

// registryFlags adds the flags of the commands that use registries.
func (a *app) registryFlags(f *artifact.Finder) func(*cobra.Command) {
	return func(cmd *cobra.Command) {
		cmd.Flags().BoolVar(&f.PlainHTTP, "plain-http", false, "reach the registry without TLS")
		a.outputFlag(cmd)
	}
}

// trustFlag adds --trust to the commands that run tools.
func trustFlag(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "trust", "", "run only modules signed by the keys that `FILE` names (see \"starling-host tool verify\")")
}

// finderOf returns what finds modules under a trust file. Without a path it requires no signatures.
func finderOf(trust string) (f artifact.Finder, err error) {
	if trust != "" {
		f.Trust, err = artifact.LoadTrust(trust)
	}
	return f, err
}

// sharedDocument is the output of "tool push", "tool pull" and "tool sign" in JSON.
type sharedDocument struct {
	Name   string `json:"name"`   // with the digest of the manifest, or of the file of a URL
	Digest string `json:"digest"` // of the module, as "tool describe" prints it
	File   string `json:"file,omitempty"`
	Cached bool   `json:"cached,omitempty"` // nothing was fetched
}

func (a *app) printShared(doc sharedDocument, what string) error {
	return a.emit(doc, func() {
		a.stderr.Printf("%s, module %s\n", what, doc.Digest)
		a.stdout.Printf("%s\n", doc.Name)
	})
}

func (a *app) pushCommand() *cobra.Command {
	var f artifact.Finder
	return subcommand("push TOOL NAME", "store a tool in a registry", func(cmd *cobra.Command, args []string) error {
		source, doc, err := a.examine(cmd.Context(), args[0], f)
		if err != nil {
			return err
		}
		about, err := doc.Annotations(source.Name)
		if err != nil {
			return err
		}
		name, err := f.Push(cmd.Context(), args[1], source.Wasm, about)
		if err != nil {
			return err
		}
		return a.printShared(sharedDocument{Name: name, Digest: doc.Digest}, "pushed "+display.Size(uint64(doc.Size)))
	}, a.registryFlags(&f))
}

func (a *app) pullCommand() *cobra.Command {
	var f artifact.Finder
	var update bool
	cmd := subcommand("pull NAME [FILE]", "fetch a tool into the cache, and pin its digest", func(cmd *cobra.Command, args []string) error {
		p, err := f.Pull(cmd.Context(), args[0], update)
		if err != nil {
			return err
		}
		doc, what := sharedDocument{Name: p.Source.Source, Digest: canon.Sum(p.Wasm).String(), Cached: p.Cached}, "pulled"
		if p.Cached {
			what = "already in the cache"
		}
		if len(args) == 2 {
			doc.File = args[1]
			err := writeFile(cmd.Context(), doc.File, p.Wasm, 0o644, true)
			if err == nil && len(p.Signatures) > 0 {
				err = writeFile(cmd.Context(), artifact.SignatureFile(doc.File), p.Signatures[0], 0o644, true)
			}
			if err != nil {
				return err
			}
		}
		return a.printShared(doc, what+" "+display.Size(uint64(len(p.Wasm))))
	}, a.registryFlags(&f))
	cmd.Flags().BoolVar(&update, "update", false, "accept and pin the digest that the tag has now")
	return cmd
}

func (a *app) listCommand() *cobra.Command {
	var f artifact.Finder
	return subcommand("list [NAME]", "list the tools of a repository or of the cache", func(cmd *cobra.Command, args []string) error {
		all, more, err := f.List(cmd.Context(), append(args, "")[0])
		if err != nil {
			return err
		}
		if more {
			a.warn(fmt.Sprintf("only the first %s are listed", display.Plural(uint64(len(all)), "tag")))
		}
		return a.emit(append([]artifact.Listed{}, all...), func() {
			for _, one := range all {
				a.stdout.Printf("%s  %.19s  %s  %s\n", one.Name, one.Digest, display.Size(uint64(one.Size)), display.Clip(one.Annotations["org.opencontainers.image.description"], 80))
			}
		})
	}, a.registryFlags(&f))
}

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
