package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/eventlog"
)

// BackupReport says what is in a copy.
type BackupReport struct {
	Runs  int
	Bytes int64
}

// Backup copies the log at src, which others may be writing to, into the new file
// dst: everything that was committed when it began, the host's tables included.
// The copy is compact, readable by its owner alone, on the disk, and checked: that
// a run in it is not valid is an error of [eventlog.ErrLogCorrupt], and then the
// copy stays, since the log itself is no better. A file that is there already is
// never touched.
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

// copyLog makes the copy beside dst, lets change work on it, if there is
// something to change, and then moves it to dst. If the process dies before that,
// dst is empty, which nobody takes for a log.
func copyLog(ctx context.Context, src, dst string, change func(*conn) error) (err error) {
	l, err := Open(ctx, src, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer l.Close()
	if err := reserve(dst); err != nil {
		return err
	}
	part := dst + ".part"
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(dst))
		}
	}()
	if err := reserve(part); err != nil {
		return err
	}
	err = l.readers.with(ctx, func(r *reader) error { return copyTo(ctx, r.conn, part) })
	if err == nil && change != nil {
		err = changeCopy(ctx, part, change)
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
	return syncFile(filepath.Dir(dst))
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

func changeCopy(ctx context.Context, path string, change func(*conn) error) error {
	c, err := connect(ctx, path, "mode=rw")
	if err != nil {
		return err
	}
	return errors.Join(change(c), c.Close())
}

// reserve creates an empty file that was not there.
func reserve(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return fmt.Errorf("sqlitelog: %w", err)
	}
	return f.Close()
}

// syncFile brings a file, or the names in a directory, to the disk.
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
	err = l.readers.with(ctx, func(r *reader) error {
		found, err := r.conn.value(ctx, "PRAGMA quick_check(1)")
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
