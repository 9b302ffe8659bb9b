package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
)

const migrateHelp = `Bring a database to the layout that this program writes, in one transaction. A
database that is current is left alone. An older one can be read as it is; only
"run" needs this.`

func (a *app) migrateCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "migrate DB",
		Short:   "bring a database to the current layout",
		Long:    migrateHelp,
		Example: "  starling-host migrate starling.db --dry-run",
		GroupID: groupOther,
		Args:    arguments(1, "DB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.migrate(cmd.Context(), args[0], dryRun)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done and change nothing")
	return cmd
}

func (a *app) migrate(ctx context.Context, path string, dryRun bool) error {
	log, err := openToMigrate(ctx, path, dryRun)
	if err != nil {
		return err
	}
	defer log.Close()
	var options []eventlog.MigrateOption
	if dryRun {
		options = append(options, eventlog.WithDryRun())
	}
	report, err := eventlog.Migrate(ctx, log, options...)
	if err != nil {
		return err
	}
	for _, step := range report.Steps {
		fmt.Fprintln(a.stdout, step)
	}
	switch {
	case len(report.Steps) == 0:
		fmt.Fprintf(a.stdout, "current: layout %d\n", report.To)
	case dryRun:
		fmt.Fprintf(a.stdout, "would migrate from layout %d to %d: %d runs, %d events\n", report.From, report.To, report.Runs, report.Events)
	default:
		fmt.Fprintf(a.stdout, "migrated from layout %d to %d: %d runs, %d events\n", report.From, report.To, report.Runs, report.Events)
	}
	return nil
}

// openToMigrate opens a database that must be there. To open a file for writing
// would create it.
func openToMigrate(ctx context.Context, where string, dryRun bool) (database, error) {
	if !onServer(where) {
		if _, err := os.Stat(where); errors.Is(err, fs.ErrNotExist) {
			return nil, noDatabase(where)
		}
	}
	if dryRun {
		return openDatabase(ctx, where)
	}
	return openToWrite(ctx, where)
}
