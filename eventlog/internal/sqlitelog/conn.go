package sqlitelog

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

// minSQLite is the first version whose checkpoints cannot meet the WAL-reset
// race, which loses committed transactions.
const minSQLite = 3_051_003

// conn is one connection to the file. It belongs to one goroutine at a time.
// database/sql is left out: here are exactly one writer and a handful of
// readers, each with its prepared statements, and the pool in between costs a
// tenth of the throughput.
type conn struct {
	c     driver.Conn
	stmts map[string]driver.Stmt // by their texts; each was prepared when it was first needed
}

// connect opens the file with the parameters of SQLite's URI query, and applies
// the safety pragmas.
func connect(ctx context.Context, path, query string) (*conn, error) {
	uri, err := fileURI(path, query)
	if err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(uri)
	if err != nil {
		return nil, fmt.Errorf("sqlitelog: %w", err)
	}
	dc, err := connector.Connect(ctx)
	if err != nil {
		return nil, classified(fmt.Errorf("sqlitelog: open %s: %w", path, err))
	}
	c := &conn{dc, make(map[string]driver.Stmt)}
	if err := c.execAll(ctx, safety); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// fileURI returns the URI of a file for SQLite, for any characters in its path.
func fileURI(path, query string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlitelog: %w", err)
	}
	p := filepath.ToSlash(abs)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return (&url.URL{Scheme: "file", Path: p, RawQuery: query}).String(), nil
}

// Close closes the connection. The last one to close moves the WAL into the
// database.
func (c *conn) Close() error {
	c.forget()
	return c.c.Close()
}

// exec runs a statement that is needed once.
func (c *conn) exec(ctx context.Context, query string, args ...any) error {
	_, err := c.c.(driver.ExecerContext).ExecContext(ctx, query, named(args))
	if err != nil {
		return classified(fmt.Errorf("sqlitelog: %.60s: %w", query, err))
	}
	return nil
}

func (c *conn) execAll(ctx context.Context, queries []string) error {
	for _, q := range queries {
		if err := c.exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// run runs a statement that stays prepared, and that cannot be interrupted. It returns how
// many rows changed and the number of the row inserted last.
func (c *conn) run(query string, args ...any) (changed, lastID int64, err error) {
	s, err := c.prepared(context.Background(), query)
	if err != nil {
		return 0, 0, err
	}
	res, err := s.(driver.StmtExecContext).ExecContext(context.Background(), named(args))
	if err != nil {
		return 0, 0, err
	}
	changed, _ = res.RowsAffected()
	lastID, _ = res.LastInsertId()
	return changed, lastID, nil
}

// query runs a query that stays prepared. It calls row with each row of the result until
// that returns an error. The values are only valid during the call, except for byte
// strings, which are the caller's.
func (c *conn) query(ctx context.Context, query string, args []any, row func([]driver.Value) error) error {
	s, err := c.prepared(ctx, query)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, named(args))
	if err != nil {
		return classified(fmt.Errorf("sqlitelog: %w", err))
	}
	return each(ctx, rows, row)
}

// integer returns the one integer that a query yields.
func (c *conn) integer(ctx context.Context, query string, args ...any) (int64, error) {
	return dblog.One[int64](querier{ctx, c}, query, args...)
}

// maxStatements bounds the statements that a connection keeps prepared. There are few
// texts, so when there are too many all are dropped.
const maxStatements = 256

func (c *conn) prepared(ctx context.Context, query string) (driver.Stmt, error) {
	if s := c.stmts[query]; s != nil {
		return s, nil
	}
	if len(c.stmts) >= maxStatements {
		c.forget()
	}
	s, err := c.c.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, classified(fmt.Errorf("sqlitelog: prepare %.60s: %w", query, err))
	}
	c.stmts[query] = s
	return s, nil
}

// forget gives up the statements that are prepared.
func (c *conn) forget() {
	for _, s := range c.stmts {
		s.Close()
	}
	clear(c.stmts)
}

// each calls row with each row. The driver notices a context that ends while it waits
// for the first row; later it sees only an interrupt.
func each(ctx context.Context, rows driver.Rows, row func([]driver.Value) error) error {
	defer rows.Close()
	vals := make([]driver.Value, len(rows.Columns()))
	for {
		switch err := rows.Next(vals); {
		case err == io.EOF:
			return nil
		case codeOf(err) == sqlite3.SQLITE_INTERRUPT && ctx.Err() != nil:
			return fmt.Errorf("sqlitelog: %w", ctx.Err())
		case err != nil:
			return classified(fmt.Errorf("sqlitelog: %w", err))
		}
		if err := row(vals); err != nil {
			return err
		}
	}
}

// named numbers the arguments. Nil bytes are NULL.
func named(args []any) []driver.NamedValue {
	out := make([]driver.NamedValue, len(args))
	for i, v := range args {
		if b, ok := v.([]byte); ok && b == nil {
			v = nil
		}
		out[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return out
}

// codeOf returns the extended result code of an error of SQLite, and -1 for any other error; the
// last byte of -1 is not a code of SQLite either.
func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return -1
}

// isConflict reports whether err means that a row with that key exists.
func isConflict(err error) bool {
	switch codeOf(err) {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID:
		return true
	}
	return false
}

// isFatal reports whether err is the disk's, or the file's, and not that of the
// statement.
func isFatal(err error) bool {
	code := codeOf(err)
	if code < 0 {
		return false
	}
	switch code & 0xff {
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_AUTH:
		return false
	}
	return true
}

// classified marks errors of SQLite: [eventlog.ErrLogCorrupt] if they concern the bytes or
// tables of the file, [eventlog.ErrUnavailable] if the file cannot be read at the moment.
func classified(err error) error {
	switch code := codeOf(err); {
	case code < 0:
	case code == sqlite3.SQLITE_ERROR:
		if table := regexp.MustCompile(`no such table: (?:main\.)?(\w+)`).FindStringSubmatch(err.Error()); table != nil {
			return &eventlog.MissingTableError{Table: table[1]}
		}
	case code&0xff == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB, code == sqlite3.SQLITE_IOERR_SHORT_READ, code == sqlite3.SQLITE_IOERR_CORRUPTFS:
		return fmt.Errorf("%w: %w", eventlog.ErrLogCorrupt, err)
	case code&0xff == sqlite3.SQLITE_BUSY, code&0xff == sqlite3.SQLITE_IOERR, code&0xff == sqlite3.SQLITE_CANTOPEN, code == sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return err
}

// DiskFailed reports whether err means that a disk failed or is full, which does not make the
// log on it corrupt.
func DiskFailed(err error) bool {
	code := codeOf(err)
	cutOff := code == sqlite3.SQLITE_IOERR_SHORT_READ || code == sqlite3.SQLITE_IOERR_CORRUPTFS // the file
	return errors.Is(err, syscall.ENOSPC) || !cutOff && (code&0xff == sqlite3.SQLITE_IOERR || code&0xff == sqlite3.SQLITE_FULL)
}

// checkVersion refuses a SQLite that is known to lose data.
func checkVersion(version int) error {
	if version < minSQLite {
		return fmt.Errorf("sqlitelog: SQLite %d.%d.%d can lose committed transactions (WAL reset); 3.51.3 or later is needed",
			version/1_000_000, version/1000%1000, version%1000)
	}
	return nil
}

// libraryVersion is the version of the SQLite that is linked in, as
// 1000000*major + 1000*minor + patch.
const libraryVersion = sqlite3.SQLITE_VERSION_NUMBER
