package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/cmd/starling-host/internal/verifier"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/serve/tenant"
)

// database is an event log in a database, with the methods of all backends.
type database = store.Database

// onServer reports whether a database is on a PostgreSQL server and not in a file.
func onServer(where string) bool { return store.OnServer(where) }

// named returns the name of a database for messages, without a password.
func named(where string) string { return store.Name(where) }

// defaultDatabase is where runs are recorded by default.
const defaultDatabase = "starling.db"

// ownDatabase are the commands that work without a database if none is named.
var ownDatabase = map[string]bool{"doctor": true, "mcp": true, "config": true}

// withDatabase decides for all commands whether their argument DB was given. It puts [defaultDatabase] in
// the place of an omitted one, and reports whether it was omitted: if there are no more arguments than the
// others that are required, if the first one is @last, or if it can only be a word of a query or a run.
func withDatabase(cmd *cobra.Command, args []string) (all []string, left bool) {
	names := operands(cmd)
	place := slices.Index(names, "[DB]")
	switch {
	case place < 0 || len(args) < place:
	case slices.Contains(names, "[QUERY...]"):
		left = len(args) == 0 || isQuery(args[0])
	case slices.Contains(names, "RUN..."):
		left = len(args) == 0 || !isDatabase(args[0])
	case len(args) < len(names):
		left = len(args) <= len(required(names)) || place == 0 && args[0] == starling.LastRun
	}
	if left {
		args = slices.Insert(slices.Clone(args), place, defaultDatabase)
	}
	return args, left
}

// isDatabase reports whether an argument can only be a database, or a bundle, which is read like
// one: the address of a server, or the path of a file with the first bytes of either.
func isDatabase(arg string) bool {
	const magic = "SQLite format 3\x00"
	return onServer(arg) || beginsAs(arg, magic) || isBundle(arg)
}

// isBundle reports whether a path is that of a bundle or of the page of one.
func isBundle(path string) bool {
	return !onServer(path) && (beginsAs(path, "PK\x03\x04") || beginsAs(path, "<!doctype html>\n<html"))
}

func beginsAs(path, magic string) bool { return strings.HasPrefix(headOf(path), magic) }

// headOf returns the first bytes of a regular file, or nothing.
func headOf(path string) string {
	f, err := keyfile.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head, _ := io.ReadAll(io.LimitReader(f, 200))
	return string(head)
}

// readBundle reads a bundle, or the one in a page.
func readBundle(ctx context.Context, path string) ([]byte, error) {
	file, err := readBounded(path, 2*seal.MaxBundleBytes)
	if err == nil && bytes.HasPrefix(file, []byte("<")) {
		if file, err = verifier.Bundle(ctx, file); err != nil {
			err = &failure{code: exitInvalid, message: path + ": " + err.Error()}
		}
	}
	return file, err
}

// unpacked is a temporary database of what a file has, for commands that read one.
type unpacked struct {
	database
	folder string
}

func (u unpacked) Close() error { return errors.Join(u.database.Close(), os.RemoveAll(u.folder)) }

// unpack fills a database that ends with the command.
func unpack(ctx context.Context, fill func(database) error) (database, error) {
	folder, err := os.MkdirTemp("", "starling-host")
	if err != nil {
		return nil, err
	}
	log, err := store.Open(ctx, filepath.Join(folder, "runs.db"), store.Options{})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	db := unpacked{log, folder}
	return whole(db, fill(db))
}

// openBundle puts the runs, modules and files of a bundle into a database.
func openBundle(ctx context.Context, path string) (database, error) {
	file, err := readBundle(ctx, path)
	if err != nil {
		return nil, err
	}
	b, _, err := seal.OpenBundle(ctx, file)
	if err != nil {
		return nil, &failure{code: exitInvalid, message: path + ": " + starling.PlainError(err)}
	}
	return unpack(ctx, func(log database) (err error) {
		var needs eventlog.Needs
		for _, events := range b.Runs {
			var contents []eventlog.Content
			for _, e := range events {
				encrypted := needs.Of(ctx, e, b, func(n eventlog.Need) error {
					contents = append(contents, n.Content)
					return nil
				})
				if encrypted != nil { // all else was checked
					break
				}
			}
			err = cmp.Or(err, log.PutContents(ctx, "", contents))
			for _, e := range events {
				err = cmp.Or(err, log.Import(ctx, e))
			}
			err = cmp.Or(err, log.Sync(ctx, events[0].RunID))
		}
		return err
	})
}

