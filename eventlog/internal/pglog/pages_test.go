package pglog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/treetest"
)

// explained are the settings of a server that writes the plan of each statement to its messages, with the
// pages that it has read.
var explained = []string{
	"fsync=off", "shared_preload_libraries=auto_explain", "auto_explain.log_min_duration=0", "auto_explain.log_analyze=on",
	"auto_explain.log_buffers=on", "auto_explain.log_timing=off",
}

var (
	planLine   = regexp.MustCompile(`(?m)^.*duration: .* plan:$`)
	buffers    = regexp.MustCompile(`Buffers: (.*)`)
	bufferHits = regexp.MustCompile(`(?:hit|read)=(\d+)`)
)

// pagesOf returns how many pages each statement of an operation reads.
func pagesOf(t *testing.T, server *pgtest.Server, operation func() error) (all []int) {
	t.Helper()
	before := len(server.Messages())
	if err := operation(); err != nil {
		t.Fatal(err)
	}
	for _, plan := range planLine.Split(server.Messages()[before:], -1)[1:] {
		n := 0
		if line := buffers.FindStringSubmatch(plan); line != nil { // the first is the whole plan's
			for _, hits := range bufferHits.FindAllStringSubmatch(line[1], -1) {
				pages, _ := strconv.Atoi(hits[1])
				n += pages
			}
		}
		all = append(all, n)
	}
	return all
}

// TestTheSizeOfTheDatabaseCostsNothing compares the pages that the server reads with ten times as many
// runs, in a table of twelve months: what is done for a page, for one run or for a step reads as much
// of a large database as of a small one.
func TestTheSizeOfTheDatabaseCostsNothing(t *testing.T) {
	t.Parallel()
	small, large := measured(t, 24_000), measured(t, treetest.Count(72_000, 72_000, 500_000))
	for name, n := range small {
		// The runs that are counted lie on more pages if they are less dense, and indexes are a level deeper.
		if most := n + n/2 + 12; large[name] > most {
			t.Errorf("%s reads %d pages of a large database, and %d of a small one", name, large[name], n)
		}
	}
	if n := large["a run"]; n > 12 {
		t.Errorf("a run is looked for in every partition: %d pages", n)
	}
	t.Log(small, large)
}

