package riverqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/host/queue/internal/book"
)

// Tables returns the queue's own tables, beside River's.
func Tables() eventlog.TableSet { return book.Tables }

// Migrate makes River's tables, or brings them to the version of this program. [Open]
// does so as well, where the role may.
func Migrate(ctx context.Context, dsn string) error {
	return withPool(ctx, dsn, func(pool *pgxpool.Pool) error { return migrate(ctx, riverpgxv5.New(pool), pool) })
}

// Current reports whether River's tables are those of this program.
func Current(ctx context.Context, dsn string) (current bool, err error) {
	err = withPool(ctx, dsn, func(pool *pgxpool.Pool) error {
		m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
		if err == nil {
			current, err = isCurrent(ctx, m)
		}
		return err
	})
	return current, err
}

func isCurrent(ctx context.Context, m *rivermigrate.Migrator[pgx.Tx]) (bool, error) {
	v, err := m.Validate(ctx, nil)
	if err != nil {
		return false, err
	}
	return v.OK, nil
}

// seen is what says which version River's tables have.
var seen = pglog.Need{Rights: "SELECT", Tables: []string{"river_migration"}}

// Needs returns what the role of a host has to be allowed on River's tables.
func Needs() []pglog.Need {
	return []pglog.Need{
		{Rights: "SELECT, INSERT, UPDATE, DELETE", Tables: []string{"river_job", "river_leader", "river_notification", "river_queue"}},
		{Rights: "USAGE", Tables: []string{"river_job_id_seq", "river_notification_id_seq"}},
		seen,
	}
}

// Grant gives roles what they need of River's tables, as the owner of these: host is the
// role of a host, or empty, and lookers are those that see which version the tables have.
func Grant(ctx context.Context, dsn, host string, lookers ...string) error {
	give := func(c *pgxpool.Conn, n pglog.Need, role string) error {
		if role == "" {
			return nil
		}
		kind := "TABLE"
		if n.Rights == "USAGE" {
			kind = "SEQUENCE"
		}
		sql := fmt.Sprintf("GRANT %s ON %s %s TO %s", n.Rights, kind, strings.Join(n.Tables, ", "), pgx.Identifier{role}.Sanitize())
		if _, err := c.Exec(ctx, sql); err != nil {
			return fmt.Errorf("riverqueue: grant: %w", err)
		}
		return nil
	}
	return withPool(ctx, dsn, func(pool *pgxpool.Pool) error {
		return locked(ctx, pool, func(c *pgxpool.Conn) (err error) {
			for _, need := range Needs() {
				err = errors.Join(err, give(c, need, host))
			}
			for _, role := range lookers {
				err = errors.Join(err, give(c, seen, role))
			}
			return err
		})
	})
}

func withPool(ctx context.Context, dsn string, do func(*pgxpool.Pool) error) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("riverqueue: %w", err)
	}
	defer pool.Close()
	return do(pool)
}

// migrationLock keeps programs from changing River's tables, or the rights to them, at
// the same time. It is a number of this package's own among the database's advisory locks.
const migrationLock = 0x53544c48_7175

// locked calls do with the connection that holds the lock.
func locked(ctx context.Context, pool *pgxpool.Pool, do func(*pgxpool.Conn) error) error {
	return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
		defer c.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(migrationLock))
		return do(c)
	})
}

// migrate brings River's tables to the version of this program. Some of its steps
// cannot share a transaction, so one that dies in between leaves the rest to the
// next.
func migrate(ctx context.Context, driver *riverpgxv5.Driver, pool *pgxpool.Pool) error {
	m, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if current, err := isCurrent(ctx, m); err == nil && current {
		return nil
	}
	return locked(ctx, pool, func(*pgxpool.Conn) error {
		if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("riverqueue: River's tables: %w", err)
		}
		return nil
	})
}