// openArchives puts the named runs of archives, and all modules, into a database.
func openArchives(ctx context.Context, paths, names []string) (database, error) {
	return unpack(ctx, func(log database) error {
		return eachArchive(paths, func(path string) error {
			f, err := keyfile.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = store.ImportArchive(ctx, namedRuns{log, names}, f)
			return err
		})
	})
}

// namedRuns is a database that leaves out the other runs of an archive.
type namedRuns struct {
	database
	names []string // or beginnings of ids
}

func (l namedRuns) Import(ctx context.Context, e event.Event) error {
	for _, name := range l.names {
		if name == starling.LastRun || strings.HasPrefix(strings.ToLower(e.RunID), strings.ToLower(name)) {
			return l.database.Import(ctx, e)
		}
	}
	return nil
}

// namedToChange refuses to change or empty a database that was not named: the one in this folder
// may not be the intended one.
func namedToChange(changes func() bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if changes() && len(args) == 0 {
			return usagef("with the same flags: "+display.Command(cmd.CommandPath(), defaultDatabase), "%s: name the database to change", cmd.Name())
		}
		return arguments(cmd, args)
	}
}

// openDatabase opens a database that must be there, or a bundle in place of one, for reading
// only.
func openDatabase(ctx context.Context, where string) (database, error) {
	if err := mustBeThere(where); err != nil {
		return nil, err
	}
	if isBundle(where) {
		return openBundle(ctx, where)
	}
	log, err := store.Open(ctx, where, store.Options{ReadOnly: true})
	switch {
	case err == nil:
		return log, nil
	case onServer(where):
		return nil, &starling.OpenError{Where: where, Err: err}
	}
	return nil, unreadable(ctx, err)
}

// readFlags open a database for commands that read runs, which may be encrypted.
type readFlags struct{ keyFile string }

func (f *readFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.keyFile, "key-file", "", "`FILE` with the master key, for runs of tenants; without, the variable "+tenant.MasterKeyVariable)
}

// open opens a database that must be there, for reading only. With a master key
// the runs of tenants are read as they were before they were encrypted.
func (f *readFlags) open(ctx context.Context, where string) (database, error) {
	log, err := openDatabase(ctx, where)
	if err != nil {
		return nil, err
	}
	keys, err := tenant.MasterKeys(f.keyFile)
	if err != nil || len(keys) == 0 {
		return whole(log, err)
	}
	opened, err := tenant.Decrypt(ctx, log, keys)
	if err != nil {
		log.Close()
	}
	return opened, err
}

// readCommand is a command that reads the database of its argument DB, which is closed
// afterwards.
func readCommand(use, short string, read databaseAction, add ...func(*cobra.Command)) *cobra.Command {
	var f readFlags
	return databaseCommand(use, short, f.open, read, append(add, f.add)...)
}

// databaseAction is the action of a command on the database of its argument DB.
type databaseAction func(ctx context.Context, log database, args []string) error

// databaseCommand is a command on the database of its argument DB, which open opens and which is
// closed afterwards.
func databaseCommand(use, short string, open func(ctx context.Context, where string) (database, error), do databaseAction, add ...func(*cobra.Command)) *cobra.Command {
	return subcommand(use, short, func(cmd *cobra.Command, args []string) error {
		log, err := open(cmd.Context(), args[slices.Index(operands(cmd), "[DB]")])
		if err != nil {
			return err
		}
		defer log.Close()
		return do(cmd.Context(), log, args)
	}, add...)
}

