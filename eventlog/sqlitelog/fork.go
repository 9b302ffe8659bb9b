package sqlitelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
)

// ErrForkNotFound means that the run to fork is not in the log.
var ErrForkNotFound = errors.New("sqlitelog: the run to fork is not in the log")

// ForkSQLite copies the log at src as [Backup] does, but keeps of the run runID
// only the events with numbers below beforeSeq, so that it can be continued from
// there: what follows in the copy leaves the original as it is. With beforeSeq 0
// it keeps all. All other runs are there as they were. In the copy nobody has
// been given the run. A run that is not there is [ErrForkNotFound].
//
// The copy also has the tables that a host keeps in the log. It is for looking
// and for going on by hand: a host that served it would do once more whatever
// still waits there.
func ForkSQLite(ctx context.Context, src, dst, runID string, beforeSeq uint64) error {
	if err := hasRun(ctx, src, runID); err != nil {
		return err
	}
	return copyLog(ctx, src, dst, func(c *conn) error { return truncate(ctx, c, runID, beforeSeq) })
}

func hasRun(ctx context.Context, path, runID string) error {
	l, err := Open(ctx, path, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err = l.Run(ctx, runID); errors.Is(err, eventlog.ErrRunNotFound) {
		return fmt.Errorf("%w: %q", ErrForkNotFound, runID)
	}
	return err
}

// truncate removes the events of the run from the number before on, and brings
// what is kept about the run to where it then stands.
func truncate(ctx context.Context, c *conn, runID string, before uint64) error {
	layout, err := examine(ctx, c)
	if err != nil {
		return err
	}
	if err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if before > 0 {
		err = c.exec(ctx, "DELETE FROM eventlog_events WHERE run_id = ? AND seq >= ?", runID, int64(min(before, maxSeq)))
	}
	if err == nil && layout == layoutVersion {
		err = truncateRow(ctx, c, runID)
	}
	if err != nil {
		return errors.Join(err, c.exec(context.WithoutCancel(ctx), "ROLLBACK"))
	}
	return c.exec(ctx, "COMMIT")
}

// maxSeq is the largest number that SQLite can hold.
const maxSeq = 1<<63 - 1

func truncateRow(ctx context.Context, c *conn, runID string) error {
	if err := complete(ctx, c); err != nil {
		return err
	}
	if err := c.exec(ctx, "DELETE FROM run_fence WHERE run_id = ?", runID); err != nil {
		return err
	}
	if err := c.exec(ctx, "DELETE FROM run WHERE run_id = ?", runID); err != nil {
		return err
	}
	r := &reader{conn: c}
	defer r.stmts.close()
	return reindex(ctx, r, runID)
}
