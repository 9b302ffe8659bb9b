package pglog

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/pgtest"
)

// partitioned returns a database whose events are divided by month, from November 2025 on.
func partitioned(t testing.TB) (dsn string) {
	t.Helper()
	dsn = pgtest.Database(t)
	if _, err := openAt(t, dsn, Options{AutoMigrate: true}).MakePartitions(t.Context(), time.Date(2025, 11, 30, 23, 59, 0, 0, time.UTC), 3, false); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// ULIDs of both sides of a boundary of months.
var (
	endOfDecember   = event.IDPrefix(time.Date(2025, 12, 31, 23, 59, 59, 999e6, time.UTC)) + "ZZZZZZZZZZZZZZZZ"
	startOfJanuary  = event.IDPrefix(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) + "0000000000000000"
	inMarch         = event.IDPrefix(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)) + "0000000000000000"
	beforePartition = event.IDPrefix(time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC)) + "0000000000000000"
)

// TestDividingKeepsEventsAndRights divides a table that has events, also of ids that sort behind the first
// partition, and makes the partition of a month whose runs are with all others.
func TestDividingKeepsEventsAndRights(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	l := openAt(t, dsn, Options{AutoMigrate: true})
	execute(t, connectTo(t, dsn), "CREATE ROLE host_of_partitions LOGIN")
	if err := l.Grant(t.Context(), Roles{Writer: "host_of_partitions"}); err != nil {
		t.Fatal(err)
	}
	ids := []string{beforePartition, "acme/" + startOfJanuary, "named", inMarch, "0.named"}
	for _, id := range ids {
		storeAll(t, l, logtest.Finished(id, 3)...)
	}
	now := time.Date(2025, 11, 30, 23, 59, 0, 0, time.UTC)
	planned, err := l.MakePartitions(t.Context(), now, 2, true)
	if err != nil || len(planned) != 3 {
		t.Fatalf("%v, %v", planned, err)
	}
	if _, err := l.Partitions(t.Context()); !errors.Is(err, ErrNotPartitioned) {
		t.Errorf("after a dry run: %v", err)
	}
	host := openAt(t, pgtest.As(dsn, "host_of_partitions"), Options{})
	if _, err := host.MakePartitions(t.Context(), now, 2, false); !Denied(err) {
		t.Errorf("a role that owns nothing divides the table: %v", err)
	}
	for _, ahead := range []int{2, 4} {
		if _, err := l.MakePartitions(t.Context(), now, ahead, false); err != nil {
			t.Fatal(err)
		}
		if all, err := l.Partitions(t.Context()); err != nil || len(all) != ahead+1 {
			t.Errorf("%d months ahead: %v, %v", ahead, all, err)
		}
	}
	if again, err := l.MakePartitions(t.Context(), now, 4, false); err != nil || len(again) > 0 {
		t.Errorf("made again: %v, %v", again, err)
	}
	for partition, want := range map[string]int{"until_2025_12": 2, "2025_12": 0, "2026_01": 1, "2026_03": 1, "other": 1} {
		var events int
		if err := connectTo(t, dsn).QueryRow(t.Context(), "SELECT count(DISTINCT run_id) FROM eventlog_events_"+partition).Scan(&events); err != nil || events != want {
			t.Errorf("%s has %d runs, want %d (%v)", partition, events, want, err)
		}
	}
	for _, id := range ids {
		if _, err := eventlog.CheckRun(t.Context(), host, id, eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
	}
	storeAll(t, host, logtest.Finished(endOfDecember, 3)...) // with the rights that it had
}

// TestDropPartition drops the month of a run that began a moment before the next one. What is not whole in
// the table run, has not ended, or is not the owner's stays.
func TestDropPartition(t *testing.T) {
	t.Parallel()
	dsn := partitioned(t)
	l, conn := openAt(t, dsn, Options{}), connectTo(t, dsn)
	for _, id := range []string{"acme/" + endOfDecember, startOfJanuary, "named", beforePartition} {
		storeAll(t, l, logtest.Finished(id, 3)...)
	}
	all, err := l.Partitions(t.Context())
	if err != nil || len(all) != 4 || all[1].Name != "eventlog_events_2025_12" {
		t.Fatal(all, err)
	}
	december := all[1]
	drop := func() error {
		_, err := l.DropPartition(t.Context(), december, "", nil)
		return err
	}
	execute(t, conn, "CREATE TABLE kept AS SELECT * FROM run; DELETE FROM run WHERE run_id LIKE 'acme/%'")
	if err := drop(); err == nil || err.Error() != "pglog: prune: it has 7 events, of which the table run knows 0; hint: starling-host migrate" {
		t.Errorf("with events that the table run does not know: %v", err)
	}
	execute(t, conn, "INSERT INTO run SELECT * FROM kept ON CONFLICT DO NOTHING")
	execute(t, conn, "CREATE ROLE keeper_of_partitions LOGIN")
	if err := l.Grant(t.Context(), Roles{Retention: "keeper_of_partitions"}); err != nil {
		t.Fatal(err)
	}
	if _, err := openAt(t, pgtest.As(dsn, "keeper_of_partitions"), Options{}).DropPartition(t.Context(), december, "", nil); !Denied(err) {
		t.Errorf("a role that owns nothing drops: %v", err)
	}
	open := "b/" + endOfDecember
	storeAll(t, l, logtest.Finished(open, 3)[:1]...)
	if err := drop(); err == nil || !strings.Contains(err.Error(), "run \""+open) {
		t.Errorf("with an open run: %v", err)
	}
	storeAll(t, l, logtest.Finished(open, 3)[1:]...)
	named := december.FromULID + "-report"
	storeAll(t, l, logtest.Finished(named, 3)...)
	if err := drop(); err == nil || !strings.Contains(err.Error(), "run \""+named+"\" is not a ULID") {
		t.Errorf("with a run whose id is no ULID: %v", err)
	}
	if _, err := l.PruneRuns(t.Context(), eventlog.PruneOptions{RunIDs: []string{named}}); err != nil {
		t.Fatal(err)
	}
	report, err := l.DropPartition(t.Context(), december, "", nil)
	if err != nil || report.Runs != 2 || report.Events != 14 {
		t.Fatalf("%+v, %v", report, err)
	}
	if err := drop(); !errors.As(err, new(*eventlog.MissingTableError)) {
		t.Errorf("dropped twice: %v", err)
	}
	left, err := openAt(t, dsn, Options{}).ListRuns(t.Context())
	if err != nil || len(left) != 3 {
		t.Fatalf("%d runs are left: %v", len(left), err)
	}
	for _, run := range left {
		if _, err := eventlog.CheckRun(t.Context(), l, run.RunID, eventlog.CheckOptions{}); err != nil {
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
	logtest.Run(t, func(t testing.TB) eventlog.EventLog { return openAt(t, partitioned(t), Options{}) })
}

// TestAMonthIsMadeUnderAWriter makes the partition of a month while a host appends to a run of that month: the events
// were on their way to the partition of all other runs, which the server then refuses.
func TestAMonthIsMadeUnderAWriter(t *testing.T) {
	t.Parallel()
	dsn := partitioned(t)
	l, conn, events := openAt(t, dsn, Options{}), connectTo(t, dsn), logtest.Finished("b/"+inMarch, 3)
	storeAll(t, l, events[0])
	execute(t, conn, "BEGIN; "+strings.NewReplacer(":partition", "eventlog_events_2026_03", ":from", inMarch[:10], ":to", "01MZZZZZZZ").Replace(makeMonth))
	for _, e := range events[1:] {
		if err := l.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	const waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	for is := false; !is; {
		if err := connectTo(t, dsn).QueryRow(t.Context(), waiting).Scan(&is); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, conn, "COMMIT")
	if err := l.Sync(t.Context(), events[0].RunID); err != nil {
		t.Fatal(err)
	}
	if r, err := eventlog.CheckRun(t.Context(), l, events[0].RunID, eventlog.CheckOptions{Strict: true}); err != nil || r.Events != 7 {
		t.Error(r, err)
	}
}
