package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/display"
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

// source finds a module for a command that does not run its tools.
func (a *app) source(ctx context.Context, ref string) (guest.Source, error) {
	return artifact.Finder{}.Find(ctx, ref)
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
