package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/keyfile"
)

// BackupReport describes the content of a copy.
type BackupReport struct {
	Runs  int
	Bytes int64
}

// Backup copies the log at src, which may be in use, into the new file dst: everything committed
// before it began, including the host's tables. The copy is compact, readable only by its owner,
// synced, and checked. An invalid run in it is an error of [eventlog.ErrLogCorrupt]; the copy then
// stays, since the log itself is no better. An existing file is never changed.
func Backup(ctx context.Context, src, dst string) (BackupReport, error) {
	if err := copyLog(ctx, src, dst, nil); err != nil {
		return BackupReport{}, err
	}
	report, err := verify(ctx, dst)
	if err != nil {
		err = fmt.Errorf("the copy %s: %w", dst, err)
	}
	return report, err
}

// Restore replaces the log at dst, which no other process may have open, with a checked copy of
// the log at src, such as a backup. The old log and its WAL get names that end with
// .replaced, and stay complete. If the process dies in between, dst is unchanged or missing,
// and the same call resumes.
func Restore(ctx context.Context, src, dst string) (report BackupReport, replaced string, err error) {
	part, old := dst+".restored", dst+".replaced"
	if _, err := replaceable(dst, old); err != nil {
		return report, "", err
	}
	if report, err = Backup(ctx, src, part); err != nil {
		if !errors.Is(err, fs.ErrExist) {
			_ = os.Remove(part)
		}
		return report, "", err
	}
	lock, err := openLock(dst) // only now: a copy that fails leaves no file behind
	if err == nil {
		defer func() { err = errors.Join(err, lock.Close()) }() // which unlocks
		err = lock.lockSoon()
	}
	var moves []string
	if err == nil {
		moves, err = replaceable(dst, old)
	}
	if err != nil {
		return report, "", errors.Join(err, os.Remove(part))
	}
	for _, suffix := range moves {
		if err := os.Rename(dst+suffix, old+suffix); err != nil {
			return report, "", errors.Join(err, os.Remove(part))
		}
		replaced = old
	}
	_ = os.Remove(dst + "-shm") // which the WAL's next reader makes anew
	if err := os.Rename(part, dst); err != nil {
		return report, replaced, err
	}
	return report, replaced, keyfile.SyncFolder(filepath.Dir(dst))
}

// replaceable returns the suffixes of the files of a log that a restore moves to old. The
// error is the reason why it cannot: another process has the log open, or an earlier restore
// has moved files there.
func replaceable(dst, old string) (moves []string, err error) {
	if f, err := os.Open(dst); err == nil {
		used, err := inUse(f)
		if err = errors.Join(err, f.Close()); err != nil || used {
			return nil, errors.Join(fmt.Errorf("sqlitelog: another process has %s open: end it first", dst), err)
		}
	}
	for _, suffix := range []string{"", "-wal"} {
		if _, err := os.Lstat(dst + suffix); err != nil {
			continue
		}
		if _, err := os.Lstat(old + suffix); err == nil {
			return nil, fmt.Errorf("sqlitelog: %s is there from an earlier restore: move it away first", old+suffix)
		}
		moves = append(moves, suffix)
	}
	return moves, nil
}

// copyLog makes the copy beside dst, lets change work on it, if there is
// something to change, and then moves it to dst. If the process dies before that,
// dst is an empty file, not a log.
func copyLog(ctx context.Context, src, dst string, change func(*conn) error) (err error) {
	l, err := Open(ctx, src, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer l.Close()
	if err := keyfile.Create(dst, nil); err != nil {
		return err
	}
	part := dst + ".part"
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(dst))
		}
	}()
	if err := keyfile.Create(part, nil); err != nil {
		return err
	}
	err = l.readers.with(ctx, func(r *conn) error { return copyTo(ctx, r, part) })
	if err == nil && change != nil {
		var c *conn
		if c, err = connect(ctx, part, "mode=rw"); err == nil {
			err = errors.Join(change(c), c.Close())
		}
	}
	if err == nil {
		err = syncFile(part)
	}
	if err == nil {
		err = os.Rename(part, dst)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return keyfile.SyncFolder(filepath.Dir(dst))
}

// copyTo writes a compact copy into a file that is empty. Only this statement may
// write on a connection that reads.
func copyTo(ctx context.Context, c *conn, path string) error {
	abs, err := filepath.Abs(path) // or SQLite might read the name as a URI
	if err != nil {
		return fmt.Errorf("sqlitelog: %w", err)
	}
	if err := c.exec(context.WithoutCancel(ctx), "PRAGMA query_only=OFF"); err != nil {
		return err
	}
	if err = c.exec(ctx, "VACUUM INTO ?", abs); err != nil {
		err = fmt.Errorf("sqlitelog: write %s: %w", path, err)
	}
	return errors.Join(err, c.execAll(context.WithoutCancel(ctx), reading))
}

