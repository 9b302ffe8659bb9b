package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
)

const migrateHelp = `Upgrade a database to the current layout. Commands that read accept an older layout;
commands that record require the upgrade. Another program, such as the Starling
runtime, may write to the same file. Every command reads its events, and this command
adds them to the table of runs.

On a PostgreSQL server this also creates the tables of a host, and grants the roles
their rights, so that no host owns the tables. Connect as the owner of the tables;
each flag names an existing role. --host-role may serve: it appends events, and never
changes or removes one. --retention-role may remove runs, which "prune" and a host
with "retention" need. --reader-role may read, even on a standby server. After an
update of this program, run the same command again before you update the hosts.`

const migrateExample = `  starling-host migrate starling.db --dry-run
  starling-host migrate postgres://owner@db/starling --host-role app --reader-role auditor`

type migrateFlags struct {
	dryRun bool
	roles  store.Roles
}

func (a *app) migrateCommand() *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:     "migrate [DB]",
		Short:   "upgrade a database to the current layout",
		Long:    migrateHelp,
		Example: migrateExample,
		Args:    namedToChange(func() bool { return !f.dryRun }),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.migrate(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the steps and change nothing")
	flags.StringVar(&f.roles.Writer, "host-role", "", "let `ROLE` serve")
	flags.StringVar(&f.roles.Retention, "retention-role", "", "let `ROLE` remove runs")
	flags.StringVar(&f.roles.Reader, "reader-role", "", "let `ROLE` read")
	return cmd
}

func (a *app) migrate(ctx context.Context, where string, f migrateFlags) error {
	if f.roles != (store.Roles{}) && !onServer(where) {
		return usagef("", "--host-role, --retention-role and --reader-role require a PostgreSQL server")
	}
	log, err := openToMigrate(ctx, where, f.dryRun)
	if err != nil {
		return err
	}
	defer log.Close()
	var hostStep string
	if onServer(where) {
		if hostStep, err = hostTablesToMake(ctx, where); err != nil {
			return err
		}
	}
	report, err := log.MigrateSchema(ctx, f.dryRun)
	if err != nil {
		return err
	}
	if onServer(where) && !f.dryRun {
		if err := a.migrateHost(ctx, log, f.roles); err != nil {
			return err
		}
	}
	if hostStep != "" {
		report.Steps = append(report.Steps, hostStep)
	}
	a.printMigration(report, f)
	return nil
}

func (a *app) printMigration(report eventlog.MigrationReport, f migrateFlags) {
	would := func(did, would string) string {
		if f.dryRun {
			return would
		}
		return did
	}
	for _, step := range report.Steps {
		a.stdout.printf("%s\n", step)
	}
	switch {
	case report.From == report.To && report.Runs > 0:
		a.stdout.printf("current: layout %d; %s up to date: %s\n", report.To, would("brought", "would bring"), plural(uint64(report.Runs), "run"))
	case report.From == report.To:
		a.stdout.printf("current: layout %d\n", report.To)
	default:
		a.stdout.printf("%s from layout %d to %d: %d runs, %d events\n", would("migrated", "would migrate"), report.From, report.To, report.Runs, report.Events)
	}
	if roles := granted(f.roles); roles != "" {
		a.stdout.printf("%s: %s\n", would("granted", "would grant"), roles)
	}
}

// openToMigrate opens a database that must be there. To open a file for writing
// would create it.
func openToMigrate(ctx context.Context, where string, dryRun bool) (database, error) {
	if dryRun {
		return openDatabase(ctx, where)
	}
	if err := mustBeThere(where); err != nil {
		return nil, err
	}
	return openToWrite(ctx, where)
}
