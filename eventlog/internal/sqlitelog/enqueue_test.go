package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/treetest"
)

// waiting is a queue: a run has a row from its first event to its last.
var waiting = eventlog.TableSet{Name: "waiting", Steps: []string{
	"CREATE TABLE waiting (run_id TEXT PRIMARY KEY NOT NULL, goal BLOB NOT NULL)",
}}

// begin stores the row of a run and its first event in one transaction.
func begin(ctx context.Context, l *Log, first event.Event) error {
	return l.Transact(ctx, func(tx eventlog.Tx) error {
		if _, err := tx.Exec("INSERT INTO waiting (run_id, goal) VALUES ($1, $2)", first.RunID, []byte(first.Payload)); err != nil {
			return err
		}
		return tx.Append(first.RunID, first)
	})
}

// end stores the last event of a run and removes its row.
func end(ctx context.Context, l *Log, last event.Event) error {
	return l.Transact(ctx, func(tx eventlog.Tx) error {
		_, err := tx.Exec("DELETE FROM waiting WHERE run_id = $1", last.RunID)
		return errors.Join(err, tx.Append(last.RunID, last))
	})
}

// enqueueForEver begins, continues and ends runs in eight goroutines, and
// prints which event of which run is durable.
func enqueueForEver(args ...string) error {
	path, name := args[0], args[1]
	ctx := context.Background()
	l, err := Open(ctx, path, Options{})
	if err != nil {
		return err
	}
	if err := l.CreateTables(ctx, waiting); err != nil {
		return err
	}
	var tell sync.Mutex
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for n := 0; ; n++ {
				evs := logtest.Finished(fmt.Sprintf("%s/%d-%d", name, g, n), n%4)
				last := len(evs) - 1
				err := begin(ctx, l, evs[0])
				acknowledge(&tell, evs[0], err)
				for _, e := range evs[1:last] {
					err = errors.Join(err, l.Append(ctx, e.RunID, e))
				}
				err = errors.Join(err, l.Sync(ctx, evs[0].RunID))
				acknowledge(&tell, evs[last-1], err)
				if g%2 == 0 {
					acknowledge(&tell, evs[last], end(ctx, l, evs[last]))
				}
			}
		})
	}
	all.Wait()
	return nil
}

// acknowledge tells that the event is durable, and ends the process if it is not.
func acknowledge(tell *sync.Mutex, e event.Event, err error) {
	tell.Lock()
	defer tell.Unlock()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s %d\n", e.RunID, e.Seq)
}

// TestKilledProcessesTearNoTransaction kills a process that enqueues, again and
// again. A run has a row exactly while it has not ended.
func TestKilledProcessesTearNoTransaction(t *testing.T) {
	t.Parallel()
	kills := treetest.Count(5, 5, 30)
	path := filepath.Join(t.TempDir(), "log.db")
	total := 0
	for k := range kills {
		acked := killWriter(t, "enqueue", path, fmt.Sprintf("k%d", k), 5+rand.IntN(200))
		l := openAt(t, path, Options{})
		total += checkAcknowledged(t, l, acked)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := openAt(t, path, Options{})
	rows := waitingRuns(t, l)
	runs, events := readAllOpen(t, l)
	open := 0
	for _, r := range runs {
		goal, waits := rows[r.RunID]
		if waits != (r.TerminalKind == 0) || waits && goal != string(events[r.RunID]) {
			t.Errorf("run %s with terminal %v has a row: %t", r.RunID, r.TerminalKind, waits)
		}
		if waits {
			open++
		}
	}
	if open != len(rows) {
		t.Errorf("%d rows for %d open runs", len(rows), open)
	}
	t.Logf("%d kills, %d runs with acknowledged events, %d of %d runs wait, none torn", kills, total, open, len(runs))
}

func waitingRuns(t testing.TB, l *Log) map[string]string {
	rows := make(map[string]string)
	err := l.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT run_id, goal FROM waiting", nil, func(r eventlog.Row) error {
			var id string
			var goal []byte
			err := r.Scan(&id, &goal)
			rows[id] = string(goal)
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
	return rows
}

// readAllOpen checks all runs and returns the payload of the first event of each.
func readAllOpen(t testing.TB, l *Log) ([]eventlog.RunSummary, map[string][]byte) {
	runs, err := l.ListRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := make(map[string][]byte)
	for _, r := range runs {
		if _, err := eventlog.CheckRun(t.Context(), l, r.RunID, eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
			t.Error(err)
		}
		for e, err := range l.Events(t.Context(), r.RunID, 0) {
			if err != nil {
				t.Error(err)
			}
			first[r.RunID] = e.Payload
			break
		}
	}
	return runs, first
}
