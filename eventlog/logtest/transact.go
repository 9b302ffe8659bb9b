package logtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// jobTables are a small queue and a counter.
var jobTables = eventlog.TableSet{Name: "logtest", Steps: []string{
	`CREATE TABLE logtest_job (run_id TEXT PRIMARY KEY NOT NULL, state INTEGER NOT NULL);
		CREATE INDEX logtest_ready ON logtest_job (run_id) WHERE state = 0;
		CREATE TABLE logtest_counter (n INTEGER NOT NULL); INSERT INTO logtest_counter VALUES (0)`,
}}

// transactor returns the log with the tables of jobTables.
func transactor(t testing.TB, log eventlog.EventLog) eventlog.Transactor {
	t.Helper()
	tr := log.(eventlog.Transactor)
	if err := tr.CreateTables(t.Context(), jobTables); err != nil {
		t.Fatal(err)
	}
	return tr
}

// enqueue takes the first events of a run together with its row.
func enqueue(tx eventlog.Tx, evs ...event.Event) error {
	if _, err := tx.Exec("INSERT INTO logtest_job (run_id, state) VALUES ($1, 0)", evs[0].RunID); err != nil {
		return err
	}
	for _, e := range evs {
		if err := tx.Append(e.RunID, e); err != nil {
			return err
		}
	}
	return nil
}

// transact runs a transaction that must succeed.
func transact(t testing.TB, tr eventlog.Transactor, fn func(eventlog.Tx) error) {
	t.Helper()
	if err := tr.Transact(t.Context(), fn); err != nil {
		t.Error(err)
	}
}

// number returns the one integer that the query yields, or -1.
func number(q eventlog.Querier, query string, args ...any) (int64, error) {
	n := int64(-1)
	err := q.Query(query, args, func(r eventlog.Row) error { return r.Scan(&n) })
	return n, err
}

