package pglog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/starling-host/starling/eventlog"
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
	// [eventlog.Migrate], or until somebody has run [InstallSchema] by hand, writes are
	// [eventlog.ErrSchemaOutdated]. Default: false.
	AutoMigrate bool

	// Patience is how long a write whose connection broke is tried again before the log
	// stops with [eventlog.ErrLogStopped]. Appends queue up in the meantime. Zero means
	// one minute, less than zero not at all.
	Patience time.Duration
}

// attemptTime bounds one attempt to write, so that a network that swallows
// everything is noticed.
const attemptTime = 20 * time.Second

func (o Options) patience() time.Duration {
	switch {
	case o.Patience == 0:
		return time.Minute
	case o.Patience < 0:
		return 0
	}
	return o.Patience
}

// Open opens the log in a database. Its address is a URL (postgres://...) or a list of
// keywords and values, in which pgx understands pool_max_conns and its like, too.
// Where the database is shared with other programs, search_path names the schema that
// the tables are in.
//
// The log has connections of its own beside those of the pool: three that write, one that
// notifies others and one that is notified, each made when it is first needed. A
// pooler in front of the server has to keep sessions apart; one that is seen not to is an
// error.
func Open(ctx context.Context, dsn string, o Options) (*Log, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("pglog: %w", err)
	}
	if !o.ReadOnly {
		return openPool(ctx, config, o)
	}
	config.ConnConfig.RuntimeParams[readOnlyParam] = "on"
	l, err := openPool(ctx, config, o)
	if code(err) == protocolViolation { // of a pooler, which knows few parameters; that the log does not write is enough
		delete(config.ConnConfig.RuntimeParams, readOnlyParam)
		l, err = openPool(ctx, config, o)
	}
	return l, err
}

// readOnlyParam has the server refuse what a log that is read-only does not do anyway.
const readOnlyParam = "default_transaction_read_only"

func openPool(ctx context.Context, config *pgxpool.Config, o Options) (*Log, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("pglog: %w", err)
	}
	l, err := New(ctx, pool, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	l.ownsPool = true
	return l, nil
}

// New opens the log in the database of a pool, which stays the caller's: Close leaves
// it open.
func New(ctx context.Context, pool *pgxpool.Pool, o Options) (*Log, error) {
	l := newLog(pool, o)
	if err := l.examine(ctx); err != nil {
		return nil, sessionError(err)
	}
	if o.AutoMigrate && !o.ReadOnly && l.layout.Load() < layoutVersion {
		if _, err := l.MigrateSchema(ctx, false); err != nil {
			return nil, err
		}
	}
	l.start()
	return l, nil
}

// examine checks the server and finds the layout of the tables.
func (l *Log) examine(ctx context.Context) error {
	if err := checkSessions(ctx, l.pool); err != nil {
		return err
	}
	var version int
	var encoding string
	var standby bool
	const server = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), pg_is_in_recovery()"
	if err := l.pool.QueryRow(ctx, server).Scan(&version, &encoding, &standby); err != nil {
		return fmt.Errorf("pglog: open: %w", err)
	}
	if err := errors.Join(checkServer(version, encoding), l.checkWritable(standby)); err != nil {
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
	return nil
}

// rowQuerier is a pool, a connection or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// findLayout returns the layout of the tables that the connection sees: 0 for none,
// and for those of the seed runtime.
func findLayout(ctx context.Context, q rowQuerier) (int, error) {
	if ours, err := hasTable(ctx, q, "table_set"); err != nil || !ours {
		return 0, err
	}
	var layout int
	err := q.QueryRow(ctx, "SELECT steps FROM table_set WHERE name = $1", layoutSet).Scan(&layout)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("pglog: look for the layout in table_set: %w", err)
	}
	return layout, nil
}

// hasTable reports whether the connection sees a table of that name. It reads the
// catalog, because the functions that look up a name may answer from a cache that has
// not heard of a table that was made a moment ago.
func hasTable(ctx context.Context, q rowQuerier, name string) (found bool, err error) {
	const query = "SELECT count(*) > 0 FROM pg_class WHERE relname = $1 AND pg_table_is_visible(oid)"
	if err := q.QueryRow(ctx, query, name).Scan(&found); err != nil {
		return false, fmt.Errorf("pglog: look for the tables: %w", err)
	}
	return found, nil
}
