package pglog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/internal/lists"
)

// Options are how to open a log. The zero value opens a database that has the tables
// already, for writing.
type Options struct {
	// ReadOnly never writes to the database; writes to the log are
	// [eventlog.ErrReadOnly]. A standby server can be opened in this way. Default:
	// false.
	ReadOnly bool

	// AutoMigrate creates the tables in a database that has none, and brings older ones
	// to the layout of this program. Without it Open changes nothing: until
	// [eventlog.Database].MigrateSchema writes are [eventlog.ErrSchemaOutdated]. Default: false.
	AutoMigrate bool

	// RetryTime is how long a write is retried after its connection broke, before the
	// log stops with [eventlog.ErrLogStopped]. Appends queue up in the meantime. Zero
	// means one minute, less than zero not at all.
	RetryTime time.Duration
}

// attemptTime bounds one attempt to write, so that a network that swallows
// everything is noticed.
const attemptTime = 20 * time.Second

func (o Options) retryTime() time.Duration {
	switch {
	case o.RetryTime == 0:
		return time.Minute
	case o.RetryTime < 0:
		return 0
	}
	return o.RetryTime
}

// Open opens the log in a database. Its address is a URL (postgres://...) or a list of
// keywords and values, including pgx's own, such as pool_max_conns. Where the database is
// shared with other programs, search_path names the schema that the tables are in.
//
// The log has its own connections beside the pool: one writes, one notifies others and
// one receives notifications. Each is made when it is first needed. A pooler in front of
// the server has to keep sessions apart; Open returns an error if it sees that the pooler
// does not.
func Open(ctx context.Context, dsn string, o Options) (*Log, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("pglog: %w", err)
	}
	config.ConnConfig.OnNotice = hearNotice
	settings := make(map[string]string)
	for name, value := range config.ConnConfig.RuntimeParams {
		if name == "options" && inOptions(value, settings) || !slices.Contains(startParams, name) {
			delete(config.ConnConfig.RuntimeParams, name)
		}
		if !slices.Contains(startParams, name) {
			settings[name] = value
		}
	}
	if o.ReadOnly {
		settings[readOnlyParam] = "on"
	} else { // a host makes small statements, whose plans must not change with the size of a table
		settings["enable_seqscan"], settings["jit"] = "off", "off"
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return set(ctx, conn, settings) }
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("pglog: %w", err)
	}
	l := newLog(pool, o)
	err = orUnavailable(sessionError(l.examine(ctx)))
	if err == nil && o.AutoMigrate && !o.ReadOnly && l.layout.Load() < layoutVersion {
		_, err = l.MigrateSchema(ctx, false)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	if !o.ReadOnly {
		go l.write()
		go l.notifier.run()
	}
	return l, nil
}

// startParams are the settings that travel in the first message of a connection, if the address has
// them. A pooler knows these few and refuses all others, which are set once the connection is there.
// Until then a server that takes writes looks like one, whatever the log is opened for.
var startParams = []string{"application_name", "client_encoding", "options"}

