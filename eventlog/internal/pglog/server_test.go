package pglog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/pgtest"
)

func TestAStandbyCanOnlyBeRead(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off") // the operating system's cache survives
	dsn := server.Database(t)
	l := openAt(t, dsn, Options{AutoMigrate: true})
	storeAll(t, l, logtest.Finished("run-1", 1)...)
	l.Close()
	server.Crash(t)
	server.RestartAsStandby(t)
	runs, err := openAt(t, dsn, Options{ReadOnly: true}).ListRuns(t.Context())
	if err != nil || len(runs) != 1 {
		t.Errorf("%v, %v", runs, err)
	}
	_, err = Open(t.Context(), dsn, Options{})
	if !errors.Is(err, eventlog.ErrReadOnly) || !strings.Contains(err.Error(), "target_session_attrs=read-write") {
		t.Errorf("opened for writing: %v", err)
	}
}

// TestSharedSessionsAreRefused gives every session of a database the mark that a
// transaction pooler leaves in another client's session.
func TestSharedSessionsAreRefused(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	openAt(t, dsn, Options{AutoMigrate: true})
	execute(t, connectTo(t, dsn), "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET starling.session = one', current_database()); END $$")
	for _, o := range []Options{{}, {ReadOnly: true}} {
		if _, err := Open(t.Context(), dsn, o); !errors.Is(err, errNoSessions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for code, want := range map[string]bool{statementExists: true, noSuchStatement: true, insufficientPrivilege: false} {
		err := sessionError(fmt.Errorf("pglog: open: %w", &pgconn.PgError{Code: code}))
		if errors.Is(err, errNoSessions) != want {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestAServerThatIsAwayIsUnavailable stops it, so that a host can tell its clients to try
// again.
func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off") // the operating system's cache survives
	l := openAt(t, server.Database(t), Options{AutoMigrate: true, RetryTime: -1})
	look := func(q eventlog.Querier) error {
		return q.Query("SELECT 1", nil, func(eventlog.Row) error { return nil })
	}
	if err := l.View(t.Context(), look); err != nil {
		t.Fatal(err)
	}
	server.Crash(t)
	for _, when := range []string{"connection that broke", "server that is not there"} {
		if err := l.View(t.Context(), look); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("view over a %s: %v", when, err)
		}
	}
	if err := l.Transact(t.Context(), func(eventlog.Tx) error { return nil }); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("transact: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.View(cancelled, look); errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a caller that went away: %v", err)
	}
}

// TestLockedTableIsUnavailable: an operation that ends at a time limit of the server may succeed
// later.
func TestLockedTableIsUnavailable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	openAt(t, dsn, Options{AutoMigrate: true})
	l := openAt(t, dsn+"&lock_timeout=1", Options{})
	execute(t, connectTo(t, dsn), "BEGIN; LOCK TABLE run")
	err := l.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT last_seq FROM run", nil, func(eventlog.Row) error { return nil })
	})
	if !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a view of it: %v", err)
	}
	err = l.Transact(t.Context(), func(tx eventlog.Tx) error {
		_, err := tx.(*Tx).On.(querier).q.Exec(t.Context(), "LOCK TABLE run")
		return err
	})
	if !errors.Is(err, eventlog.ErrUnavailable) || strings.Count(err.Error(), eventlog.ErrUnavailable.Error()) != 1 {
		t.Errorf("a statement that is not the log's: %v", err)
	}
}

// TestGatesAreLeftOpenWhenOneCannotBeClosed: a session that kept the earlier gates
// closed would keep all hosts from appending while the pool has it.
func TestGatesAreLeftOpenWhenOneCannotBeClosed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	l := openAt(t, dsn+"&lock_timeout=100", Options{AutoMigrate: true})
	runs := []string{"a", "b"}
	both := gates(runs)
	if len(both) != 2 {
		t.Fatalf("%q have the gates %v", runs, both)
	}
	other := connectTo(t, dsn)
	execute(t, other, fmt.Sprintf("SELECT pg_advisory_lock(1398033480, %d)", both[1]))
	conn, err := l.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := lockGates(t.Context(), conn, runs); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a gate that is closed: %v", err)
	}
	var open bool
	err = other.QueryRow(t.Context(), "SELECT pg_try_advisory_lock(1398033480, $1)", both[0]).Scan(&open)
	if err != nil || !open {
		t.Errorf("the gate before it is left closed (%v)", err)
	}
}

// TestGatesOpenWhenTheirHostIsGone: a host that was cut off, or frozen, with gates
// closed would keep all others from appending until its session ends.
func TestGatesOpenWhenTheirHostIsGone(t *testing.T) {
	t.Parallel()
	l := openAt(t, pgtest.Database(t), Options{AutoMigrate: true})
	conn, err := l.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	retryTime := func() (d string) {
		const get = "SELECT coalesce(current_setting('idle_session_timeout', true), 'none')"
		if err := conn.QueryRow(t.Context(), get).Scan(&d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	before := retryTime()
	if before == "none" {
		t.Skip("SKIPPED: needs PostgreSQL 14")
	}
	unlock, err := lockGates(t.Context(), conn, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if d := retryTime(); d != "30s" {
		t.Errorf("while gates are closed the session may be idle for %s", d)
	}
	unlock()
	if d := retryTime(); d != before {
		t.Errorf("afterwards it may be idle for %s, and before for %s", d, before)
	}
}
