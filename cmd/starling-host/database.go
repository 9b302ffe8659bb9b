package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/eventlog/sqlitelog"
)

// lastRun names the newest run where a run's id is expected.
const lastRun = "@last"

// database is an event log in a database: what all backends can do.
type database interface {
	eventlog.EventLog
	eventlog.EventSource
	eventlog.RunLister
	eventlog.RunPageLister
	eventlog.RunFinder
	eventlog.RunPruner
	eventlog.ModuleStore
	eventlog.ModuleKeeper
	eventlog.SchemaKeeper
	eventlog.Transactor
	eventlog.Fencer
}

// onServer reports whether DB is the address of a PostgreSQL server and not the
// path of a file.
func onServer(where string) bool {
	return strings.HasPrefix(where, "postgres://") || strings.HasPrefix(where, "postgresql://")
}

// named is how a database is called in messages: without a password.
func named(where string) string {
	u, err := url.Parse(where)
	switch {
	case !onServer(where):
		return where
	case err != nil:
		return "the database"
	}
	return u.Redacted()
}

// defaultDatabase is where runs are recorded unless somebody names another place.
const defaultDatabase = "starling.db"

// databaseIn returns the one argument of a command that looks into a database.
func databaseIn(args []string) string {
	if len(args) == 0 {
		return defaultDatabase
	}
	return args[0]
}

// openDatabase opens a database that must be there, for reading only.
func openDatabase(ctx context.Context, where string) (database, error) {
	if onServer(where) {
		log, err := pglog.Open(ctx, where, pglog.Options{ReadOnly: true})
		if err != nil {
			return nil, unreachable(where, err)
		}
		return log, nil
	}
	if err := mustBeThere(where); err != nil {
		return nil, err
	}
	log, err := sqlitelog.Open(ctx, where, sqlitelog.Options{ReadOnly: true})
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	return log, nil
}

// inFile names the file that could not be opened.
func inFile(path string, err error) error {
	if dir := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) {
		hint := ""
		if strings.Contains(path, ":/") {
			hint = "the address of a server begins with postgres:// or postgresql://"
		}
		return usagef(hint, "%s: there is no folder %s", path, dir)
	}
	f := *explain(err)
	f.message = path + ": " + f.message
	return &f
}

// unreachable is the failure to open a database on a server. The driver says on lines
// of their own what came of each address that it tried.
func unreachable(where string, err error) error {
	text := strings.Join(strings.Fields(plainError(err)), " ")
	f := &failure{code: exitFailed, message: fmt.Sprintf("%s: %s", named(where), text)}
	if pglog.Denied(err) {
		f.hint = deniedHint
	}
	return f
}

// isNew reports whether to open a database for runs will make it. One on a server is
// there.
func isNew(where string) bool {
	if onServer(where) {
		return false
	}
	_, err := os.Stat(where)
	return errors.Is(err, fs.ErrNotExist)
}

// mustBeThere refuses what is no file that can be read.
func mustBeThere(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return noDatabase(path)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return usagef("", "%s: not a regular file", path)
	}
	f, err := os.Open(path) // SQLite would not say that permission is missing
	if err != nil {
		return err
	}
	return f.Close()
}

// unreadable makes a log that cannot be read one that is not valid: a byte that
// was changed may have hit the structure of the file instead of an event. Of a disk that
// failed, or cannot be written to, it is not said, and the end of ctx and a database of a
// newer program stay what they are.
func unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, eventlog.ErrSchemaTooNew) {
		return err
	}
	f := &failure{code: exitInvalid, message: "the log cannot be read: " + plainError(err)}
	switch {
	case sqlitelog.DiskFailed(err):
		f.code, f.hint = exitFailed, "its disk failed or is full: also to read takes a little room beside the log"
	case errors.Is(err, sqlitelog.ErrWALNotReadable):
		f.code, f.hint = exitFailed, "copy it, and the -wal beside it, to a folder that you can write to"
	}
	return f
}

