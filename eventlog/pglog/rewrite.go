package pglog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/starling-host/starling/eventlog"
)

// rewriting are the settings of the connection that writes a table anew: it locks the
// table, and does not have everybody wait behind one who reads for long.
var rewriting = map[string]string{"lock_timeout": "5s", "statement_timeout": "60s"}

// Rewrite has the server write a table into a new file, in which nothing is left of rows
// that were deleted: without that their bytes stay in its pages, and with VACUUM alone,
// too. Nobody can use the table meanwhile, so it is for small ones. What is left is those
// of which kept is the number, since somebody's transaction may still look at them; the
// server's WAL; and what was copied.
//
// The connection's role has to own the table; one that does not is told so by an error of
// which [Denied] is true.
func (l *Log) Rewrite(ctx context.Context, table string) (kept int, err error) {
	if l.opts.ReadOnly {
		return 0, eventlog.ErrReadOnly
	}
	if err := mustOwn(ctx, l.pool, table); err != nil { // the server only warns
		return 0, fmt.Errorf("pglog: rewrite: %w", err)
	}
	kept = -1
	conn, err := l.connectHearing(ctx, rewriting, func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if number := keptRows.FindString(n.Detail); n.SeverityUnlocalized == "INFO" && number != "" {
			kept, _ = strconv.Atoi(number)
		}
	})
	if err != nil {
		return 0, err
	}
	defer hangUp(conn)
	if _, err := conn.Exec(ctx, "VACUUM (FULL, VERBOSE) "+pgx.Identifier{table}.Sanitize()); err != nil {
		return 0, fmt.Errorf("pglog: rewrite: %w", err)
	}
	if kept < 0 {
		return 0, errors.New("pglog: rewrite: the server does not say what it has kept")
	}
	return kept, nil
}

// keptRows finds the only number in the first line of what VERBOSE says in detail, in any
// language: "2 dead row versions cannot be removed yet."
var keptRows = regexp.MustCompile(`[0-9]+`)
