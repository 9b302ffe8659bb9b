package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/tenant"
)

const importHelp = `Import the runs and modules of an archive into a database, which is created if it does
not exist. The whole archive is checked first. If it is invalid, or if the database
has another run with one of its ids, nothing is changed. Runs that are already in the
database are skipped.

Decrypted runs of a tenant are refused in a database that has or had this tenant:
there its runs are encrypted, and erased with its key. Runs encrypted for a tenant of
the same name on another host are refused too, because the key differs.`

func (a *app) importCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "import [DB] FILE",
		Short:   "import archived runs into a database",
		Long:    importHelp,
		Example: "  starling-host import old.db 2026-01.ndjson",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.importArchive(cmd.Context(), args[0], args[1])
		},
	}
}

func (a *app) importArchive(ctx context.Context, where, path string) error {
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
	keys, err := tenantsOf(ctx, where)
	if err != nil {
		return err
	}
	report, err := store.ImportArchive(ctx, importTarget{log, keys}, f)
	if err != nil {
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

// importTarget is a database that refuses, for its own tenants, plain runs and runs that their keys
// do not decrypt.
type importTarget struct {
	database
	keys map[string]string // ids of data keys by tenant ids
}

// Takes implements [store.ArchiveChooser].
func (t importTarget) Takes(first event.Event) error {
	id, _, _ := strings.Cut(first.RunID, "/")
	key, ours := t.keys[id]
	encrypted, ok := event.AsEncrypted(first.Payload)
	why := "is encrypted for a tenant of another host"
	switch {
	case !ours:
		return nil
	case !ok:
		why = "is in the clear, and the database encrypts what tenant " + strconv.Quote(id) + " does"
	case key == "" || key == hex.EncodeToString(encrypted.Key): // the runs of an erased one are unreadable
		return nil
	}
	return &failure{code: exitRefused, message: fmt.Sprintf("run %q %s", first.RunID, why), hint: "import it into a new database"}
}

// tenantsOf returns the ids of the data keys of a database's tenants. Erased tenants have none.
func tenantsOf(ctx context.Context, where string) (map[string]string, error) {
	log, err := openDatabase(ctx, where)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	store, err := tenant.Open(ctx, log, tenant.Options{Existing: true, AsIs: true})
	if errors.Is(err, tenant.ErrNoTables) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return store.DataKeyIDs(ctx)
}
