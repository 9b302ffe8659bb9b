package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve"
)

// missingTables returns the sets of which the database lacks tables, or has older ones.
func missingTables(ctx context.Context, log database) (missing []string, err error) {
	for _, set := range serve.Tables() {
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
func (a *app) migrateHost(ctx context.Context, log database, roles store.Roles) error {
	for _, set := range serve.Tables() {
		if err := log.CreateTables(ctx, set); err != nil {
			return err
		}
	}
	return log.(*store.Server).Grant(ctx, roles, serve.Tables()...)
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
func granted(r store.Roles) string {
	var parts []string
	for _, role := range []struct{ may, name string }{{"serve", r.Writer}, {"prune", r.Retention}, {"read", r.Reader}} {
		if role.name != "" {
			parts = append(parts, fmt.Sprintf("%s may %s", role.name, role.may))
		}
	}
	return strings.Join(parts, ", ")
}
