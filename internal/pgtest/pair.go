package pgtest

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Pair is a server with a synchronous standby: a COMMIT returns once both have it.
type Pair struct{ Primary, Standby *Server }

// StartPair starts a pair for this test alone.
func StartPair(t testing.TB) *Pair {
	t.Helper()
	p := &Pair{Primary: Start(t, "fsync=off")}
	var err error
	if p.Standby, err = prepare(p.Primary.dir, "fsync=off", "wal_retrieve_retry_interval=100ms"); err == nil {
		err = p.Standby.startKeeper()
	}
	require(t, p.Standby, err)
	t.Cleanup(p.Standby.Close)
	p.Primary.Query(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	p.Primary.Query(t, "SELECT pg_reload_conf()")
	return p
}

// Database makes a database, and returns its addresses: on the primary, and on whichever of the two
// takes writes, of which the standby is asked first.
func (p *Pair) Database(t testing.TB) (primary, either string) {
	t.Helper()
	name, err := p.Primary.create()
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; p.Standby.Query(t, "SELECT 1 FROM pg_database WHERE datname = '"+name+"'") == ""; n++ {
		if n == 1000 {
			t.Fatal("pgtest: the standby does not follow")
		}
		time.Sleep(10 * time.Millisecond)
	}
	either = p.Standby.Address(Superuser, name) + "," + url.QueryEscape(p.Primary.dir) + "&target_session_attrs=read-write"
	return p.Primary.Address(Superuser, name), either
}

// Promote makes the standby a server that takes writes, alone.
func (p *Pair) Promote(t testing.TB) {
	t.Helper()
	p.Standby.control(t, "promote")
}

// Query returns the result of a statement, one row a line, by a superuser in the database postgres.
func (s *Server) Query(t testing.TB, sql string) string {
	t.Helper()
	out, err := s.command("psql", "-AtqX", "-h", s.dir, "-U", Superuser, "-d", "postgres", "-c", sql).CombinedOutput()
	if err != nil {
		t.Fatalf("pgtest: %s: %v\n%s", sql, err, out)
	}
	return strings.TrimSpace(string(out))
}

// NeverAlone fails the test if the operation succeeds while there is no standby. It ends each wait for
// the standby as an operator may (pg_cancel_backend), and as a client that gives up or a broken
// connection does (pg_terminate_backend). From the first on the operation is carried out a second time
// beside, as by a client that did not wait: it may find that everything is there. Then the standby comes
// back, and both have to succeed. seen are the errors that say so.
func (p *Pair) NeverAlone(t testing.TB, name string, operation func() error, seen ...error) {
	t.Helper()
	done, running, failures := make(chan error, 200), 0, 0
	attempt := func() {
		running++
		go func() {
			err := operation()
			for _, is := range seen {
				if is != nil && errors.Is(err, is) {
					err = nil
				}
			}
			done <- err
		}()
	}
	const waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'"
	ends := []string{"pg_cancel_backend", "pg_terminate_backend", "pg_cancel_backend", "pg_cancel_backend", "pg_terminate_backend"}
	deadline := time.After(time.Minute)
	p.Standby.Crash(t)
	attempt()
	for ended := 0; running > 0; {
		if ended < len(ends) {
			ended += strings.Count(p.Primary.Query(t, "SELECT "+ends[ended]+"(pid) FROM ("+waiting+") AS w LIMIT 1"), "t")
			if ended > 0 && running+failures < 2 {
				attempt()
			}
			if ended == len(ends) {
				p.Standby.Restart(t)
			}
		}
		select {
		case err := <-done:
			if running--; err == nil && ended < len(ends) {
				t.Errorf("%s succeeded without the standby, after %d ended waits and %d failures", name, ended, failures)
				ended = len(ends)
				p.Standby.Restart(t)
			}
			if err != nil {
				if failures++; failures > 100 {
					t.Fatalf("%s: %v", name, err)
				}
				attempt()
			}
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%s does not end: %d ended waits, %d failures", name, ended, failures)
		}
	}
}