// inOptions adds the settings in options for the server (-c name=value or --name=value), if there is nothing
// else in them.
func inOptions(options string, settings map[string]string) bool {
	found := make(map[string]string)
	for _, option := range strings.Fields(strings.ReplaceAll(options, "-c ", "-c")) {
		setting, known := strings.CutPrefix(option, "-c")
		if !known {
			setting, known = strings.CutPrefix(option, "--")
		}
		name, value, ok := strings.Cut(setting, "=")
		if !ok || !known || strings.Contains(value, `\`) {
			return false
		}
		found[strings.ReplaceAll(name, "-", "_")] = value
	}
	maps.Copy(settings, found)
	return true
}

// set changes settings for the session.
func set(ctx context.Context, conn *pgx.Conn, settings map[string]string) error {
	if len(settings) == 0 {
		return nil
	}
	calls := lists.Map(slices.Sorted(maps.Keys(settings)), func(name string) string {
		return "set_config(" + quote(name, "'") + ", " + quote(settings[name], "'") + ", false)"
	})
	_, err := conn.Exec(ctx, "SELECT "+strings.Join(calls, ", "))
	return err
}

// readOnlyParam makes the server refuse writes, which a read-only log does not make anyway.
const readOnlyParam = "default_transaction_read_only"

// examine checks the server and finds the layout of the tables.
func (l *Log) examine(ctx context.Context) error {
	if err := checkSessions(ctx, l.pool); err != nil {
		return err
	}
	var version int
	var encoding string
	var standby, readOnly bool
	const server = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), pg_is_in_recovery(), current_setting('" + readOnlyParam + "')::bool"
	if err := l.pool.QueryRow(ctx, server).Scan(&version, &encoding, &standby, &readOnly); err != nil {
		return fmt.Errorf("pglog: open: %w", err)
	}
	if err := errors.Join(checkServer(version, encoding), l.checkWritable(standby, readOnly)); err != nil {
		return err
	}
	layout, err := findLayout(ctx, l.pool)
	if err != nil {
		return l.explainForeign(err)
	}
	l.layout.Store(int64(layout))
	if layout > layoutVersion {
		return eventlog.CheckSchema(layout, layoutVersion)
	}
	if layout > 0 && !l.opts.ReadOnly {
		if uses, err := hasTable(ctx, l.pool, "module_use"); err != nil || !uses {
			return cmp.Or(err, dblog.ErrNoUses)
		}
	}
	return nil
}

// findLayout returns the layout of the tables that the connection sees: 0 for none,
// and for the Starling runtime's own. Tables that a later version has added to, and that
// this one can work with, have the layout of this one.
func findLayout(ctx context.Context, q queryer) (int, error) {
	if ours, err := hasTable(ctx, q, "table_set"); err != nil || !ours {
		return 0, err
	}
	var oldest, layout int
	const query = "SELECT coalesce(max(steps) FILTER (WHERE name = $1), 0), coalesce(max(steps), 0) FROM table_set WHERE name IN ($1, $2)"
	if err := q.QueryRow(ctx, query, layoutSet, expandedSet).Scan(&oldest, &layout); err != nil {
		return 0, fmt.Errorf("pglog: look for the layout in table_set: %w", err)
	}
	if oldest <= layoutVersion {
		layout = min(layout, layoutVersion)
	}
	return layout, nil
}

// hasTable reports whether the connection sees a table of that name. It reads the
// catalog, because the functions that look up a name may answer from a cache that has
// not heard of a table that was made a moment ago.
func hasTable(ctx context.Context, q queryer, name string) (found bool, err error) {
	const query = "SELECT count(*) > 0 FROM pg_class WHERE relname = $1 AND pg_table_is_visible(oid)"
	if err := q.QueryRow(ctx, query, name).Scan(&found); err != nil {
		return false, fmt.Errorf("pglog: look for the tables: %w", err)
	}
	return found, nil
}

// minServer is the first version of PostgreSQL that has the features we use. The tests
// of this package and of serve/queue have passed on 13 to 18.
const minServer = 110000

// checkServer refuses a server that would not keep a log unchanged.
func checkServer(version int, encoding string) error {
	if version < minServer {
		return fmt.Errorf("pglog: the server is PostgreSQL %d; %d or later is needed", version/10000, minServer/10000)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("pglog: the database is encoded in %s: create it with ENCODING 'UTF8'", encoding)
	}
	return nil
}

// checkWritable refuses a standby server, and a role or a database whose transactions are read-only. If
// a server becomes a standby while the log is open, the log waits, because the server may be promoted
// again.
func (l *Log) checkWritable(standby, readOnly bool) error {
	switch {
	case l.opts.ReadOnly:
		return nil
	case standby:
		return fmt.Errorf("%w: the server is a standby: name its primary, or all servers with target_session_attrs=read-write", eventlog.ErrReadOnly)
	case readOnly:
		user := pgx.Identifier{l.pool.Config().ConnConfig.User}.Sanitize()
		return fmt.Errorf("%w: the transactions of role %s are read-only; hint: ALTER ROLE %s SET "+readOnlyParam+" = off", eventlog.ErrReadOnly, user, user)
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
	shared := false
	err := pool.AcquireFunc(ctx, func(one *pgxpool.Conn) error {
		return pool.AcquireFunc(ctx, func(other *pgxpool.Conn) error {
			if _, err := one.Exec(ctx, "SET starling.session = 'one'"); err != nil {
				return err
			}
			found, err := other.Conn().PgConn().Exec(ctx, "SELECT current_setting('starling.session', true)").ReadAll()
			if err == nil {
				shared = string(found[0].Rows[0][0]) == "one"
				_, err = one.Exec(ctx, "RESET starling.session")
			}
			return err
		})
	})
	switch {
	case shared:
		return errNoSessions
	case err != nil:
		return fmt.Errorf("pglog: open: %w", err)
	}
	return nil
}

// sessionError finds the same out from a prepared statement that another session has made,
// or that is in another session.
func sessionError(err error) error {
	if c := code(err); c == statementExists || c == noSuchStatement {
		return errNoSessions
	}
	return err
}

// SQLSTATE codes, see appendix A of PostgreSQL's manual.
const (
	plainWarning          = "01000"
	uniqueViolation       = "23505"
	foreignKeyViolation   = "23503"
	checkViolation        = "23514" // also of a row on its way to a partition that it no longer belongs to
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	readOnlyTransaction   = "25006"
	tooManyConnections    = "53300"
	lockNotAvailable      = "55P03"
	idleInTransaction     = "25P03"
	statementExists       = "42P05"
	noSuchStatement       = "26000"
	insufficientPrivilege = "42501"
	relationExists        = "42P07"
	noSuchColumn          = "42703"
	undefinedTable        = "42P01"
	dataCorrupted         = "XX001"
	indexCorrupted        = "XX002"
	connectionClass       = "08"
	resourceClass         = "53" // connections, memory or the disk
	interventionClass     = "57" // the server is shut down, starts, or cancels the statement
)

// code returns the server's code of the error, or "" if it did not come from the
// server.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// Denied reports whether err means that the role lacks a right: the owner of the tables
// has to do it, or grant the right (see [Log.Grant]).
func Denied(err error) bool { return code(err) == insufficientPrivilege || errors.Is(err, errNotOwner) }

var errNotOwner = errors.New("the tables belong to the role")

// explainForeign explains that a relation of the log cannot be created, or lacks columns, because
// another program has a relation with the same name.
func (l *Log) explainForeign(err error) error {
	if c := code(err); c != relationExists && c != noSuchColumn {
		return err
	}
	return fmt.Errorf("%w: another program has a table or index of that name in database %q; hint: "+
		"give the log a database of its own, or a schema of its own, named by search_path in the address",
		err, l.pool.Config().ConnConfig.Database)
}

// isConflict reports whether err means that a row with that key exists.
func isConflict(err error) bool { return code(err) == uniqueViolation }

// isModuleLost reports whether a statement was refused because a module of a run that begins
// is not there, or because a module to remove has got a user meanwhile. The table module_use
// has the only foreign key.
func isModuleLost(err error) bool { return code(err) == foreignKeyViolation }

// isRefusal reports whether the server has undone a transaction because of another one,
// so that it may be tried again at once.
func isRefusal(err error) bool {
	c := code(err)
	return c == serializationFailure || c == deadlockDetected
}

// isAway reports whether err means that the server is unreachable, or has no time or room
// at the moment.
func isAway(err error) bool {
	switch c := code(err); {
	case c != "":
		return c == lockNotAvailable || c == idleInTransaction || strings.HasPrefix(c, connectionClass) ||
			strings.HasPrefix(c, resourceClass) || strings.HasPrefix(c, interventionClass)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded): // which is a net.Error
		return false
	}
	_, network := errors.AsType[net.Error](err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return network || connecting || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// refusedError means that a server refused a connection. The driver puts the server's own
// words last, after each attempt with and without TLS.
type refusedError struct {
	said *pgconn.PgError
	err  error
}

// Error returns the server's message.
func (e *refusedError) Error() string {
	return fmt.Sprintf("pglog: the server refuses the connection: %s: %s (SQLSTATE %s)", e.said.Severity, e.said.Message, e.said.Code)
}

// Unwrap returns the error of the driver.
func (e *refusedError) Unwrap() error { return e.err }

// orUnavailable adds [eventlog.ErrUnavailable], once, to an error of an unreachable server, and
// [eventlog.ErrLogCorrupt] to an error of a damaged page or a missing table.
func orUnavailable(err error) error {
	said, fromServer := errors.AsType[*pgconn.PgError](err)
	if _, connecting := errors.AsType[*pgconn.ConnectError](err); fromServer && connecting && !errors.As(err, new(*refusedError)) {
		err = &refusedError{said, err}
	}
	switch c := code(err); c {
	case dataCorrupted, indexCorrupted:
		return fmt.Errorf("%w: %w", eventlog.ErrLogCorrupt, err)
	case undefinedTable:
		// The name in a message of the server, in any language.
		if table := regexp.MustCompile(`["«„“](\w+)["»“”]`).FindStringSubmatch(said.Message); table != nil {
			return &eventlog.MissingTableError{Table: table[1]}
		}
	}
	if isAway(err) && !errors.Is(err, eventlog.ErrUnavailable) {
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return err
}

// isTransient reports whether the same statement may succeed on another connection: the
// connection broke, or the server is temporarily unable to serve. A read-only server is
// one not yet promoted. An error of this program, such as a value that it cannot read, is not transient.
func isTransient(err error) bool {
	switch c := code(err); {
	case c == readOnlyTransaction, c == tooManyConnections, c == lockNotAvailable, c == checkViolation:
		return true
	case errors.Is(err, errNotWaited):
		return true
	case c != "":
		return isRefusal(err) || strings.HasPrefix(c, connectionClass) || strings.HasPrefix(c, interventionClass)
	}
	return isAway(err) || pgconn.SafeToRetry(err) || errors.Is(err, context.DeadlineExceeded)
}
