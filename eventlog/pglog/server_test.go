package pglog

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/pglog/pgtest"
)

func TestAStandbyCanOnlyBeRead(t *testing.T) {
	server := pgtest.Start(t)
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

// TestSharedSessionsAreRefused gives every session of a database the mark that a pooler by
// transaction shows in the session of somebody else.
func TestSharedSessionsAreRefused(t *testing.T) {
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
