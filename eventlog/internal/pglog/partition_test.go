package pglog

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/pgtest"
)

// partitioned returns a database whose events are divided by month, as docs/partitions.md
// says, and the statements of the rest of that page.
func partitioned(t testing.TB) (dsn string, monthly []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/partitions.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks of SQL, not 3", len(blocks))
	}
	dsn = pgtest.Database(t)
	if err := openAt(t, dsn, Options{AutoMigrate: true}).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, connectTo(t, dsn), blocks[0][1])
	return dsn, []string{blocks[1][1], blocks[2][1]}
}

// TestPartitions drops a month of runs as the page describes: the other runs stay
// whole, and a month with a run that has not ended stays.
func TestPartitions(t *testing.T) {
	t.Parallel()
	dsn, monthly := partitioned(t)
	conn := connectTo(t, dsn)
	execute(t, conn, monthly[0])
	l := openAt(t, dsn, Options{})
	const november, december, open, january = "01M6X000000000000000000000", "acme/01M9X000000000000000000000", "01M9Y000000000000000000000", "acme/01MBX000000000000000000000"
	for _, id := range []string{november, december, january, "named"} {
		storeAll(t, l, logtest.Finished(id, 3)...)
	}
	storeAll(t, l, logtest.Finished(open, 3)[:1]...)
	if _, err := conn.Exec(t.Context(), monthly[1]); err == nil || !strings.Contains(err.Error(), "have not ended") {
		t.Fatalf("dropped a month with an open run: %v", err)
	}
	execute(t, conn, "ROLLBACK")
	storeAll(t, l, logtest.Finished(open, 3)[1:]...)
	execute(t, conn, monthly[1])
	left, err := openAt(t, dsn, Options{}).ListRuns(t.Context())
	if err != nil || len(left) != 3 {
		t.Fatalf("%d runs are left: %v", len(left), err)
	}
	for _, id := range []string{november, january, "named"} {
		if _, err := eventlog.CheckRun(t.Context(), l, id, eventlog.CheckOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// TestAPartitionedLog holds a log whose events are divided to what every log has to pass.
func TestAPartitionedLog(t *testing.T) {
	t.Parallel()
	if os.Getenv("STARLING_NIGHTLY") == "" {
		t.Skip("NIGHTLY: the suite of all logs, on a table in partitions")
	}
	logtest.Run(t, func(t testing.TB) eventlog.EventLog {
		dsn, _ := partitioned(t)
		return openAt(t, dsn, Options{})
	})
}