// openForRuns opens a database to record runs in. A file that is not there is
// created.
func openForRuns(ctx context.Context, where string) (database, error) {
	log, err := openToWrite(ctx, where)
	if err != nil {
		return nil, err
	}
	if err := eventlog.Preflight(ctx, log); err != nil {
		log.Close()
		return nil, &failure{code: exitFailed, message: plainError(err), hint: pasteable("starling-host migrate", named(where))}
	}
	return log, nil
}

// openToWrite opens a database whatever its layout is.
func openToWrite(ctx context.Context, where string) (database, error) {
	if !onServer(where) {
		log, err := sqlitelog.Open(ctx, where, sqlitelog.Options{})
		if err != nil {
			return nil, inFile(where, err)
		}
		return log, nil
	}
	log, err := pglog.Open(ctx, where, pglog.Options{})
	if err != nil {
		return nil, unreachable(where, err)
	}
	return log, nil
}

func noDatabase(path string) error {
	return usagef("starling-host run records into starling.db unless --db names another file", "%s: no such database", path)
}

// resolveRun returns the id of the run that name stands for: @last, a whole id,
// or the beginning of one that no other run shares. Letters may be lower case.
func resolveRun(ctx context.Context, log database, name string) (string, error) {
	log = asStored(log) // a run that is encrypted has its id in the clear
	if name == lastRun {
		page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: 1})
		if err == nil && len(page.Runs) == 0 {
			err = usagef("", "the database holds no runs")
		}
		if err != nil {
			return "", err
		}
		return page.Runs[0].RunID, nil
	}
	if _, err := log.Run(ctx, name); !errors.Is(err, eventlog.ErrRunNotFound) {
		return name, err // a whole id, however many others begin with it
	}
	var found, ofTenants []string
	for seen, more := 0, true; more && len(found) < 2; {
		page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Query: name, Limit: eventlog.MaxPageLimit, Offset: seen})
		if err != nil {
			return "", err
		}
		for _, run := range page.Runs {
			if hasPrefixFold(run.RunID, name) {
				found = append(found, run.RunID)
			}
			if _, id, ok := strings.Cut(run.RunID, "/"); ok && hasPrefixFold(id, name) {
				ofTenants = append(ofTenants, run.RunID)
			}
		}
		seen += len(page.Runs)
		more = len(page.Runs) > 0 && seen < page.TotalMatching
	}
	switch {
	case len(found) == 0 && len(ofTenants) > 0: // the API has ids without their tenant
		return "", usagef("a run of a tenant is TENANT/ID, here: "+ofTenants[0], "no run %q", name)
	case len(found) == 0:
		return "", usagef("list the runs with: starling-host runs DB", "no run %q", name)
	case len(found) > 1:
		return "", usagef("give more of the id", "%q is the beginning of several runs, such as %s and %s", name, found[0], found[1])
	}
	return found[0], nil
}

func hasPrefixFold(s, prefix string) bool {
	return prefix != "" && len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// completeRuns completes DB and RUN: file names, then the newest runs' ids.
func completeRuns(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return nil, cobra.ShellCompDirectiveDefault
	case 1:
		return runCompletions(cmd.Context(), args[0], toComplete), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func runCompletions(ctx context.Context, path, toComplete string) []string {
	log, err := openDatabase(ctx, path)
	if err != nil {
		return nil
	}
	defer log.Close()
	page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: 50})
	if err != nil {
		return nil
	}
	var words []string
	if strings.HasPrefix(lastRun, toComplete) {
		words = append(words, lastRun+"\tthe newest run")
	}
	for _, run := range page.Runs {
		// A shell evaluates what it completes, so an id that is more than a word is not offered.
		if eventlog.CheckRunID(run.RunID) == nil && (toComplete == "" || hasPrefixFold(run.RunID, toComplete)) {
			words = append(words, fmt.Sprintf("%s\t%s, %s", run.RunID, run.Status(), run.StartedAt.UTC().Format(time.DateTime)))
		}
	}
	return words
}