// syncFile brings a file to the disk.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sqlitelog: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// verify checks the structure of a log's file, and all of its runs.
func verify(ctx context.Context, path string) (report BackupReport, err error) {
	l, err := Open(ctx, path, Options{ReadOnly: true})
	if err != nil {
		return report, err
	}
	defer l.Close()
	info, err := os.Stat(path)
	if err != nil {
		return report, fmt.Errorf("sqlitelog: %w", err)
	}
	report.Bytes = info.Size()
	err = l.readers.with(ctx, func(r *conn) error {
		found, err := dblog.One[string](querier{ctx, r}, "PRAGMA quick_check(1)")
		if err == nil && found != "ok" {
			err = fmt.Errorf("%w: %v", eventlog.ErrLogCorrupt, found)
		}
		return err
	})
	if err != nil {
		return report, err
	}
	runs, err := l.ListRuns(ctx)
	report.Runs = len(runs)
	for _, r := range runs {
		if err == nil {
			_, err = eventlog.CheckRun(ctx, l, r.RunID, eventlog.CheckOptions{Strict: true, AllowOpen: true})
		}
		if errors.Is(err, eventlog.ErrSchemaTooNew) { // the program that wrote the run can check it
			err = nil
		}
	}
	return report, err
}

// ForkSQLite copies the log at src as [Backup] does, but of the run runID it
// keeps only the events with numbers below beforeSeq. The copy can be continued
// from there without changing the original. With beforeSeq 0 it keeps all. All
// other runs are unchanged. In the copy the run has no epoch. A run that does
// not exist is [eventlog.ErrRunNotFound].
//
// The copy also has the host's tables in the log. It is for inspection and
// manual continuation: a host that served it would repeat the work that still
// waits there.
func ForkSQLite(ctx context.Context, src, dst, runID string, beforeSeq uint64) error {
	l, err := Open(ctx, src, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	_, err = l.Run(ctx, runID)
	if err = errors.Join(err, l.Close()); err != nil {
		return err
	}
	return copyLog(ctx, src, dst, func(c *conn) error { return truncate(ctx, c, runID, beforeSeq) })
}

// truncate removes the events of the run from the number before on, and sets
// the run's row to its new last event.
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
	if err == nil && layout == uncountedLayout {
		err = addCounts(ctx, c)
	}
	if err == nil && layout > seedLayout {
		if err = truncateRow(ctx, c, runID); err == nil {
			err = endLogOfRuns(ctx, c)
		}
	}
	if err != nil {
		return errors.Join(err, c.exec(context.WithoutCancel(ctx), "ROLLBACK"))
	}
	return c.exec(ctx, "COMMIT")
}

// endLogOfRuns ends the log of runs of a copy that will continue separately: the log of the
// original must not have two histories.
func endLogOfRuns(ctx context.Context, c *conn) error {
	steps, err := dblog.StepsTaken(querier{ctx, c}, seal.Tables)
	if err != nil || steps == 0 {
		return err
	}
	if steps < len(seal.Tables.Steps) {
		return seal.Outdated(steps)
	}
	for _, table := range seal.Tables.Tables {
		if err := c.exec(ctx, "DELETE FROM "+table); err != nil {
			return err
		}
	}
	return nil
}

// maxSeq is the largest number that SQLite can hold.
const maxSeq = 1<<63 - 1

func truncateRow(ctx context.Context, c *conn, runID string) error {
	if err := c.exec(ctx, "DELETE FROM run_fence WHERE run_id = ?", runID); err != nil {
		return err
	}
	if err := c.exec(ctx, "DELETE FROM run WHERE run_id = ?", runID); err != nil {
		return err
	}
	return dialect.Reindex(ctx, querier{ctx, c}, c.page, runID)
}

// compactPages is how many pages one transaction gives back: 4 MiB, so that runs
// in progress wait for milliseconds.
const compactPages = 256

// incremental is the auto_vacuum of a file that can give pages back.
const incremental = 2

// ErrNotCompactable means that a file was created without the ability to give
// pages back. A copy made by [Backup] is compact.
var ErrNotCompactable = errors.New("sqlitelog: the file cannot become smaller in place; a backup of it is as small as can be")

// Compact returns the empty pages left by pruning to the file system, a few in each transaction,
// and returns the number of bytes. The file becomes smaller when its WAL is next moved into it, at
// the latest when the log is closed. Without Compact, new runs use the empty pages, and the file
// does not grow until they are full.
func Compact(ctx context.Context, l *Log) (freed int64, err error) {
	if l.layout.Load() < layoutVersion {
		return 0, eventlog.ErrSchemaOutdated
	}
	for {
		type step struct {
			given, left int64 // bytes, and free pages
			refused     error
		}
		did, err := perform(ctx, l, 0, func(w *writer) (did step, err error) {
			ctx := context.Background()
			var before, mode, size int64
			const pages = "SELECT freelist_count, auto_vacuum, page_size FROM pragma_freelist_count, pragma_auto_vacuum, pragma_page_size"
			if _, err := eventlog.QueryOne(querier{ctx, w.conn}, pages, nil, &before, &mode, &size); err != nil || before == 0 {
				return did, err
			}
			if mode != incremental {
				return step{refused: ErrNotCompactable}, nil
			}
			if err := w.conn.exec(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", compactPages)); err != nil {
				return did, err
			}
			did.left, err = w.conn.integer(ctx, "PRAGMA freelist_count")
			did.given = (before - did.left) * size
			return did, err
		})
		freed += did.given
		if err != nil || did.left == 0 || did.given == 0 {
			return freed, errors.Join(err, did.refused)
		}
	}
}
