package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
)

type partitionsFlags struct {
	store.Retirement
	ahead           int
	dropBefore, key string
}

func (a *app) partitionsCommand() *cobra.Command {
	var f partitionsFlags
	cmd := subcommand("partitions DB", "divide a server's events by month, and drop old months", func(cmd *cobra.Command, args []string) error {
		return a.partitions(cmd.Context(), args[0], f)
	})
	flags := cmd.Flags()
	flags.IntVar(&f.ahead, "ahead", 3, "make the partitions of this month and the `N` next ones")
	flags.StringVar(&f.dropBefore, "drop-before", "", "drop the partitions that end before this `MONTH`, such as 2026-01")
	flags.StringVar(&f.ArchiveTo, "archive-to", "", "write their runs to an archive in this `FOLDER` first")
	flags.StringVar(&f.key, "key", "", "`KEYFILE` with the key that signs: seal the runs before, and their removal afterwards")
	flags.BoolVar(&f.DryRun, "dry-run", false, "print the steps and change nothing")
	return cmd
}

func (a *app) partitions(ctx context.Context, where string, f partitionsFlags) error {
	var err error
	switch {
	case !onServer(where):
		return usagef("to remove runs from a file: "+display.Command("starling-host prune", where), "%s is a file: only a PostgreSQL server has partitions", where)
	case f.ahead < 0 || f.ahead > 120:
		return usagef("", "--ahead must be from 0 to 120")
	case f.dropBefore == "" && f.ArchiveTo+f.key != "":
		return needsFlag("--drop-before 2026-01", "--archive-to and --key are for the partitions to drop")
	case f.dropBefore != "":
		f.Why = "partitions --drop-before " + f.dropBefore
		if f.Before, err = time.Parse("2006-01", f.dropBefore); err != nil || f.Before.After(time.Now()) {
			return needsFlag("--drop-before 2026-01", "--drop-before %q is not a month until now", f.dropBefore)
		}
	}
	key, err := readSealKey(f.key)
	if err != nil {
		return err
	}
	do, did := toChange, ""
	if f.DryRun {
		do, did = toRead, "would have "
	}
	log, err := openFor(ctx, where, do)
	if err != nil {
		return err
	}
	defer log.Close()
	server := log.(*store.Server)
	made, err := server.MakePartitions(ctx, time.Now(), f.ahead, f.DryRun)
	if err != nil {
		return err
	}
	for _, p := range made {
		a.stdout.Printf("%smade %s\n", did, p.Name)
	}
	if f.Before.IsZero() {
		return nil
	}
	sealed, err := seal.Kept(ctx, log)
	sign := sealed && key != nil && !f.DryRun
	if err == nil && sign {
		_, err = sealNow(ctx, log, where, key)
	}
	if err != nil {
		return err
	}
	dropped, err := store.DropPartitions(ctx, server, f.Retirement)
	for _, d := range dropped {
		to := ""
		if d.Archive != "" {
			to = ", archived in " + d.Archive
		}
		a.stdout.Printf("%sdropped %s: %s, %s%s\n", did, d.Name, display.Plural(d.Runs, "run"), display.Plural(uint64(d.Events), "event"), to)
	}
	if len(dropped) == 0 || f.DryRun {
		return err
	}
	if sign {
		_, e := sealNow(ctx, log, where, key)
		err = errors.Join(err, e)
	}
	var c eventlog.ModuleCount
	if err == nil {
		c, err = a.collect(ctx, log)
	}
	a.printCollected(c)
	if err = cmp.Or(err, log.Close()); err == nil && sealed && !sign {
		a.sealRemovals(where)
	}
	return err
}
