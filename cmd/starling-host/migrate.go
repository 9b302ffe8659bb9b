package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve"
)

func (a *app) migrateCommand() *cobra.Command {
	var dryRun bool
	var roles store.Roles
	cmd := subcommand("migrate [DB]", "upgrade a database to the current layout", func(cmd *cobra.Command, args []string) error {
		ctx, where := cmd.Context(), args[0]
		if roles != (store.Roles{}) && !onServer(where) {
			return usagef("", "--host-role, --retention-role and --reader-role require a PostgreSQL server")
		}
		do := toMigrate
		if dryRun {
			do = toRead
		}
		log, err := do.open(ctx, where)
		if err != nil {
			return err
		}
		defer log.Close()
		missing, err := serve.MissingTables(ctx, log)
		if err != nil {
			return err
		}
		report, err := log.MigrateSchema(ctx, dryRun)
		if err != nil {
			return err
		}
		if !dryRun {
			server, shared := log.(*store.Server)
			sets := missing
			if shared {
				sets = serve.Tables()
			}
			for _, set := range sets {
				if err := log.CreateTables(ctx, set); err != nil {
					return err
				}
			}
			if shared {
				if err := server.Grant(ctx, roles, sets...); err != nil {
					return err
				}
			}
		}
		if len(missing) > 0 {
			report.Steps = append(report.Steps, "make the tables of a host: "+serve.NamesOf(missing))
		}
		a.printMigration(report, dryRun, roles)
		return nil
	})
	cmd.Args = namedToChange(func() bool { return !dryRun })
	flags := cmd.Flags()
	flags.BoolVar(&dryRun, "dry-run", false, "print the steps and change nothing")
	flags.StringVar(&roles.Writer, "host-role", "", "let `ROLE` serve")
	flags.StringVar(&roles.Retention, "retention-role", "", "let `ROLE` remove runs")
	flags.StringVar(&roles.Reader, "reader-role", "", "let `ROLE` read")
	return cmd
}

func (a *app) printMigration(report eventlog.MigrationReport, dryRun bool, roles store.Roles) {
	would := func(did, would string) string {
		if dryRun {
			return would
		}
		return did
	}
	for _, step := range report.Steps {
		a.stdout.Printf("%s\n", step)
	}
	switch {
	case report.From == report.To && report.Runs > 0:
		a.stdout.Printf("current: layout %d; %s up to date: %s\n", report.To, would("brought", "would bring"), display.Plural(uint64(report.Runs), "run"))
	case report.From == report.To:
		a.stdout.Printf("current: layout %d\n", report.To)
	default:
		a.stdout.Printf("%s from layout %d to %d: %d runs, %d events\n", would("migrated", "would migrate"), report.From, report.To, report.Runs, report.Events)
	}
	if rights := granted(roles); rights != "" {
		a.stdout.Printf("%s: %s\n", would("granted", "would grant"), rights)
	}
}

// granted describes the roles and their rights.
func granted(r store.Roles) string {
	var parts []string
	for _, role := range []struct{ may, name string }{{"serve", r.Writer}, {"prune", r.Retention}, {"read", r.Reader}} {
		if role.name != "" {
			parts = append(parts, fmt.Sprintf("%s may %s", role.name, role.may))
		}
	}
	return strings.Join(parts, ", ")
}
