package eventlog

import (
	"context"
	"fmt"
)

// SchemaKeeper is implemented by logs whose storage has a layout that evolves.
type SchemaKeeper interface {
	// SchemaVersions returns the layout version of the storage and the one
	// that this program writes.
	SchemaVersions(ctx context.Context) (have, want int, err error)
	// MigrateSchema brings the storage to the program's version in one
	// transaction, or with dryRun reports what that would do.
	MigrateSchema(ctx context.Context, dryRun bool) (MigrationReport, error)
}

// MigrationReport says what a migration did, or would do.
type MigrationReport struct {
	From, To int
	DryRun   bool
	Runs     int64    // runs that were carried over
	Events   int64    // events that were carried over
	Steps    []string // in order; empty when the layout was current
}

// StepCatchUp is the step of a migration that adds to the index of runs what another
// program has appended, or what was restored without the index.
const StepCatchUp = "bring the listing of runs up to date with their events"

// MigrateOption changes how [Migrate] works.
type MigrateOption func(*migrateOptions)

type migrateOptions struct{ dryRun bool }

// WithDryRun reports what a migration would do, and changes nothing.
func WithDryRun() MigrateOption { return func(o *migrateOptions) { o.dryRun = true } }

// SchemaVersion returns the layout version of log, zero for a log without
// layout.
func SchemaVersion(ctx context.Context, log EventLog) (int, error) {
	k, ok := log.(SchemaKeeper)
	if !ok {
		return 0, nil
	}
	have, _, err := k.SchemaVersions(ctx)
	return have, err
}

// Migrate brings log to the layout of this program. It goes forward only, and
// a log that is current is left alone.
func Migrate(ctx context.Context, log EventLog, opts ...MigrateOption) (MigrationReport, error) {
	var o migrateOptions
	for _, opt := range opts {
		opt(&o)
	}
	k, ok := log.(SchemaKeeper)
	if !ok {
		return MigrationReport{DryRun: o.dryRun}, nil
	}
	return k.MigrateSchema(ctx, o.dryRun)
}

// Preflight reports whether this program can write to log: nil,
// [ErrSchemaOutdated] or [ErrSchemaTooNew]. A log without layout passes.
func Preflight(ctx context.Context, log EventLog) error {
	k, ok := log.(SchemaKeeper)
	if !ok {
		return nil
	}
	have, want, err := k.SchemaVersions(ctx)
	if err != nil {
		return err
	}
	return CheckSchema(have, want)
}

// CheckSchema returns the error of [Preflight] for two layout versions.
func CheckSchema(have, want int) error {
	switch {
	case have < want:
		return fmt.Errorf("%w (the log has layout %d, this program writes %d)", ErrSchemaOutdated, have, want)
	case have > want:
		return fmt.Errorf("%w (the log has layout %d, this program writes %d)", ErrSchemaTooNew, have, want)
	}
	return nil
}
