package sqlitelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
)

// compactPages is how many pages one transaction gives back: 4 MiB, so that runs
// in progress wait for milliseconds.
const compactPages = 256

// ErrNotCompactable means that a file was made without what it takes to give
// pages back. A copy that [Backup] makes is compact.
var ErrNotCompactable = errors.New("sqlitelog: the file cannot become smaller in place; a backup of it is as small as can be")

// Compact gives the pages that pruning has left empty back to the file system,
// a few in each transaction, and returns how many bytes that were. The file
// becomes smaller when its WAL is next moved into it, at the latest when the log
// is closed. Without it, the runs to come use the empty pages, and the file does
// not grow until then.
func Compact(ctx context.Context, l *Log) (freed int64, err error) {
	if l.layout.Load() < layoutVersion {
		return 0, eventlog.ErrSchemaOutdated
	}
	for {
		c := &compaction{done: make(chan error, 1)}
		if err := l.perform(ctx, c, c.done); err != nil {
			return freed, err
		}
		freed += c.freed
		if c.left == 0 || c.freed == 0 {
			return freed, c.refused
		}
	}
}

// compaction gives some pages back.
type compaction struct {
	freed   int64 // bytes
	left    int64 // free pages
	refused error
	done    chan error
}

func (c *compaction) do(w *writer) error {
	ctx := context.Background()
	mode, err := w.conn.queryInt(ctx, "PRAGMA auto_vacuum")
	if err != nil {
		return err
	}
	if c.left, err = w.conn.queryInt(ctx, "PRAGMA freelist_count"); err != nil || c.left == 0 {
		return err
	}
	const incremental = 2
	if mode != incremental {
		c.refused = ErrNotCompactable
		return nil
	}
	before := c.left
	if err := w.conn.exec(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", compactPages)); err != nil {
		return err
	}
	if c.left, err = w.conn.queryInt(ctx, "PRAGMA freelist_count"); err != nil {
		return err
	}
	size, err := w.conn.queryInt(ctx, "PRAGMA page_size")
	c.freed = (before - c.left) * size
	return err
}

func (c *compaction) finish(_ *Log, err error) { c.done <- err }
func (c *compaction) Size() int                { return 0 }
