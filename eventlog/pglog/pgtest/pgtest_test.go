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
	end := s.keeper.Wait()
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left: %v; the keeper: %v\n%s%s", err, end, &s.failed, s.Messages())
	}
}

func TestDatabasesAreApart(t *testing.T) {
	if a, b := Database(t), Database(t); a == b {
		t.Errorf("two tests share %s", a)
	}
}