// expectNumber requires the query to yield n.
func expectNumber(t testing.TB, tr eventlog.Transactor, n int64, query string, args ...any) {
	t.Helper()
	err := tr.View(t.Context(), func(q eventlog.Querier) error {
		got, err := number(q, query, args...)
		if got != n {
			t.Errorf("%s: %d, want %d", query, got, n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

const countJobs = "SELECT count(*) FROM logtest_job"

func tables(t *testing.T, log eventlog.EventLog) {
	tr := transactor(t, log)
	set := func(steps ...string) eventlog.TableSet {
		return eventlog.TableSet{Name: "logtest_steps", Steps: steps}
	}
	const first, second = "CREATE TABLE logtest_a (n BIGINT NOT NULL)", "ALTER TABLE logtest_a ADD COLUMN s TEXT; CREATE TABLE logtest_b (n BIGINT)"
	for range 2 {
		if err := tr.CreateTables(t.Context(), set(first)); err != nil {
			t.Fatal(err)
		}
	}
	transact(t, tr, func(tx eventlog.Tx) error {
		_, err := tx.Exec("INSERT INTO logtest_a (n) VALUES (7)")
		return err
	})
	if err := tr.CreateTables(t.Context(), set(first, second, "CREATE TABLE logtest_c (n BIGINT); SELECT nonsense")); err == nil {
		t.Error("a step that makes no sense was taken")
	}
	if err := tr.CreateTables(t.Context(), set(first, second)); err != nil { // the failure left nothing of it
		t.Fatal(err)
	}
	expectNumber(t, tr, 7, "SELECT n FROM logtest_a WHERE s IS NULL")
	if err := tr.CreateTables(t.Context(), set(first)); !errors.Is(err, eventlog.ErrSchemaTooNew) {
		t.Errorf("a program that knows fewer steps: %v", err)
	}
	if err := tr.CreateTables(t.Context(), eventlog.TableSet{Name: "No; name"}); err == nil {
		t.Error("a name that is none was taken")
	}

	// A program works beside one that has added a step, until the step is needed.
	const third = "CREATE TABLE logtest_c (n BIGINT)"
	before, now, later := set(first, second), set(first, second, third), set(first, second, third, "CREATE TABLE logtest_d (n BIGINT)")
	now.Added = 1
	for _, s := range []eventlog.TableSet{now, before, now} {
		if err := tr.CreateTables(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if n, err := tr.TableSteps(t.Context(), s); err != nil || n != len(s.Steps) {
			t.Errorf("%d steps, %v", n, err)
		}
	}
	if err := tr.CreateTables(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	for _, s := range []eventlog.TableSet{before, now} {
		if err := tr.CreateTables(t.Context(), s); !errors.Is(err, eventlog.ErrSchemaTooNew) {
			t.Errorf("a program that knows %d of four steps: %v", len(s.Steps), err)
		}
	}
}

func tableValues(t *testing.T, log eventlog.EventLog) {
	tr := transactor(t, log)
	err := tr.CreateTables(t.Context(), eventlog.TableSet{Name: "logtest_values", Steps: []string{
		"CREATE TABLE logtest_values (id INTEGER, b BOOLEAN, i INTEGER, f REAL, s TEXT, d BLOB)",
	}})
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		B bool
		I int64
		F float64
		S string
		D []byte
	}
	want := []row{
		{true, -1 << 63, 1.5, `'";--$1 ?ü`, []byte{0, 1, 255}},
		{false, 1<<63 - 1, -2, "", []byte{}},
	}
	transact(t, tr, func(tx eventlog.Tx) error {
		for i, r := range want {
			n, err := tx.Exec("INSERT INTO logtest_values (f, b, i, s, d, id) VALUES ($4, $2, $3, $5, $6, $1)", int64(i), r.B, r.I, r.F, r.S, r.D)
			if err != nil || n != 1 {
				return fmt.Errorf("%d rows: %w", n, err)
			}
		}
		_, err := tx.Exec("INSERT INTO logtest_values (id, b, i, f, s, d) VALUES (2, $1, $2, $3, $4, $5)", nil, nil, nil, nil, nil)
		return err
	})
	want = append(want, row{}) // NULL leaves zero
	var got []row
	err = tr.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT b, i, f, s, d FROM logtest_values WHERE id >= $1 ORDER BY id", []any{int64(0)}, func(r eventlog.Row) error {
			v := row{true, 9, 9, "9", []byte("9")}
			got = append(got, v)
			return r.Scan(&got[len(got)-1].B, &got[len(got)-1].I, &got[len(got)-1].F, &got[len(got)-1].S, &got[len(got)-1].D)
		})
	})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	var are []bool // numbers: true unless they are zero
	err = tr.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT id, 0 * id FROM logtest_values WHERE id < 2 ORDER BY id", nil, func(r eventlog.Row) error {
			var number, zero bool
			err := r.Scan(&number, &zero)
			are = append(are, number, zero)
			return err
		})
	})
	if diff := cmp.Diff([]bool{false, false, true, false}, are); err != nil || diff != "" {
		t.Error(err, diff)
	}
	count, epoch, never, at := 9, uint64(9), time.Now(), time.Now()
	err = tr.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT 2 * id, 3 * id, 0 * id, id FROM logtest_values WHERE id = 1", nil, func(r eventlog.Row) error {
			return r.Scan(&count, &epoch, &never, &at)
		})
	})
	if err != nil || count != 2 || epoch != 3 || !never.IsZero() || !at.Equal(time.Unix(0, 1)) {
		t.Errorf("%d, %d, %v, %v, %v", count, epoch, never, at, err)
	}
	digest := canon.Sum([]byte("a digest"))
	transact(t, tr, func(tx eventlog.Tx) error {
		_, err := tx.Exec("UPDATE logtest_values SET d = $1 WHERE id = 1", digest[:])
		return err
	})
	digests, err := eventlog.ViewAll(t.Context(), tr, "SELECT d FROM logtest_values WHERE id > 0 ORDER BY id", nil, eventlog.Columns(func(h *canon.Hash) []any { return []any{h} }))
	if diff := cmp.Diff([]canon.Hash{digest, {}}, digests); err != nil || diff != "" {
		t.Error(err, diff)
	}
	badScans(t, tr)
}

