package pglog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/starling-host/starling/eventlog"
)

// minServer is the first version of PostgreSQL that has what we use. The tests of this
// package, and those of host/queue, have passed on 13 to 18.
const minServer = 110000

// checkServer refuses a server that would not keep a log as it is.
func checkServer(version int, encoding string) error {
	if version < minServer {
		return fmt.Errorf("pglog: the server is PostgreSQL %d; %d or later is needed", version/10000, minServer/10000)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("pglog: the database is encoded in %s: create it with ENCODING 'UTF8'", encoding)
	}
	return nil
}

// checkWritable refuses a server that only follows another one. One that becomes such
// while the log is open is waited for, as it may be about to be promoted.
func (l *Log) checkWritable(standby bool) error {
	if standby && !l.opts.ReadOnly {
		return fmt.Errorf("%w: the server is a standby: name the one that it follows, or all of them with target_session_attrs=read-write", eventlog.ErrReadOnly)
	}
	return nil
}

var errNoSessions = errors.New("pglog: a pooler in front of the server hands its sessions around (pool_mode=transaction or statement): let it pool by session, or name the server itself")

// checkSessions refuses a pooler that has two connections share a session: locks,
// notifications and prepared statements belong to one. It finds out by leaving a mark in
// the one and looking for it in the other, which proves nothing where it is not found.
func checkSessions(ctx context.Context, pool *pgxpool.Pool) error {
	if pool.Config().MaxConns < 2 {
		return nil
	}
	one, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("pglog: open: %w", err)
	}
	defer one.Release()
	other, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("pglog: open: %w", err)
	}
	defer other.Release()
	if _, err := one.Exec(ctx, "SET starling.session = 'one'"); err != nil {
		return fmt.Errorf("pglog: open: %w", err)
	}
	found, err := other.Conn().PgConn().Exec(ctx, "SELECT current_setting('starling.session', true)").ReadAll()
	if err != nil {
		return fmt.Errorf("pglog: open: %w", err)
	}
	_, err = one.Exec(ctx, "RESET starling.session")
	if string(found[0].Rows[0][0]) == "one" {
		return errNoSessions
	}
	return err
}

// sessionError finds the same out from a prepared statement that somebody else has made,
// or that is in another session.
func sessionError(err error) error {
	if c := code(err); c == statementExists || c == noSuchStatement {
		return errNoSessions
	}
	return err
}
