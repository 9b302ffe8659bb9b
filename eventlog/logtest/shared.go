package logtest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// Shared is a new and empty database, to which another program appends as well. That
// program has the Starling runtime's statements and knows only the table of events.
type Shared struct {
	// Open opens the log in the database. The suite closes it.
	Open func(t testing.TB, readOnly bool) eventlog.EventLog
	// Insert stores an event as the other program does.
	Insert func(t testing.TB, e event.Event)
	// Exec changes the database in another way.
	Exec func(t testing.TB, sql string)
}

// RunShared tests a log in databases that are shared with another program.
func RunShared(t *testing.T, open func(testing.TB) Shared) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Shared)
	}{
		{"whatever anybody appends, every reader sees it", sharedModel},
		{"a run goes on behind what another program has appended", sharedAlternating},
		{"a transaction continues what another program has appended", sharedTransaction},
		{"pruning removes the runs of another program", sharedPruning},
		{"a migration brings the listing up to date", sharedMigration},
		{"a migration counts recorded bytes again that are not those of the events", sharedCounts},
		{"the evidence that a run was changed stays", sharedEvidence},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, open(t))
		})
	}
}

// summarise computes the summary from the events.
func summarise(evs []event.Event) eventlog.RunSummary {
	var c eventlog.Cursor
	for _, e := range evs {
		c.Skip(e)
	}
	return c.Run()
}

// sameRuns compares the log's rows of its runs with their events. The head is the log's
// own affair. A log that writes is asked for all runs before it is asked for a page, which
// may lag behind another program.
func sameRuns(t *testing.T, what string, log eventlog.EventLog, readOnly bool, runs map[string][]event.Event) {
	t.Helper()
	ctx := t.Context()
	headless := cmpopts.IgnoreFields(eventlog.RunSummary{}, "Head")
	var want []eventlog.RunSummary
	for _, evs := range runs {
		want = append(want, summarise(evs))
	}
	slices.SortFunc(want, func(a, b eventlog.RunSummary) int { return b.StartedAt.Compare(a.StartedAt) })
	all, err := log.ListRuns(ctx)
	if diff := cmp.Diff(want, all, headless, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Fatalf("%s: all runs: %v\n%s", what, err, diff)
	}
	for _, status := range []string{"", eventlog.StatusOpen, eventlog.StatusCompleted} {
		o := eventlog.RunPageOptions{Status: status, Limit: 3, Offset: 1}
		expected, _ := o.Select(want)
		page, err := log.ListRunsPage(ctx, o)
		if diff := cmp.Diff(expected, page, headless, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%s: a page of %q: %v\n%s", what, status, err, diff)
		}
	}
	selected, events := eventlog.PruneOptions{DryRun: true, Limit: 4}, int64(0)
	for _, s := range selected.Select(want) {
		events += int64(s.LastSeq)
	}
	report, err := log.(eventlog.Store).PruneRuns(ctx, selected)
	// A log that writes does not touch the runs that it is appending to.
	if err != nil || readOnly && (report.Runs != len(selected.Select(want)) || report.Events != events) {
		t.Fatalf("%s: a dry run of pruning: %+v, %v", what, report, err)
	}
	for _, s := range want {
		got, err := log.Run(ctx, s.RunID)
		if diff := cmp.Diff(s, got, headless); err != nil || diff != "" {
			t.Fatalf("%s: run %s: %v\n%s", what, s.RunID, err, diff)
		}
		r, err := eventlog.CheckRun(ctx, log, s.RunID, eventlog.CheckOptions{Strict: true, AllowOpen: true})
		if err == nil && r.HeadKept && got.Head == (canon.Hash{}) { // a log that writes has caught up meanwhile
			got, err = log.Run(ctx, s.RunID)
		}
		if err != nil || r.Events != s.LastSeq || got.Head != s.Head && r.HeadKept {
			t.Fatalf("%s: check of run %s: %+v, %v", what, s.RunID, r, err)
		}
	}
}