// whole returns log, or closes it if there is an error.
func whole(log database, err error) (database, error) {
	if err != nil {
		log.Close()
		return nil, err
	}
	return log, nil
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

// mustBeThere refuses a path without a readable file. A server is contacted later.
func mustBeThere(where string) error {
	if onServer(where) {
		return nil
	}
	return starling.CheckFile(where)
}

// unreadable returns the failure of a command that cannot read its log. The failure reports an
// invalid log if the error does: a changed byte may have damaged the structure of the file instead
// of an event. A missing file, a lock, and failures of a disk or a server do not make a log
// invalid. The end of ctx and a database of a newer program keep their own errors.
func unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, eventlog.ErrSchemaTooNew) || errors.Is(err, eventlog.ErrSchemaOutdated) {
		return err
	}
	f := &failure{code: exitFailed, message: "the log cannot be read: " + starling.PlainError(err), hint: hintOf(err)}
	if errors.As(err, new(*eventlog.MissingTableError)) || eventlog.IsVerdict(err) || errors.Is(err, store.ErrNotLog) {
		f.code = exitInvalid
	}
	return f
}

// interrupted returns the failure of a command that goes through runs and could not read the next
// one. It has printed the runs before it.
func interrupted(ctx context.Context, err error, what string, done, all int) error {
	if unread := (*starling.UnreadError)(nil); ctx.Err() != nil || !errors.As(err, &unread) {
		return err
	}
	return &failure{code: exitFailed, message: fmt.Sprintf("%d of %s %s; then %s", done, display.Plural(all, "run"), what, starling.PlainError(err)),
		hint: "of the rest nothing is known: run the command again when the database can be read"}
}

// access is the access that a command needs to a database.
type access int

const (
	toRead    access = iota // changes nothing, and creates no table and no file
	toMigrate               // changes an existing database of any layout
	toChange                // changes an existing database
	toCreate                // creates the database and its tables if they are missing
)

// open opens a database for the access of a command.
func (do access) open(ctx context.Context, where string) (database, error) {
	if do == toRead {
		return openDatabase(ctx, where)
	}
	if do != toCreate {
		if err := mustBeThere(where); err != nil {
			return nil, err
		}
	}
	log, err := store.Open(ctx, where, store.Options{})
	if err == nil && do != toMigrate {
		if err = eventlog.Preflight(ctx, log); err != nil {
			log.Close()
		}
	}
	if err != nil {
		return nil, &starling.OpenError{Where: where, Err: err}
	}
	return log, nil
}

// completing completes words of a database, each followed by a tab and a description. The database
// is the first argument or [defaultDatabase]. If none of its words begins like the typed text, it
// offers files, which may be another database.
func completing(words func(ctx context.Context, log database) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) (list []string, _ cobra.ShellCompDirective) {
		where, otherwise := defaultDatabase, cobra.ShellCompDirectiveDefault
		if len(args) > 0 {
			where, otherwise = args[0], cobra.ShellCompDirectiveNoFileComp
		}
		if len(args) > 1 || where == starling.LastRun {
			return nil, otherwise
		}
		log, err := openDatabase(cmd.Context(), where)
		if err != nil {
			return nil, otherwise
		}
		defer log.Close()
		for _, line := range words(cmd.Context(), log) {
			word, _, _ := strings.Cut(line, "\t")
			// A shell evaluates completions, so only single words are offered.
			if (word == starling.LastRun || eventlog.CheckRunID(word) == nil) && strings.HasPrefix(strings.ToLower(word), strings.ToLower(toComplete)) {
				list = append(list, line)
			}
		}
		return list, otherwise
	}
}

// runWords are the newest runs' ids.
func runWords(ctx context.Context, log database) []string {
	page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: 50, Begun: true})
	if err != nil {
		return nil
	}
	words := []string{starling.LastRun + "\tthe newest run"}
	for _, run := range page.Runs {
		words = append(words, fmt.Sprintf("%s\t%s, %s", run.RunID, run.Status(), run.StartedAt.UTC().Format(time.DateTime)))
	}
	return words
}
