package pgtest

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

func TestADatabaseComesBackAfterACrash(t *testing.T) {
	s := Start(t)
	address := s.Database(t)
	query := func(sql string) (string, error) {
		out, err := s.command("psql", "-AtX", "-d", address, "-c", sql).CombinedOutput()
		return string(out), err
	}
	if out, err := query("CREATE TABLE t AS SELECT 7 AS n"); err != nil {
		t.Fatal(out, err)
	}
	s.Crash(t)
	if out, err := query("SELECT n FROM t"); err == nil {
		t.Errorf("a server that has crashed answers %q", out)
	}
	s.Restart(t)
	if out, err := query("SELECT n FROM t"); err != nil || out != "7\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestTheKeeperEndsTheServerAndTidiesUp(t *testing.T) {
	s := Start(t)
	s.pipe.Close()
	s.tidy(t, s.keeper.Wait())
}

// tidy requires that nothing is left of a server whose keeper has ended.
func (s *Server) tidy(t *testing.T, end error) {
	t.Helper()
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left: %v; the keeper: %v\n%s%s", err, end, &s.failed, s.Messages())
	}
}

// TestAServerWhoseTestIsGone becomes ready after the process that asked for it has died.
func TestAServerWhoseTestIsGone(t *testing.T) {
	s, err := prepare("")
	require(t, s, err)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	s.keeper.Stdout = in
	end := s.keeper.Run()
	in.Close()
	s.tidy(t, end)
}

func TestDatabasesAreApart(t *testing.T) {
	if a, b := Database(t), Database(t); a == b {
		t.Errorf("two tests share %s", a)
	}
}
