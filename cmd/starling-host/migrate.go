package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve"
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
	do := toMigrate
	if f.dryRun {
		do = toRead
	}
	log, err := openFor(ctx, where, do)
	if err != nil {
		return err
	}
	defer log.Close()
	missing, err := missingTables(ctx, log)
	if err != nil {
		return err
	}
	report, err := log.MigrateSchema(ctx, f.dryRun)
	if err != nil {
		return err
	}
	if onServer(where) && !f.dryRun {
		if err := a.migrateHost(ctx, log, f.roles); err != nil {
			return err
		}
	} else if !f.dryRun {
		for _, set := range missing {
			if err := log.CreateTables(ctx, set); err != nil {
				return err
			}
		}
	}
	if len(missing) > 0 {
		report.Steps = append(report.Steps, "make the tables of a host: "+namesOf(missing))
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
	if roles := granted(f.roles); roles != "" {
		a.stdout.Printf("%s: %s\n", would("granted", "would grant"), roles)
	}
}

// missingTables returns the sets of tables that the database has in an older version, and on a server
// also those that it lacks: in a file, whatever needs them creates them.
func missingTables(ctx context.Context, log database) (missing []eventlog.TableSet, err error) {
	_, server := log.(*store.Server)
	for _, set := range serve.Tables() {
		taken, err := log.TableSteps(ctx, set)
		switch {
		case server && errors.Is(err, eventlog.ErrSchemaOutdated), err == nil && taken < len(set.Steps) && (server || taken > 0):
			missing = append(missing, set)
		case err != nil && !errors.Is(err, eventlog.ErrSchemaOutdated):
			return nil, err
		}
	}
	return missing, nil
}

func namesOf(sets []eventlog.TableSet) string {
	names := make([]string, len(sets))
	for i, set := range sets {
		names[i] = set.Name
	}
	return strings.Join(names, ", ")
}

// migrateHost makes the tables of a host on a server, and gives roles their rights.
func (a *app) migrateHost(ctx context.Context, log database, roles store.Roles) error {
	for _, set := range serve.Tables() {
		if err := log.CreateTables(ctx, set); err != nil {
			return err
		}
	}
	return log.(*store.Server).Grant(ctx, roles, serve.Tables()...)
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

// checkRights reports the uses of a server, where all tables are, for which the role that the log was
// opened as has the rights. A role that may not serve can be intended.
func checkRights(ctx context.Context, log database) finding {
	const check = "rights"
	needs := store.NeedsOf(serve.Tables()...)
	var role string
	var may, toServe []string
	for _, use := range []struct {
		name  string
		needs []store.Need
	}{{"serve", needs.Writer}, {"prune", needs.Retention}, {"read", needs.Reader}} {
		as, lacking, err := log.(*store.Server).Lacking(ctx, use.needs...)
		if err != nil {
			return refusal(check, err)
		}
		if role = as; len(lacking) == 0 {
			may = append(may, use.name)
		} else if use.name == "serve" {
			toServe = lacking
		}
	}
	f := finding{check, stateOK, role + " may " + strings.Join(may, ", "), ""}
	if len(toServe) == 0 {
		return f
	}
	if f.state = stateLimited; len(may) == 0 {
		f.state, f.found = stateBad, role+" may not even read all tables"
	}
	f.found += "; to serve it lacks " + someOf(toServe)
	f.fix = "for a host, as the owner of the tables: " + grantCommand(role, "host")
	return f
}

// grantCommand returns the command that gives a role the rights for a use.
func grantCommand(role, use string) string {
	return fmt.Sprintf("starling-host migrate postgres://OWNER@... --%s-role %s", use, display.ShellWord(role))
}

// someOf lists the first of many names.
func someOf(lacking []string) string {
	const few = 3
	if len(lacking) <= few {
		return strings.Join(lacking, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(lacking[:few], ", "), len(lacking)-few)
}
