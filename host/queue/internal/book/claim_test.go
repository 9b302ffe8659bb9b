package book_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/eventlog/pglog/pgtest"
	"github.com/starling-host/starling/eventlog/sqlitelog"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/internal/book"
)

// log is one with the tables of the queue.
type log interface {
	eventlog.EventLog
	eventlog.Transactor
}

func openFile(t *testing.T) (log, error) {
	return sqlitelog.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), sqlitelog.Options{})
}

func openServer(t *testing.T) (log, error) {
	return pglog.Open(t.Context(), pgtest.Database(t), pglog.Options{AutoMigrate: true})
}

// TestClaimTakesWhatIsAddedInItsTurn has a job in the table and two that the transaction
// adds, one of which goes before it. All are written down as handed out.
func TestClaimTakesWhatIsAddedInItsTurn(t *testing.T) {
	for name, open := range map[string]func(*testing.T) (log, error){"file": openFile, "server": openServer} {
		t.Run(name, func(t *testing.T) {
			l, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := l.CreateTables(t.Context(), book.Tables); err != nil {
				t.Fatal(err)
			}
			transact(t, l, func(b *book.Tx) error { return enqueue(b, queue.Job{RunID: "old"}) })
			var got []string
			transact(t, l, func(b *book.Tx) error {
				err := enqueue(b, queue.Job{RunID: "late"}, queue.Job{RunID: "urgent", Priority: 1}, queue.Job{RunID: "left"})
				if err != nil {
					return err
				}
				leases, err := b.Claim("owner", []int64{7, 8, 9}, 0)
				got = nil
				for i, lease := range leases {
					got = append(got, fmt.Sprint(lease.RunID, " ", lease.Epoch, " ", lease.Attempt, " ", 7+i))
				}
				return err
			})
			if diff := cmp.Diff([]string{"urgent 1 1 7", "old 1 1 8", "late 1 1 9"}, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(append(got, "left 0 0 0"), rows(t, l)); diff != "" {
				t.Errorf("written down: %s", diff)
			}
		})
	}
}

func enqueue(b *book.Tx, jobs ...queue.Job) error {
	for _, j := range jobs {
		if refusal, err := b.Enqueue(j); refusal != nil || err != nil {
			return fmt.Errorf("%s: %w, %w", j.RunID, refusal, err)
		}
	}
	return nil
}

// transact does something with the queue in one transaction.
func transact(t *testing.T, l log, do func(*book.Tx) error) {
	t.Helper()
	rules := book.Rules{MaxWaiting: 10, Limits: func(string) queue.Limits { return queue.Limits{} }, Now: time.Unix(1, 0)}
	err := l.Transact(t.Context(), func(tx eventlog.Tx) error {
		b := book.Begin(tx, rules)
		if err := do(b); err != nil {
			return err
		}
		_, err := b.Flush(0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rows returns the jobs with their epochs, attempts and turns, those that are running by
// turn and the others at the end.
func rows(t *testing.T, l log) (all []string) {
	t.Helper()
	err := l.View(context.Background(), func(q eventlog.Querier) error {
		const sql = "SELECT run_id, epoch, attempt, turn FROM queue_job ORDER BY state DESC, turn"
		return q.Query(sql, nil, func(r eventlog.Row) error {
			var id string
			var epoch, attempt, turn int64
			err := r.Scan(&id, &epoch, &attempt, &turn)
			all = append(all, fmt.Sprint(id, " ", epoch, " ", attempt, " ", turn))
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
