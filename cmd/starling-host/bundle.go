package main

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/verifier"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/keyfile"
)

const bundleHelp = `Put runs into one file that anyone can check, offline and on any machine: their events,
the modules that they executed, and the proofs that the newest checkpoint of the
database has them. Only its owner can read the file. A file that exists is never
overwritten.

The file is a ZIP archive without compression, and says itself what is in it
(spec/bundle.md). "starling-host verify" checks it and executes the runs again.

With --html the file is a page instead. Anyone opens it in a browser, offline and with
nothing installed. It shows the runs, checks what verify checks, and executes the runs
again on the browser's own engine. It loads nothing and sends nothing. The bundle is in
it and can be saved from it.

Runs of tenants are written as they are stored, encrypted: the file proves that they
are in the log, and they cannot be executed from it. With the master key, show, export
and replay read them in the database: what was sealed is the encrypted run.

Commands that read a database, such as runs, show, replay and inspect, take a bundle or
a page in its place.`

const bundleExample = `  starling-host seal --key seal.key
  starling-host bundle @last -o dice.starling
  starling-host verify dice.starling --key seal.vkey
  starling-host bundle @last --html -o dice.html`

func (a *app) bundleCommand() *cobra.Command {
	var out string
	var html bool
	cmd := &cobra.Command{
		Use:     "bundle [DB] RUN...",
		Short:   "put runs and their proofs into one file",
		Long:    bundleHelp,
		Example: bundleExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) == 1 && isDatabase(args[0]) {
				return usagef(cmd.CommandPath()+" @last -o last.starling", "bundle: missing argument RUN")
			}
			if out == "" {
				return usagef(cmd.CommandPath()+" @last -o last.starling", "bundle: -o FILE is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			where := defaultDatabase
			if isDatabase(args[0]) {
				where, args = args[0], args[1:]
			}
			return a.bundle(cmd.Context(), where, args, out, html)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write `FILE`")
	cmd.Flags().BoolVar(&html, "html", false, "write a page that shows and verifies the runs in a browser")
	return cmd
}

func (a *app) bundle(ctx context.Context, where string, runs []string, out string, html bool) error {
	log, err := openDatabase(ctx, where)
	if err != nil {
		return err
	}
	defer log.Close()
	b, err := starling.Over(log, starling.Options{}).Bundle(ctx, runs...)
	if err != nil {
		return notSealed(where, err)
	}
	file, err := b.Bytes()
	if err != nil {
		return err
	}
	if html {
		if file, err = verifier.Page(file, programVersion()); err != nil {
			return err
		}
	}
	if err := keyfile.Create(out, file); err != nil {
		return notOver(out, err)
	}
	a.stdout.printf("%s and %s in %s, %s\n", plural(len(b.Runs), "run"), plural(len(b.Modules), "module"), out, formatSize(uint64(len(file))))
	if slices.ContainsFunc(b.Runs, func(events []event.Event) bool {
		_, encrypted := event.AsEncrypted(events[0].Payload)
		return encrypted
	}) {
		a.warn("a run of a tenant is encrypted: the file proves that it was sealed, and shows and executes nothing of it")
		a.hint("with the master key the database does: " + pasteable("starling-host replay", named(where), runs[0]) + " --key-file FILE")
	}
	if len(b.Proofs) == 0 {
		const proves = ", so the file proves that tools did what is recorded, and not who recorded it"
		if last := b.Runs[0][len(b.Runs[0])-1]; !last.Kind.Terminal() {
			a.warn("a run that has not ended is in no checkpoint" + proves)
			return nil
		}
		a.warn(named(where) + " was never sealed" + proves)
		a.hint(pasteable("starling-host seal --key seal.key", named(where)))
	}
	return nil
}

// notSealed explains that a run is in no checkpoint.
func notSealed(where string, err error) error {
	if errors.Is(err, seal.ErrNotSealed) || errors.Is(err, seal.ErrNoLog) {
		return usagef(pasteable("starling-host seal --key seal.key", named(where)), "%s", starling.PlainError(err))
	}
	return err
}

const proveHelp = `Print a proof that a run is in the newest checkpoint of its database. With SEQ the
proof is about one event of the run, and shows none of the others.

The proof is a JSON document (spec/seal.md, section 6). With it alone,
"starling-host verify" and any program that knows the formats check it offline. A run
that was pruned or erased can be proven to have been there.`

func (a *app) proveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "prove [DB] RUN [SEQ]",
		Short:   "prove that a run, or one event of it, was sealed",
		Long:    proveHelp,
		Example: "  starling-host seal --key seal.key\n  starling-host prove starling.db @last 2 > event.json\n  starling-host verify event.json --key seal.vkey",
		RunE: func(cmd *cobra.Command, args []string) error {
			seq := uint64(0)
			if len(args) == 3 {
				var err error
				if seq, err = strconv.ParseUint(args[2], 10, 63); err != nil || seq == 0 {
					return usagef("events are numbered from 1", "SEQ %q is no number of an event", args[2])
				}
			}
			return a.prove(cmd.Context(), args[0], args[1], seq)
		},
	}
}

func (a *app) prove(ctx context.Context, where, run string, seq uint64) error {
	log, err := openDatabase(ctx, where)
	if err != nil {
		return err
	}
	defer log.Close()
	s, err := starling.Over(log, starling.Options{}).Prove(ctx, run, seq)
	if err != nil {
		return notSealed(where, err)
	}
	doc, err := s.JSON()
	if err != nil {
		return err
	}
	_, err = a.stdout.exact().Write(doc)
	return err
}
