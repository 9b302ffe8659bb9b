package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/tenant"
)

func (a *app) importCommand() *cobra.Command {
	return subcommand("import [DB] FILE", "import archived runs into a database", func(cmd *cobra.Command, args []string) error {
		ctx, where, path := cmd.Context(), args[0], args[1]
		if err := mustReadTwice(path); err != nil {
			return err
		}
		f, err := openArchive(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if isNew(where) { // which is not created for an archive that is wrong
			if _, err := store.CheckArchive(ctx, f); err != nil {
				return inArchive(path, err)
			}
			if _, err := f.Seek(0, 0); err != nil {
				return err
			}
		}
		log, err := openFor(ctx, where, toCreate)
		if err != nil {
			return err
		}
		defer log.Close()
		target, err := tenant.ForImport(ctx, log)
		if err != nil {
			return err
		}
		report, err := store.ImportArchive(ctx, target, f)
		if foreign := (*tenant.ForeignRunError)(nil); errors.As(err, &foreign) {
			return &failure{code: exitRefused, message: foreign.Error(), hint: "import it into a new database"}
		} else if err != nil {
			return inArchive(path, err)
		}
		if err := log.Close(); err != nil {
			return err
		}
		if report.Known > 0 {
			a.stdout.Printf("imported %d of %s; %d already existed%s\n", report.Runs-report.Known, display.Plural(report.Runs, "run"), report.Known, encrypted(report))
		} else {
			a.stdout.Printf("imported %s%s\n", contents(report), encrypted(report))
		}
		return nil
	})
}

// mustReadTwice refuses a source that can be read only once, such as a pipe. It runs before the
// file is opened, because opening a named pipe waits for its other end.
func mustReadTwice(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return usagef("an archive is checked before it is imported, so it is read twice: write it to a file first",
			"%s: not a regular file", path)
	}
	return nil
}
