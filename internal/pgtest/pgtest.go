package pgtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Superuser is the role that owns every database. It needs no password.
const Superuser = "postgres"

// Server is a running PostgreSQL.
type Server struct {
	bin  string // directory of the server programs
	dir  string // holds the data, the socket and the server's messages
	as   *syscall.SysProcAttr
	opts string // of the server, for a restart

	keeper *exec.Cmd
	pipe   io.Closer    // closing it ends the server
	failed bytes.Buffer // the keeper's errors at the end
	made   atomic.Int64
}

// shared is the server of the test binary. It ends with the process. No test cuts the power of
// the machine, so it need not wait for the disk; a server of [Start] does.
var shared = sync.OnceValues(func() (*Server, error) { return New("fsync=off") })

// ErrAbsent means that this machine has no PostgreSQL, or none that may run here.
var ErrAbsent = errors.New("no PostgreSQL server")

// Database returns the address, as a postgres:// URL, of a new and empty database on
// the server that the tests of this binary share. It is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	s, err := shared()
	return require(t, s, err).Database(t)
}

// Schema returns the address of a new and empty schema in a database that all callers of this
// function share, which takes a fifth of the time of [Database]. Notifications and advisory
// locks are the database's, so tests of those need a database of their own.
func Schema(t testing.TB) string {
	t.Helper()
	s, err := shared()
	require(t, s, err)
	address, err := schemas()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("schema%d", s.made.Add(1))
	out, err := s.command("psql", "-q", "-X", "-d", address, "-c", "CREATE SCHEMA "+name).CombinedOutput()
	if err != nil {
		t.Fatalf("pgtest: create schema: %v\n%s", err, out)
	}
	return address + "&search_path=" + name
}

// schemas returns the address of the database for the schemas.
var schemas = sync.OnceValues(func() (string, error) {
	s, err := shared()
	if err != nil {
		return "", err
	}
	return s.NewDatabase()
})

// Start starts a server for this test alone. Settings, such as "fsync=off", are
// given to it in addition to the defaults.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := New(settings...)
	require(t, s, err)
	t.Cleanup(s.Close)
	return s
}

// New starts a server for a program other than a test, which has to close it. Without
// a PostgreSQL to start it returns [ErrAbsent].
func New(settings ...string) (*Server, error) {
	s, err := prepare("", settings...)
	if err != nil {
		return nil, err
	}
	return s, s.startKeeper()
}

// prepare makes the directory of a server, and starts nothing. If it is given the directory of another
// server, it becomes a standby of that one.
func prepare(primary string, settings ...string) (s *Server, err error) {
	s = &Server{}
	if s.bin, err = programs(); err != nil {
		return nil, err
	}
	parent := ""
	if slices.Contains(settings, "fsync=off") {
		parent = memory()
	}
	if s.dir, err = os.MkdirTemp(parent, "pgtest"); err != nil {
		return nil, err
	}
	if s.as, err = owner(s.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	s.opts = "-c listen_addresses= -c unix_socket_directories=" + s.dir
	for _, setting := range settings {
		s.opts += " -c " + setting
	}
	s.keeper = exec.Command("/bin/sh", "-c", keep, "keeper", s.bin, s.dir, s.opts, primary)
	s.keeper.Dir, s.keeper.SysProcAttr, s.keeper.Stderr = s.dir, s.as, &s.failed
	return s, nil
}

// Close stops the server and removes all that it had.
func (s *Server) Close() {
	s.pipe.Close()
	s.keeper.Wait()
}

func require(t testing.TB, s *Server, err error) *Server {
	t.Helper()
	if errors.Is(err, ErrAbsent) {
		t.Skipf("SKIPPED: %v: install the package postgresql", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Database returns the address of a new and empty database. See the function of the
// same name.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name, err := s.create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a server that a test has stopped needs no clean-up
		s.command("dropdb", "-h", s.dir, "-U", Superuser, "--force", name).Run()
	})
	return s.Address(Superuser, name)
}

// NewDatabase returns the address of a new and empty database, which lives as long as
// the server.
func (s *Server) NewDatabase() (string, error) {
	name, err := s.create()
	return s.Address(Superuser, name), err
}

// create makes a database and returns its name.
func (s *Server) create() (name string, err error) {
	name = fmt.Sprintf("test%d", s.made.Add(1))
	if out, err := s.command("createdb", "-h", s.dir, "-U", Superuser, name).CombinedOutput(); err != nil {
		return "", fmt.Errorf("pgtest: createdb: %w\n%s", err, out)
	}
	return name, nil
}

// Address returns the address of a database for a role.
func (s *Server) Address(role, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database}
	u.RawQuery = url.Values{"host": {s.dir}}.Encode()
	return u.String()
}

// As returns the address of the same database for another role.
func As(address, role string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	u.User = url.User(role)
	return u.String()
}

// Crash stops the server without a shutdown: connections break, and the next
// start finds what a power cut would leave.
func (s *Server) Crash(t testing.TB) {
	t.Helper()
	s.control(t, "stop", "-m", "immediate")
}

// Restart starts a server that has crashed.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.control(t, "start", "-l", filepath.Join(s.dir, "messages"), "-o", s.opts)
}

// RestartAsStandby restarts a crashed server as a standby of a server that never
// answers: it keeps its data and is read-only.
func (s *Server) RestartAsStandby(t testing.TB) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.Restart(t)
}

func (s *Server) control(t testing.TB, verb string, args ...string) {
	t.Helper()
	cmd := s.command("pg_ctl", append([]string{verb, "-w", "-D", filepath.Join(s.dir, "data")}, args...)...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("pgtest: %s: %v\n%s", verb, err, s.Messages())
	}
}

// Messages returns the server's messages.
func (s *Server) Messages() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "messages"))
	return string(text)
}

// command prepares a program of PostgreSQL's to run as the user that owns the data.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.as
	return cmd
}

// keep is the keeper's script: it starts the server, and stops it when its standard
// input is closed, or when the process that waits for it is gone. $1 is the directory
// of programs, $2 the server's, $3 the server's options, $4 that of the primary of a standby.
const keep = `if [ -n "$4" ]
then "$1/pg_basebackup" -D "$2/data" -h "$4" -U ` + Superuser + ` -X stream -c fast -R --no-sync >"$2/messages" 2>&1
else "$1/initdb" -D "$2/data" -U ` + Superuser + ` -A trust -E UTF8 --no-locale --no-sync >"$2/messages" 2>&1
fi &&
"$1/pg_ctl" start -w -D "$2/data" -l "$2/messages" -o "$3" >/dev/null 2>&1 &&
trap '' PIPE && echo ready && read -r _
"$1/pg_ctl" stop -m immediate -D "$2/data" >/dev/null
rm -rf "$2"`

func (s *Server) startKeeper() error {
	in, err := s.keeper.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.keeper.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.keeper.Start(); err != nil {
		return err
	}
	s.pipe = in
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		text := s.Messages()
		in.Close()
		return fmt.Errorf("pgtest: the server did not start: %v\n%s", s.keeper.Wait(), text)
	}
	return nil
}

// programs returns the directory of the server programs. A program in PATH may be a
// link to that program alone.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		path, err = filepath.EvalSymlinks(path)
		return filepath.Dir(path), err
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%w: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin", ErrAbsent)
	}
	return filepath.Dir(found[len(found)-1]), nil
}