// badScans requires impossible scans to be errors, and a caller's error to come
// back unchanged.
func badScans(t *testing.T, tr eventlog.Transactor) {
	enough := errors.New("enough")
	var s string
	var n int64
	for what, tc := range map[string]struct {
		args []any
		scan func(eventlog.Row) error
		want error
	}{
		"too few columns":                         {[]any{int64(0)}, func(r eventlog.Row) error { return r.Scan(&n) }, nil},
		"a column of another type":                {[]any{int64(0)}, func(r eventlog.Row) error { return r.Scan(&n, &n) }, nil},
		"an argument of a type that is not named": {[]any{struct{}{}}, func(r eventlog.Row) error { return r.Scan(&n, &s) }, nil},
		"a text as a digest":                      {[]any{int64(0)}, func(r eventlog.Row) error { return r.Scan(&n, new(canon.Hash)) }, nil},
		"no argument":                             {nil, func(r eventlog.Row) error { return r.Scan(&n, &s) }, nil},
		"the caller's error":                      {[]any{int64(0)}, func(eventlog.Row) error { return enough }, enough},
	} {
		err := tr.View(t.Context(), func(q eventlog.Querier) error {
			return q.Query("SELECT i, s FROM logtest_values WHERE id = $1", tc.args, tc.scan)
		})
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func transacting(t *testing.T, log eventlog.EventLog) {
	tr := transactor(t, log)
	evs := Finished("ns/run-1", 3)
	transact(t, tr, func(tx eventlog.Tx) error { return enqueue(tx, evs[0], evs[1]) })
	expectNumber(t, tr, 1, countJobs)
	if got, err := log.Read(t.Context(), "ns/run-1"); err != nil || len(got) != 2 {
		t.Fatalf("%d events, %v", len(got), err)
	}
	store(t, log, evs[2:len(evs)-1]...)
	transact(t, tr, func(tx eventlog.Tx) error {
		n, err := tx.Exec("DELETE FROM logtest_job WHERE run_id = $1", "ns/run-1")
		if err != nil || n != 1 {
			t.Errorf("%d rows, %v", n, err)
		}
		return errors.Join(err, tx.Append("ns/run-1", evs[len(evs)-1]))
	})
	expectNumber(t, tr, 0, countJobs)
	if _, err := eventlog.CheckRun(t.Context(), log, "ns/run-1", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
}

// gone requires that the run has neither a row nor an event.
func gone(t testing.TB, log eventlog.EventLog, runID string) {
	t.Helper()
	expectNumber(t, log.(eventlog.Transactor), 0, "SELECT count(*) FROM logtest_job WHERE run_id = $1", runID)
	if _, err := log.Read(t.Context(), runID); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("reading what was undone: %v", err)
	}
}

func undoing(t *testing.T, log eventlog.EventLog) {
	tr := transactor(t, log)
	sorry := errors.New("sorry")
	evs := Finished("run-1", 1)
	err := tr.Transact(t.Context(), func(tx eventlog.Tx) error { return errors.Join(enqueue(tx, evs...), sorry) })
	if !errors.Is(err, sorry) {
		t.Errorf("the function's error: %v", err)
	}
	gone(t, log, "run-1")
	err = tr.Transact(t.Context(), func(tx eventlog.Tx) error { return enqueue(tx, evs[0], evs[2]) })
	if !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Errorf("an event that does not continue the run: %v", err)
	}
	gone(t, log, "run-1")
	err = tr.Transact(t.Context(), func(tx eventlog.Tx) error {
		if err := enqueue(tx, evs[0]); err != nil {
			return err
		}
		tx.Exec("SELECT nonsense") // the error is dropped
		return nil
	})
	if err == nil {
		t.Error("a transaction of which a statement failed was committed")
	}
	gone(t, log, "run-1")
	epoch := uint64(0)
	err = tr.Transact(t.Context(), func(tx eventlog.Tx) (err error) {
		epoch, err = tx.Fence("run-1")
		return errors.Join(err, sorry)
	})
	if epoch == 0 || !errors.Is(err, sorry) {
		t.Errorf("epoch %d, %v", epoch, err)
	}
	store(t, log, evs...) // which no trace of all this prevents
}

func conflicting(t *testing.T, log eventlog.EventLog) {
	tr := transactor(t, log)
	transact(t, tr, func(tx eventlog.Tx) error { return enqueue(tx, Finished("run-1", 1)...) })
	for _, silent := range []bool{false, true} {
		err := tr.Transact(t.Context(), func(tx eventlog.Tx) error {
			second := Finished("run-2", 1)
			if err := enqueue(tx, second...); err != nil {
				return err
			}
			_, err := tx.Exec("INSERT INTO logtest_job (run_id, state) VALUES ($1, 1)", "run-1")
			if !errors.Is(err, eventlog.ErrConflict) {
				t.Errorf("Exec: %v", err)
			}
			if silent {
				return nil
			}
			return err
		})
		if !errors.Is(err, eventlog.ErrConflict) {
			t.Errorf("Transact: %v", err)
		}
		gone(t, log, "run-2")
	}
	transact(t, tr, func(tx eventlog.Tx) error {
		n, err := tx.Exec("INSERT INTO logtest_job (run_id, state) VALUES ($1, 1) ON CONFLICT (run_id) DO NOTHING", "run-1")
		if n != 0 {
			t.Errorf("%d rows", n)
		}
		return err
	})
}

func alternating(t *testing.T, log eventlog.EventLog) {
	tr := transactor(t, log)
	c := Chain{RunID: "run-1"}
	ch, cancel := stream(t, log, "run-1")
	defer cancel()
	appendTx := func(e event.Event) error {
		return tr.Transact(t.Context(), func(tx eventlog.Tx) error { return tx.Append("run-1", e) })
	}
	store(t, log, c.Start("g"), c.Effect(1))
	for range 5 {
		if err := appendTx(c.Effect(2)); err != nil {
			t.Fatal(err)
		}
		append1(t, log, c.Effect(3)) // not waited for: the transaction comes after it
	}
	expect(t, ch, 1, c.seq)
	ahead := c
	ahead.Effect(1)
	if err := appendTx(ahead.Effect(1)); !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Errorf("an event after the next: %v", err)
	}
	if err := appendTx(c.Complete()); err != nil {
		t.Fatal(err)
	}
	expect(t, ch, c.seq, c.seq)
	expectEnd(t, ch)
	late := c
	if err := log.Append(t.Context(), "run-1", late.Effect(1)); !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := eventlog.CheckRun(t.Context(), log, "run-1", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
}

// increment reads the counter and writes the next value.
func increment(tx eventlog.Tx) error {
	n, err := number(tx, "SELECT n FROM logtest_counter")
	if err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE logtest_counter SET n = $1", n+1)
	return err
}

func serialising(t *testing.T, log eventlog.EventLog) {
	countUp(t, log)
}

// countUp increments from all logs at once.
func countUp(t *testing.T, logs ...eventlog.EventLog) {
	const writers, times = 8, 10
	var all sync.WaitGroup
	for i := range writers {
		tr := transactor(t, logs[i%len(logs)])
		all.Go(func() {
			for range times {
				transact(t, tr, increment)
			}
		})
	}
	all.Wait()
	expectNumber(t, transactor(t, logs[0]), writers*times, "SELECT n FROM logtest_counter")
}

func viewing(t *testing.T, log eventlog.EventLog) {
	tr := transactor(t, log)
	const query = "SELECT n FROM logtest_counter"
	err := tr.View(t.Context(), func(q eventlog.Querier) error {
		before, err := number(q, query)
		if err != nil {
			return err
		}
		transact(t, tr, increment)
		after, err := number(q, query)
		if before != after {
			t.Errorf("the counter went from %d to %d", before, after)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	expectNumber(t, tr, 1, query)
	err = tr.View(t.Context(), func(q eventlog.Querier) error {
		_, err := number(q, "UPDATE logtest_counter SET n = 9 RETURNING n")
		return err
	})
	if err == nil {
		t.Error("a view changed a row")
	}
	expectNumber(t, tr, 1, query)
}

func panicking(t *testing.T, log eventlog.EventLog) {
	tr := transactor(t, log)
	func() {
		defer func() {
			if got := recover(); got != "oh" {
				t.Errorf("recovered %v", got)
			}
		}()
		tr.Transact(t.Context(), func(tx eventlog.Tx) error {
			if err := enqueue(tx, Finished("run-1", 1)...); err != nil {
				t.Error(err)
			}
			panic("oh")
		})
	}()
	gone(t, log, "run-1")
	transact(t, tr, func(tx eventlog.Tx) error { return enqueue(tx, Finished("run-1", 1)...) })
}

// transactingAtOnce enqueues 64 runs, which 64 writers then write and take out of
// the queue again.
func transactingAtOnce(t *testing.T, log eventlog.EventLog) {
	const runs = 64
	tr := transactor(t, log)
	var all sync.WaitGroup
	for i := range runs {
		evs := Finished(fmt.Sprintf("run-%02d", i), 10)
		all.Go(func() {
			last := len(evs) - 1
			transact(t, tr, func(tx eventlog.Tx) error { return enqueue(tx, evs[0], evs[1]) })
			writeWithBarriers(t, log, evs[2:last], i)
			transact(t, tr, func(tx eventlog.Tx) error {
				_, err := tx.Exec("DELETE FROM logtest_job WHERE run_id = $1", evs[0].RunID)
				return errors.Join(err, tx.Append(evs[0].RunID, evs[last]))
			})
		})
	}
	all.Wait()
	expectNumber(t, tr, 0, countJobs)
	for i := range runs {
		if _, err := eventlog.CheckRun(t.Context(), log, fmt.Sprintf("run-%02d", i), eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
	}
}
