package systemtest

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
)

// earliest is the version whose hosts can share a database with hosts of this one, until there is a
// release. What hosts of this commit need must stay in the tables, or they are refused: then a later
// commit is named here, and CHANGELOG.md says that all hosts have to be stopped.
const earliest = "b2ae42a8"

// earlierVersion builds the program of the last release, or of earliest, and returns the path of the program.
func earlierVersion(t *testing.T) string {
	t.Helper()
	if os.Getenv("STARLING_NIGHTLY") == "" {
		t.Skip("NIGHTLY: builds the version before")
	}
	dir := t.TempDir()
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", "../../.."}, args...)...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	version, err := git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
	if err != nil {
		version = earliest
	}
	if out, err := git("cat-file", "-e", version+"^{commit}"); err != nil {
		t.Skipf("SKIPPED: the history of the code has no %s: %s", version, out)
	}
	archive := filepath.Join(dir, "code.tar")
	if out, err := git("archive", "-o", archive, version); err != nil {
		t.Fatal(out)
	}
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := filepath.Join(dir, "starling-host-earlier")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/starling-host")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", version, err, out)
	}
	return program
}

// TestHostsAreUpgradedOneByOne runs a host of the version before and one of this version on one database,
// as docs/serving.md says: the tables are migrated while the old host works, runs are submitted to both,
// and the new host takes over what the old one leaves.
func TestHostsAreUpgradedOneByOne(t *testing.T) {
	skipShort(t)
	program, database := earlierVersion(t), pgtest.Database(t)
	earlier := func(args []string) []string { return append([]string{program}, args[1:]...) }
	if out, err := exec.Command(program, "migrate", database).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := newClusterIn(t, t.TempDir(), database, closedPolicy, "alice")
	c.askFreely("alice")
	c.tool = "draw"
	unmigrate(t, database) // the cluster has migrated them

	old := c.start("", earlier)
	old.upload("alice")
	submit := func(n int, hosts ...*host) {
		t.Helper()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				status, doc, err := hosts[i%len(hosts)].document("", "POST", "/runs", []byte(`{"tool":"draw","input":{}}`))
				if err != nil || status != http.StatusAccepted {
					t.Errorf("run %d: %d %v %v\n%s", i, status, doc, err, &hosts[i%len(hosts)].stderr)
				}
			})
		}
		all.Wait()
	}
	submit(10, old)
	refused := exec.Command("starling-host", "serve", "--config", "host.yaml")
	refused.Dir = c.dir
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "schema outdated") || strings.Contains(string(out), "corrupt") {
		t.Errorf("a new host before the tables are migrated: %v\n%s", err, out)
	}
	if out := c.command("doctor", database); strings.Contains(out, "corrupt") || !strings.Contains(out, "starling-host migrate") {
		t.Errorf("doctor before the tables are migrated: %s", out)
	}

	var while sync.WaitGroup
	while.Go(func() { submit(20, old) })
	c.command("migrate", database)
	while.Wait()
	next := c.start("", nil)
	submit(60, old, next)
	while.Go(func() { submit(20, next) })
	old.stop()
	while.Wait()
	c.host = next
	next.finish()
	c.proved(110)

	log, err := store.Open(t.Context(), database, store.Options{})
	c.must(err)
	defer log.Close()
	logtest.Recorded(t, log, map[string]bool{"alice": true})
	if out := c.command("migrate", database); !strings.Contains(out, eventlog.StepCount) {
		t.Errorf("the runs of the old host are counted already: %s", out)
	}
	logtest.Counted(t, log)
}

// unmigrate removes what this version's migration has added to the tables.
func unmigrate(t *testing.T, database string) {
	t.Helper()
	log, err := store.Open(t.Context(), database, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	err = log.Transact(t.Context(), func(tx eventlog.Tx) error {
		for _, sql := range []string{"ALTER TABLE run DROP COLUMN bytes, DROP COLUMN counted", "DELETE FROM table_set WHERE name LIKE '%_expanded'",
			"DROP TABLE queue_change", "DROP INDEX queue_job_asleep"} {
			if _, err := tx.Exec(sql); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