// measured returns the pages that each operation reads of a database with so many runs of two events.
func measured(t *testing.T, runs int) map[string]int {
	t.Helper()
	server := pgtest.Start(t, explained...)
	dsn := server.Database(t)
	l := openAt(t, dsn, Options{AutoMigrate: true})
	if err := l.CreateTables(t.Context(), seal.Tables); err != nil {
		t.Fatal(err)
	}
	conn := connectTo(t, dsn)
	const months = 12
	execute(t, conn, `ALTER TABLE eventlog_events RENAME TO whole;
		CREATE TABLE eventlog_events (LIKE whole INCLUDING STORAGE) PARTITION BY RANGE (right(run_id, 26))`)
	for m := range months { // an id has the month in its first character, as large ULIDs have
		execute(t, conn, fmt.Sprintf(`CREATE TABLE month%d PARTITION OF eventlog_events (PRIMARY KEY (run_id, seq))
			FOR VALUES FROM ('%c') TO ('%c')`, m, 'A'+m, 'B'+m))
	}
	// The tenant t0 has half of the runs, more than are counted.
	execute(t, conn, `SET auto_explain.log_min_duration = -1`)
	execute(t, conn, fmt.Sprintf(`
		CREATE TEMP TABLE made AS SELECT n, 't' || CASE WHEN n %% 2 = 0 THEN 0 ELSE n %% 997 + 1 END || '/' || chr(65 + n * %[2]d / %[1]d) || lpad(n::text, 25, '0') AS id
			FROM generate_series(0, %[1]d - 1) AS n;
		INSERT INTO run SELECT id, 0, 1700000000000000000 + n * 1000000000::bigint, 2, decode(repeat('00', 32), 'hex'), %[3]d, 0, 1, 0, 0, 0, 1, 200, 2 FROM made;
		INSERT INTO eventlog_events SELECT id, seq, NULL, 1700000000000000000 + n * 1000000000::bigint + seq, CASE WHEN seq = 2 THEN %[3]d ELSE 2 END, repeat('x', 100)::bytea
			FROM made, generate_series(1, 2) AS seq`, runs, months, event.KindRunCompleted))
	// The tenant of has a hundred runs in the table, however many runs there are.
	execute(t, conn, fmt.Sprintf(`INSERT INTO run SELECT 'of/A' || lpad(n::text, 25, '0'), 0, 1800000000000000000 + n * 1000000000::bigint, 2, decode(repeat('00', 32), 'hex'), %d, 0, 1, 0, 0, 0, 1, 200, 2
			FROM generate_series(1, 100) AS n`, event.KindRunCompleted))
	execute(t, conn, "VACUUM ANALYZE")
	var id, other string
	if err := conn.QueryRow(t.Context(), "SELECT min(id), max(id) FROM made").Scan(&id, &other); err != nil {
		t.Fatal(err)
	}
	page := func(o eventlog.RunPageOptions) func() error {
		return func() error {
			p, err := l.ListRunsPage(t.Context(), o)
			if err == nil && len(p.Runs) == 0 {
				err = fmt.Errorf("a page without runs")
			}
			return err
		}
	}
	// Hosts look for runs that lack rows in the background, in turn: this one's turn is over.
	execute(t, conn, "INSERT INTO commit_mark VALUES ('compared', 0, extract(epoch FROM now())::bigint * 1000000000)")
	sum := func(operation func() error) (n int) {
		for range 7 { // the server may choose a generic plan after five
			if err := operation(); err != nil {
				t.Fatal(err)
			}
		}
		for _, pages := range pagesOf(t, server, operation) {
			n += pages
		}
		return n
	}
	pages := map[string]int{
		"a page of all runs":      sum(page(eventlog.RunPageOptions{})),
		"a page of a tenant":      sum(page(eventlog.RunPageOptions{Namespace: "t0"})),
		"a page of another order": sum(page(eventlog.RunPageOptions{Status: eventlog.StatusCompleted, Limit: 10})),
		"a run": sum(func() error {
			_, err := l.Run(t.Context(), id)
			return err
		}),
		"the events of a run": sum(func() error {
			_, err := l.Read(t.Context(), id)
			return err
		}),
		"a dry run of pruning one run": sum(func() error {
			_, err := l.PruneRuns(t.Context(), eventlog.PruneOptions{RunIDs: []string{other}, DryRun: true})
			return err
		}),
	}
	recorded := func() error {
		total, later, err := l.Recorded(t.Context(), "of", time.Unix(1800000051, 0), 1)
		if err == nil && (total != 100*202 || later != 50*202) {
			err = fmt.Errorf("recorded %d, %d later", total, later)
		}
		return err
	}
	pages["the sum of a tenant"] = sum(recorded)
	before := len(server.Messages())
	if err := recorded(); err != nil {
		t.Fatal(err)
	}
	if read := regexp.MustCompile(` on month\d+ .*\(actual.*`).FindString(server.Messages()[before:]); read != "" {
		t.Errorf("events are read for the sum of a tenant: %s", read)
	}
	remove := func() error {
		report, err := l.PruneRuns(t.Context(), eventlog.PruneOptions{RunIDs: []string{other}})
		if err == nil && report.Runs != 1 {
			err = fmt.Errorf("%d runs were removed", report.Runs)
		}
		return err
	}
	for _, n := range pagesOf(t, server, remove) {
		pages["pruning one run"] += n
	}
	key, err := seal.NewKey("example.com/pages")
	if err != nil {
		t.Fatal(err)
	}
	pages["a statement of a seal"] = slices.Max(pagesOf(t, server, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		result, err := seal.Seal(ctx, stopping{l, cancel}, key)
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("it ended: %d runs were refused, %v", len(result.Refused), err)
		}
		return nil
	}))
	return pages
}

// stopping is a database in which the first check of a run cancels what is going on.
type stopping struct {
	*Log
	cancel func()
}

func (s stopping) Run(ctx context.Context, id string) (eventlog.RunSummary, error) {
	s.cancel()
	return s.Log.Run(ctx, id)
}