// sharedModel makes a log and another program append to runs of their own, and the other
// program to runs of the log. At last a row is lost that the log keeps beside the events,
// which a log notices when it is opened.
func sharedModel(t *testing.T, db Shared) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	writer, reader := db.Open(t, false), db.Open(t, true)
	defer writer.Close()
	defer reader.Close()
	chains, runs := map[string]*Chain{}, map[string][]event.Event{}
	theirs := map[string]bool{} // the other program appended last, so that the log has lost the run
	var open []string
	for step := range 40 {
		foreign := random.IntN(2) == 0
		if len(open) == 0 || random.IntN(3) == 0 {
			id := fmt.Sprintf("run-%02d", step)
			chains[id], theirs[id] = &Chain{RunID: id, Clock: int64(step) * 1e9}, foreign
			open = append(open, id)
		}
		at := random.IntN(len(open))
		id := open[at]
		foreign = foreign || theirs[id]
		theirs[id] = foreign
		c, e := chains[id], event.Event{}
		switch n := len(runs[id]); {
		case n == 0:
			e = c.Start("g")
		case n > 3 && random.IntN(2) == 0:
			e = c.Complete()
			open = slices.Delete(open, at, at+1)
		default:
			e = c.Effect(n)
		}
		runs[id] = append(runs[id], e)
		if foreign {
			db.Insert(t, e)
		} else {
			store(t, writer, e)
		}
		if step%6 == 0 || step > 36 {
			sameRuns(t, fmt.Sprint("reading, after step ", step), reader, true, runs)
			sameRuns(t, fmt.Sprint("writing, after step ", step), writer, false, runs)
		}
	}
	lost := slices.Sorted(maps.Keys(runs))[random.IntN(len(runs))]
	db.Exec(t, fmt.Sprintf("DELETE FROM run WHERE run_id = '%s'", lost))
	for _, readOnly := range []bool{true, false} {
		fresh := db.Open(t, readOnly)
		sameRuns(t, "opened anew, without the row of "+lost, fresh, readOnly, runs)
		fresh.Close()
	}
}

