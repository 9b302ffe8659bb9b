package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/starling-host/starling/internal/keyfile"
)

// fileLock is the lock between the processes that write to one log file.
//
// It is held for one transaction at a time, not for the life of a log, because
// many short processes may record runs into the same file at once; it is also
// held while a file is created, migrated and closed, when SQLite moves the WAL
// into the database. SQLite's own write lock would do for correctness. But
// SQLite waits by sleeping and trying again, so under contention a process
// waits hundreds of milliseconds for a lock that is free, and which one gets it
// is luck.
//
// The kernel's lock alone is not fair either: a process that releases it and takes
// it again at once beats processes that must wake up. So there are two locks: a
// turnstile that is held only while waiting for the lock proper. The process that
// holds the turnstile is next; the process that has just released the lock waits
// behind it.
//
// A process that dies releases both. A fileLock belongs to one goroutine at a
// time.
type fileLock struct {
	turnstile, hold *os.File
	dead            error    // a wait was abandoned: the files' state is unknown
	abandoned       *os.File // which that wait closes
}

// openLock opens the lock files beside the database, readable by the owner alone. A link in
// their place is not followed, just as SQLite does not follow one to a WAL: otherwise the
// author of the folder could create files anywhere.
func openLock(dbPath string) (*fileLock, error) {
	turn, err := os.OpenFile(dbPath+".turn", os.O_RDWR|os.O_CREATE|noFollow, fileMode)
	if err != nil {
		return nil, fmt.Errorf("sqlitelog: lock file: %w", err)
	}
	hold, err := os.OpenFile(dbPath+".lock", os.O_RDWR|os.O_CREATE|noFollow, fileMode)
	if err != nil {
		turn.Close()
		return nil, fmt.Errorf("sqlitelog: lock file: %w", err)
	}
	return &fileLock{turnstile: turn, hold: hold}, nil
}

// Lock waits for the lock until ctx ends. After that the lock is unusable.
func (l *fileLock) Lock(ctx context.Context) error {
	if err := l.acquire(ctx, l.turnstile); err != nil {
		return err
	}
	if err := l.acquire(ctx, l.hold); err != nil {
		return errors.Join(err, keyfile.Unlock(l.turnstile))
	}
	return keyfile.Unlock(l.turnstile)
}

// lockSoon waits for at most a second, and leaves no waiter behind.
func (l *fileLock) lockSoon() error {
	for range 50 {
		ok, err := keyfile.TryLock(l.turnstile)
		if ok {
			ok, err = keyfile.TryLock(l.hold)
			err = errors.Join(err, keyfile.Unlock(l.turnstile))
		}
		if ok || err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("sqlitelog: another process holds %s", l.hold.Name())
}

// Unlock releases the lock.
func (l *fileLock) Unlock() error { return keyfile.Unlock(l.hold) }

// acquire locks f. The system call that waits cannot be interrupted, so it runs
// aside; when it is abandoned and succeeds after all, it gives the lock back.
func (l *fileLock) acquire(ctx context.Context, f *os.File) error {
	if l.dead != nil {
		return l.dead
	}
	if ok, err := keyfile.TryLock(f); ok || err != nil {
		return err
	}
	got := make(chan error, 1)
	go func() { got <- keyfile.WaitForLock(f) }()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		l.abandoned = f
		l.dead = fmt.Errorf("sqlitelog: waiting for %s, which another process holds: %w", f.Name(), context.Cause(ctx))
		go func() {
			if <-got == nil {
				keyfile.Unlock(f)
			}
			f.Close()
		}()
		return l.dead
	}
}

// Close gives the files back. The files stay: removing a lock file races with a
// process that has just opened it.
func (l *fileLock) Close() error {
	var errs []error
	for _, f := range []*os.File{l.turnstile, l.hold} {
		if f != l.abandoned {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
