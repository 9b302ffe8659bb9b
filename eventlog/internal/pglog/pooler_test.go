package pglog

import (
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/pgtest"
)

// known are the parameters that PgBouncer takes at the start of a connection by default.
var known = []string{"user", "database", "application_name", "client_encoding", "datestyle", "timezone", "standard_conforming_strings"}

// pooler is a pooler by session in front of a database: it refuses a connection that starts with a
// parameter which it does not know. It returns the address of the database behind it.
func pooler(t testing.TB, dsn string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	to, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	network, address := "unix", to.Host+"/.s.PGSQL.5432"
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				server, err := net.Dial(network, address)
				if err != nil {
					t.Error(err)
					return
				}
				defer server.Close()
				client := pgproto3.NewBackend(conn, conn)
				first, err := client.ReceiveStartupMessage()
				if err != nil {
					return
				}
				if start, ok := first.(*pgproto3.StartupMessage); ok {
					for name := range start.Parameters {
						if !slices.Contains(known, name) {
							t.Errorf("a connection starts with the parameter %s", name)
							client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
							client.Flush()
							return
						}
					}
				}
				text, err := first.Encode(nil)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := server.Write(text); err != nil {
					return
				}
				go func() {
					io.Copy(server, conn)
					server.Close()
				}()
				io.Copy(conn, server)
			}()
		}
	}()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Del("host")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = listener.Addr().String(), q.Encode()
	return u.String()
}

// TestBehindAPoolerBySession makes every connection that a log has, with an address that has settings of
// its own: the pool, the writer, the notifier, the listener, and the one that rewrites a table.
func TestBehindAPoolerBySession(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t)
	execute(t, connectTo(t, direct), "CREATE SCHEMA own")
	dsn := pooler(t, direct) + "&search_path=own&lock_timeout=7s&options=-c%20work_mem%3D9MB%20--vacuum-cost-limit%3D77%20-cgeqo%3Doff&target_session_attrs=read-write"
	a := openAt(t, dsn, Options{AutoMigrate: true})
	b := openAt(t, dsn, Options{})
	run := logtest.Finished("run-1", 3)
	events, err := b.Stream(t.Context(), "run-1")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 100)
	defer b.OnSignal(func() { heard <- struct{}{} })()
	storeAll(t, a, run...)
	for range run {
		select {
		case <-events:
		case <-time.After(time.Minute):
			t.Fatal("the other host does not see the events")
		}
	}
	a.Signal()
	<-heard
	err = a.Transact(t.Context(), func(tx eventlog.Tx) error { return tx.Append("run-2", logtest.Finished("run-2", 1)[0]) })
	if err != nil {
		t.Error(err)
	}
	if _, err := a.Rewrite(t.Context(), "run"); err != nil {
		t.Error(err)
	}
	for _, l := range []*Log{a, b} {
		for name, want := range map[string]string{"search_path": "own", "lock_timeout": "7s", "work_mem": "9MB", "vacuum_cost_limit": "77", "geqo": "off"} {
			var is string
			if err := l.pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&is); err != nil || is != want {
				t.Errorf("%s is %q in a session: %v", name, is, err)
			}
		}
	}
	var isolation, seqscan string
	err = a.inWriter(t, "SELECT current_setting('default_transaction_isolation'), current_setting('enable_seqscan')", &isolation, &seqscan)
	if err != nil || isolation != "read committed" || seqscan != "off" {
		t.Errorf("the writer's settings: %s, %s, %v", isolation, seqscan, err)
	}

	reader := openAt(t, dsn, Options{ReadOnly: true})
	if runs, err := reader.ListRuns(t.Context()); err != nil || len(runs) != 2 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
	if _, err := reader.pool.Exec(t.Context(), "CREATE TABLE t (n int)"); code(err) != readOnlyTransaction {
		t.Errorf("a log that is only read writes: %v", err)
	}
}

// inWriter runs a query on a connection with the settings of the writer's.
func (l *Log) inWriter(t testing.TB, sql string, to ...any) error {
	t.Helper()
	conn, err := l.connect(t.Context(), writing)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	return conn.QueryRow(t.Context(), sql).Scan(to...)
}

// TestAStandbyIsPassedOver names both servers, the standby first. Only a reader that does not ask for
// read-write may have it.
func TestAStandbyIsPassedOver(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	primary, dsn := pair.Database(t)
	storeAll(t, openAt(t, dsn, Options{AutoMigrate: true}), logtest.Finished("run-1", 1)...)
	for _, o := range []Options{{}, {ReadOnly: true}} {
		if runs, err := openAt(t, dsn, o).ListRuns(t.Context()); err != nil || len(runs) != 1 {
			t.Errorf("%+v: %d runs, %v", o, len(runs), err)
		}
	}
	config, err := pgx.ParseConfig(primary)
	if err != nil {
		t.Fatal(err)
	}
	standby := pair.Standby.Address(pgtest.Superuser, config.Database)
	if _, err := Open(t.Context(), standby, Options{}); !errors.Is(err, eventlog.ErrReadOnly) {
		t.Errorf("a standby is opened for writing: %v", err)
	}
	openAt(t, standby, Options{ReadOnly: true})
}
