package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/tenant"
)

// hostTables are those that a host keeps beside the log. In a file a host makes them;
// on a server its role may not be one that makes tables.
func hostTables() []eventlog.TableSet {
	return append(tenant.Tables(), queue.Tables())
}

// missingTables returns the sets of which the database lacks tables, or has older ones.
func missingTables(ctx context.Context, log database) (missing []string, err error) {
	for _, set := range hostTables() {
		taken, err := log.TableSteps(ctx, set)
		switch {
		case errors.Is(err, eventlog.ErrSchemaOutdated), err == nil && taken < len(set.Steps):
			missing = append(missing, set.Name)
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}

// migrateHost makes the tables of a host on a server, and gives roles their rights.
func (a *app) migrateHost(ctx context.Context, log database, roles pglog.Roles) error {
	for _, set := range hostTables() {
		if err := log.CreateTables(ctx, set); err != nil {
			return err
		}
	}
	return log.(*pglog.Log).Grant(ctx, roles, hostTables()...)
}

// hostTablesToMake says what migrateHost is about to make, if anything.
func hostTablesToMake(ctx context.Context, where string) (step string, err error) {
	log, err := openDatabase(ctx, where)
	if err != nil {
		return "", err
	}
	defer log.Close()
	missing, err := missingTables(ctx, log)
	if err != nil || len(missing) == 0 {
		return "", err
	}
	return "make the tables of a host: " + strings.Join(missing, ", "), nil
}

// granted names the roles and what they were given.
func granted(r pglog.Roles) string {
	var parts []string
	for _, role := range []struct{ may, name string }{{"serve", r.Writer}, {"prune", r.Retention}, {"read", r.Reader}} {
		if role.name != "" {
			parts = append(parts, fmt.Sprintf("%s may %s", role.name, role.may))
		}
	}
	return strings.Join(parts, ", ")
}
