package main

import (
	"context"
	"errors"
	"io/fs"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
)

func (a *app) backupCommand() *cobra.Command {
	return databaseCommand("backup [DB] FILE", "copy a database that may be in use", openFile("pg_dump"), func(ctx context.Context, _ database, args []string) error {
		dst := args[1]
		report, err := store.Backup(ctx, args[0], dst)
		if err != nil {
			return copyFailed(ctx, dst, err)
		}
		return a.stdout.Printf("copied %s, %s, to %s\n", display.Plural(report.Runs, "run"), display.Size(uint64(report.Bytes)), dst)
	})
}

func (a *app) restoreCommand() *cobra.Command {
	return subcommand("restore FILE DB", "replace a database with a backup", func(cmd *cobra.Command, args []string) error {
		src, dst := args[0], args[1]
		if onServer(dst) {
			return usagef("use pg_restore", "%s is on a server, not in a file", named(dst))
		}
		if err := mustBeFile(src, "pg_restore"); err != nil {
			return err
		}
		report, replaced, err := store.Restore(cmd.Context(), src, dst)
		if err != nil {
			return copyFailed(cmd.Context(), dst, err)
		}
		a.stdout.Printf("restored %s, %s, to %s\n", display.Plural(report.Runs, "run"), display.Size(uint64(report.Bytes)), dst)
		if replaced != "" {
			a.stderr.Printf("the old database is %s\n", replaced)
		}
		return nil
	})
}

// mustBeFile refuses a database that cannot be copied as a file.
func mustBeFile(where, instead string) error {
	if onServer(where) {
		return usagef("use "+instead, "%s is on a server, not in a file", named(where))
	}
	return mustBeThere(where)
}

// openFile opens a database that is copied as a file, which says best why it cannot be read.
func openFile(instead string) func(context.Context, string) (database, error) {
	return func(ctx context.Context, where string) (database, error) {
		if err := mustBeFile(where, instead); err != nil {
			return nil, err
		}
		return openDatabase(ctx, where)
	}
}

// copyFailed explains why a copy was not made, or is not valid.
func copyFailed(ctx context.Context, dst string, err error) error {
	switch {
	case ctx.Err() != nil, errors.Is(err, eventlog.ErrLogCorrupt), store.DiskFailed(err):
		return err
	case errors.Is(err, fs.ErrExist):
		if there, ok := errors.AsType[*fs.PathError](err); ok { // an earlier copy may have left it beside dst
			dst = there.Path
		}
		return notOver(dst, err)
	}
	return &failure{code: exitFailed, message: starling.PlainError(err)}
}

func (a *app) forkCommand() *cobra.Command {
	const instead = "backup, pg_dump and a database of its own"
	return databaseCommand("fork [DB] RUN SEQ FILE", "copy a database with a run cut at an event", openFile(instead), func(ctx context.Context, log database, args []string) error {
		src, dst := args[0], args[3]
		seq, err := strconv.ParseUint(args[2], 10, 63)
		if err != nil {
			return usagef("list the numbers: starling-host show DB RUN", "SEQ %q is not the number of an event: numbers start at 1, and 0 keeps all events", args[2])
		}
		runID, err := starling.FindRun(ctx, log, args[1])
		if err != nil {
			return err
		}
		summary, err := log.Run(ctx, runID)
		if err != nil {
			return err
		}
		if seq > summary.LastSeq+1 {
			return usagef("use 0 to keep all events", "%s has %s, so it cannot be cut at %d", summary.RunID, display.Plural(summary.LastSeq, "event"), seq)
		}
		if err := store.Fork(ctx, src, dst, summary.RunID, seq); err != nil {
			return copyFailed(ctx, dst, err)
		}
		kept := summary.LastSeq
		if seq > 0 {
			kept = min(kept, seq-1)
		}
		return a.stdout.Printf("%s has %d of %s in %s\n", summary.RunID, kept, display.Plural(summary.LastSeq, "event"), dst)
	})
}