// sharedAlternating makes two programs continue a run alternately. A log that was appending to
// the run when the other program appended has lost it.
func sharedAlternating(t *testing.T, db Shared) {
	c := Chain{RunID: "shared"}
	evs := []event.Event{c.Start("g")}
	db.Insert(t, evs[0])
	for i := range 3 {
		log := db.Open(t, false)
		evs = append(evs, c.Effect(2*i))
		store(t, log, evs[len(evs)-1])
		evs = append(evs, c.Effect(2*i+1))
		db.Insert(t, evs[len(evs)-1])
		mine := evs[len(evs)-1]
		mine.Timestamp++
		if err := errors.Join(log.Append(t.Context(), "shared", mine), log.Sync(t.Context(), "shared")); !errors.Is(err, eventlog.ErrInvalidAppend) {
			t.Errorf("an event in the place of another: %v", err)
		}
		sameRuns(t, "a log that has lost the run", log, false, map[string][]event.Event{"shared": evs})
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

func sharedTransaction(t *testing.T, db Shared) {
	log := db.Open(t, false)
	defer log.Close()
	c := Chain{RunID: "shared"}
	evs := []event.Event{c.Start("g"), c.Effect(1), c.Effect(2)}
	store(t, log, evs[0])
	db.Insert(t, evs[1])
	var epoch uint64
	err := transactor(t, log).Transact(t.Context(), func(tx eventlog.Tx) (err error) {
		if epoch, err = tx.Fence("shared"); err != nil {
			return err
		}
		return tx.Append("shared", evs[2])
	})
	if err != nil {
		t.Fatal(err)
	}
	evs = append(evs, c.Effect(3))
	db.Insert(t, evs[3])
	if err := transactor(t, log).Transact(t.Context(), func(tx eventlog.Tx) (err error) {
		epoch, err = tx.Fence("shared")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	evs = append(evs, c.Complete())
	store(t, log.(eventlog.Store).Fenced("shared", epoch), evs[4])
	sameRuns(t, "afterwards", log, false, map[string][]event.Event{"shared": evs})
}

func sharedPruning(t *testing.T, db Shared) {
	log := db.Open(t, false)
	defer log.Close()
	store(t, log, Finished("ours", 1)...)
	theirs := Finished("theirs", 2)
	for _, e := range theirs {
		db.Insert(t, e)
	}
	report, err := log.(eventlog.Store).PruneRuns(t.Context(), eventlog.PruneOptions{RunIDs: []string{"theirs"}})
	if err != nil || report.Runs != 1 || report.Events != int64(len(theirs)) {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := log.Read(t.Context(), "theirs"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("what was pruned: %v", err)
	}
}

func sharedMigration(t *testing.T, db Shared) {
	log := db.Open(t, false)
	defer log.Close()
	c := Chain{RunID: "both"}
	store(t, log, c.Start("g"))
	db.Insert(t, c.Effect(1))
	for _, e := range Finished("theirs", 2) {
		db.Insert(t, e)
	}
	for _, dryRun := range []bool{true, false} {
		report, err := log.(eventlog.Database).MigrateSchema(t.Context(), dryRun)
		if err != nil || report.From != report.To || report.Runs != 2 || !slices.Equal(report.Steps, []string{eventlog.StepCatchUp}) {
			t.Errorf("dry run %v: %+v, %v", dryRun, report, err)
		}
	}
	for _, id := range []string{"both", "theirs"} {
		if r, err := eventlog.CheckRun(t.Context(), log, id, eventlog.CheckOptions{AllowOpen: true}); err != nil || !r.HeadKept {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	if report, err := log.(eventlog.Database).MigrateSchema(t.Context(), false); err != nil || len(report.Steps) > 0 {
		t.Errorf("once more: %+v, %v", report, err)
	}
	Counted(t, log)
}

// sharedCounts changes what the database counts. A row without its last events is behind and not miscounted, and
// a row with more events than there are is left to a check.
func sharedCounts(t *testing.T, db Shared) {
	log := db.Open(t, false)
	defer log.Close()
	c := Chain{RunID: "acme/open"}
	store(t, log, slices.Concat(Finished("acme/a", 2), Finished("acme/b", 2), Finished("cut", 2), []event.Event{c.Start("g")})...)
	db.Insert(t, c.Effect(1))
	db.Exec(t, "DELETE FROM eventlog_events WHERE run_id = 'cut' AND seq > 2")
	miscounted := func(want ...string) {
		t.Helper()
		reader := db.Open(t, true)
		defer reader.Close()
		for _, id := range []string{"", "acme/a", "acme/b", "acme/open", "cut", "nothing", "a\x00b"} {
			got, err := reader.(eventlog.Database).Miscounted(t.Context(), id)
			of := want
			if id != "" {
				of = slices.DeleteFunc(slices.Clone(want), func(w string) bool { return w != id })
			}
			if err != nil || !slices.Equal(got, of) {
				t.Errorf("miscounted of %q: %q, %v; want %q", id, got, err, of)
			}
		}
	}
	miscounted()
	db.Exec(t, "UPDATE run SET bytes = bytes + 1 WHERE run_id = 'acme/b'")
	db.Exec(t, "UPDATE run SET bytes = 0 WHERE run_id = 'acme/open'")
	miscounted("acme/b", "acme/open")
	for _, dryRun := range []bool{true, false} {
		report, err := log.(eventlog.Database).MigrateSchema(t.Context(), dryRun)
		if err != nil || !slices.Equal(report.Miscounted, []string{"acme/b", "acme/open"}) || !slices.Equal(report.Steps, []string{eventlog.StepCatchUp, eventlog.StepCount}) {
			t.Errorf("dry run %v: %+v, %v", dryRun, report, err)
		}
	}
	miscounted()
	if report, err := log.(eventlog.Database).MigrateSchema(t.Context(), false); err != nil || len(report.Steps) > 0 {
		t.Errorf("once more: %+v, %v", report, err)
	}
	db.Exec(t, "DELETE FROM eventlog_events WHERE run_id = 'cut'")
	db.Exec(t, "DELETE FROM run WHERE run_id = 'cut'")
	Counted(t, log)
}

// sharedEvidence changes the last event of a run, which only the log's head reveals, and
// appends an event that fits the changed one; and it moves an event behind the end of a
// run. Neither enters the log's index.
func sharedEvidence(t *testing.T, db Shared) {
	log := db.Open(t, false)
	defer log.Close()
	c := Chain{RunID: "run-1"}
	store(t, log, c.Start("g"), c.Effect(1))
	forged := Chain{RunID: "run-1"}
	forged.Start("g")
	changed := forged.Effect(2)
	db.Exec(t, "DELETE FROM eventlog_events WHERE seq = 2")
	db.Insert(t, changed)
	db.Insert(t, forged.Effect(3))
	store(t, log, Finished("run-2", 4)...)
	db.Exec(t, "UPDATE eventlog_events SET seq = 50 WHERE seq = 5")
	for _, what := range []string{"at once", "after it was listed", "after a migration"} {
		for _, readOnly := range []bool{false, true} {
			look := db.Open(t, readOnly)
			var corrupt *eventlog.CorruptError
			if _, err := eventlog.CheckRun(t.Context(), look, "run-1", eventlog.CheckOptions{AllowOpen: true}); !errors.As(err, &corrupt) || corrupt.Seq != 2 {
				t.Errorf("%s: %v", what, err)
			}
			if _, err := eventlog.CheckRun(t.Context(), look, "run-2", eventlog.CheckOptions{}); !errors.As(err, &corrupt) || corrupt.Seq != 5 {
				t.Errorf("%s: %v", what, err)
			}
			look.Close()
		}
		switch what {
		case "at once":
			if all, err := log.ListRuns(t.Context()); err != nil || len(all) != 2 {
				t.Errorf("%+v, %v", all, err)
			}
		default:
			if _, err := log.(eventlog.Database).MigrateSchema(t.Context(), false); err != nil {
				t.Error(err)
			}
		}
	}
}
