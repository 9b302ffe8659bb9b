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

const pushHelp = `Store a tool in an OCI registry, so that others run it by its name.

NAME is oci://REGISTRY/NAME:TAG, or oci-layout:FOLDER:TAG for a folder in the OCI
layout. The artefact is the module that the host runs: with its sidecar as a section,
and a component as the core module that its parts are joined to. It has one layer of
the type application/wasm, as other hosts and wkg expect. Annotations have the
description, the tools, the hosts that they request and the limits that they want.
The same module always gets the same digest.

The credentials are those of docker: ~/.docker/config.json, or the folder of
DOCKER_CONFIG, with its helpers. Registries on this machine are reached without TLS,
others only with --plain-http.

Standard output has the name with its digest, which is also pinned in starling.lock.`

const pullHelp = `Fetch a tool into the cache, so that it runs without a network.

NAME is oci://REGISTRY/NAME:TAG, oci-layout:FOLDER:TAG or https://HOST/FILE.wasm. The
tag is pinned to its digest in starling.lock in this folder. Commands that run a tool
by this name then use that digest, whatever happens to the tag. If the tag has another
digest now, pull refuses it; --update pins the new one.

Standard output has the name with its digest. With FILE the module is also written to
that file, and its signature to FILE.sig.`

const listHelp = `List the tools of a repository, oci://REGISTRY/NAME, or of a folder,
oci-layout:FOLDER: each tag with its digest, size and description. Without NAME, list
the tools in the cache of this user.`

// registryFlags adds the flags of the commands that use registries.
func (a *app) registryFlags(cmd *cobra.Command, f *artifact.Finder) {
	cmd.Flags().BoolVar(&f.PlainHTTP, "plain-http", false, "reach the registry without TLS")
	a.outputFlag(cmd)
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
	cmd := &cobra.Command{
		Use:     "push TOOL NAME",
		Short:   "store a tool in a registry",
		Long:    pushHelp,
		Example: "  starling-host tool push dice.wasm oci://registry.example.com/tools/dice:1.0\n  starling-host tool push dice.wasm oci-layout:shared:dice-1.0",
		RunE: func(cmd *cobra.Command, args []string) error {
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
		},
	}
	a.registryFlags(cmd, &f)
	return cmd
}

func (a *app) pullCommand() *cobra.Command {
	var f artifact.Finder
	var update bool
	cmd := &cobra.Command{
		Use:     "pull NAME [FILE]",
		Short:   "fetch a tool into the cache, and pin its digest",
		Long:    pullHelp,
		Example: "  starling-host tool pull oci://registry.example.com/tools/dice:1.0",
		RunE: func(cmd *cobra.Command, args []string) error {
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
		},
	}
	a.registryFlags(cmd, &f)
	cmd.Flags().BoolVar(&update, "update", false, "accept and pin the digest that the tag has now")
	return cmd
}

func (a *app) listCommand() *cobra.Command {
	var f artifact.Finder
	cmd := &cobra.Command{
		Use:     "list [NAME]",
		Short:   "list the tools of a repository or of the cache",
		Long:    listHelp,
		Example: "  starling-host tool list",
		RunE: func(cmd *cobra.Command, args []string) error {
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
		},
	}
	a.registryFlags(cmd, &f)
	return cmd
}
