package queue

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
)

// backends are the stores that a queue can lie in.
var backends = map[string]func(*testing.T) (eventlog.Transactor, error){
	"file": func(t *testing.T) (eventlog.Transactor, error) {
		return store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "log.db"), store.FileOptions{})
	},
	"server": func(t *testing.T) (eventlog.Transactor, error) {
		return store.OpenServer(t.Context(), pgtest.Database(t), store.ServerOptions{AutoMigrate: true})
	},
}

// TestClaimTakesAddedJobsInOrder claims one job of the table and two that the transaction
// adds; one of the two goes first. All are stored as handed out.
func TestClaimTakesAddedJobsInOrder(t *testing.T) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			l, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			defer l.(eventlog.EventLog).Close()
			if err := l.CreateTables(t.Context(), Tables); err != nil {
				t.Fatal(err)
			}
			transact(t, l, func(s *storeTx) error { return enqueueAll(s, Job{RunID: "old"}) })
			var got []string
			transact(t, l, func(s *storeTx) error {
				err := enqueueAll(s, Job{RunID: "late"}, Job{RunID: "urgent", Priority: 1}, Job{RunID: "left"})
				if err != nil {
					return err
				}
				leases, err := s.claim("owner", 3, 0)
				got = nil
				for _, l := range leases {
					got = append(got, fmt.Sprint(l.RunID, " ", l.Epoch, " ", l.Attempt, " owner"))
				}
				return err
			})
			if diff := cmp.Diff([]string{"urgent 1 1 owner", "old 1 1 owner", "late 1 1 owner"}, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(append(got, "left 0 0 "), rows(t, l)); diff != "" {
				t.Errorf("stored: %s", diff)
			}
		})
	}
}

func enqueueAll(s *storeTx, jobs ...Job) error {
	for _, j := range jobs {
		if refusal, err := s.enqueue(j); refusal != nil || err != nil {
			return fmt.Errorf("%s: %w, %w", j.RunID, refusal, err)
		}
	}
	return nil
}

// transact does something with the job store in one transaction.
func transact(t *testing.T, l eventlog.Transactor, do func(*storeTx) error) {
	t.Helper()
	cfg, err := Config{MaxWaiting: 10}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	err = l.Transact(t.Context(), func(tx eventlog.Tx) error {
		s := beginStore(tx, &cfg, 0)
		if err := s.takeState(); err != nil {
			return err
		}
		if err := do(s); err != nil {
			return err
		}
		return s.flush()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rows returns the jobs with their epochs, attempts and owners: running jobs first,
// then by priority and number.
func rows(t *testing.T, l eventlog.Transactor) (all []string) {
	t.Helper()
	err := l.View(context.Background(), func(q eventlog.Querier) error {
		const sql = "SELECT run_id, epoch, attempt, owner FROM queue_job ORDER BY state DESC, rank, number"
		return q.Query(sql, nil, func(r eventlog.Row) error {
			var id, owner string
			var epoch, attempt int64
			err := r.Scan(&id, &epoch, &attempt, &owner)
			all = append(all, fmt.Sprint(id, " ", epoch, " ", attempt, " ", owner))
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTheEndOfAJobSharesATransaction with the next job that is enqueued, or lingers for a
// while and no longer.
func TestTheEndOfAJobSharesATransaction(t *testing.T) {
	q, worked := lingering(t)
	for _, run := range []string{"t/1", "t/2"} {
		if err := q.Enqueue(t.Context(), Job{RunID: run}, nil); err != nil {
			t.Fatal(err)
		}
		<-worked
		until(t, q, func() bool { return len(q.changes) == 1 && q.changes[0].later && !q.committing })
		if s, err := q.Stats(t.Context()); err != nil || s.Running != 1 || s.Waiting != 0 {
			t.Errorf("%+v, %v: want the last job alone", s, err)
		}
	}
	q.endLinger()
	until(t, q, func() bool { return len(q.dispatcher.tasks) == 0 })
	if s, err := q.Stats(t.Context()); err != nil || s != (Stats{}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestTheEndOfAJobDoesNotLingerWhenJobsWait: they may wait for it.
func TestTheEndOfAJobDoesNotLingerWhenJobsWait(t *testing.T) {
	q, worked := lingering(t)
	block := make(chan bool)
	blocked := make(chan error, 1)
	go func() {
		blocked <- q.Enqueue(t.Context(), Job{RunID: "t/1"}, func(eventlog.Tx) error { <-block; return nil })
	}()
	until(t, q, func() bool { return q.committing && len(q.changes) == 0 })
	for _, run := range []string{"t/2", "t/3"} { // both in the next transaction, with one worker
		go q.Enqueue(t.Context(), Job{RunID: run}, nil)
	}
	until(t, q, func() bool { return len(q.changes) == 2 })
	close(block)
	if err := <-blocked; err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-worked
	}
}

// lingering returns a queue with one busy worker, which reports each job, and whose
// changes linger until the test ends it.
func lingering(t *testing.T) (q *Queue, worked <-chan string) {
	t.Helper()
	log, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "log.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	looked := make(chan struct{})
	q, err = Open(t.Context(), log, Config{Poll: time.Hour, Lease: time.Hour, Workers: 1, Grace: -1, Clock: pollClock{looked: looked}})
	if err != nil {
		t.Fatal(err)
	}
	q.lingering = true // so that no timer is started
	told := make(chan string, 3)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		stopped <- q.Work(ctx, func(_ context.Context, l Lease) error {
			told <- l.RunID
			return nil
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	select { // a dispatcher that still looks for the first time may commit what lingers
	case <-looked:
	case <-time.After(untilTime):
		t.Fatal("the dispatcher does not wait for its next poll")
	}
	until(t, q, func() bool { return q.dispatcher != nil && q.dispatcher.claims() && !q.committing })
	return q, told
}

// pollClock is the machine's clock, and reports each wait for an hour, which is the time
// between two polls in these tests.
type pollClock struct {
	machineClock
	looked chan<- struct{}
}

func (c pollClock) After(d time.Duration) <-chan time.Time {
	if d == time.Hour {
		c.looked <- struct{}{}
	}
	return c.machineClock.After(d)
}

// untilTime is how long a test waits for a condition that should hold at once.
const untilTime = time.Minute

// until waits until something is so, asking under the queue's lock.
func until(t *testing.T, q *Queue, is func() bool) {
	t.Helper()
	for late := time.Now().Add(untilTime); ; time.Sleep(time.Millisecond) { // which lets the others run
		q.mu.Lock()
		done := is()
		q.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(late) {
			t.Fatal("it does not come about")
		}
	}
}

// TestALeaseIsLostOnce: a dispatcher that finds itself replaced, while it renews its lease and while
// it claims jobs, enters the store again once. A second entry would drop the jobs it was just given.
func TestALeaseIsLostOnce(t *testing.T) {
	q, _ := lingering(t)
	d := &dispatcher{q: q, ctx: t.Context(), fail: func(error) {}, replaced: make(chan struct{}, 1)}
	if !d.register(t.Context(), "", "first", "host") {
		t.Fatal("not registered")
	}
	first := d.owner
	d.start(&batch{owner: first}, nil, errReplaced) // whether or not the renewal has failed as well
	if d.owner != "" || !d.register(t.Context(), first, "second", "") || d.owner == first {
		t.Fatalf("the owner is %q after %q", d.owner, first)
	}
	d.start(&batch{owner: first}, nil, errReplaced) // a batch of before
	select {
	case <-d.replaced:
		t.Error("the new lease ends with the old one")
	default:
	}
	if d.owner == "" {
		t.Error("the new lease is lost with a batch of the old one")
	}
}

// TestADrainOutlivesALease: what an operator has told a process between two leases holds for the
// second one, also when others have found the process dead, or a first try to register has lost its
// answer.
func TestADrainOutlivesALease(t *testing.T) {
	for name, open := range backends {
		t.Run(name, func(t *testing.T) {
			l, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			defer l.(eventlog.EventLog).Close()
			q, err := Open(t.Context(), l, Config{})
			if err != nil {
				t.Fatal(err)
			}
			until := time.Now().Add(time.Hour)
			for _, told := range []bool{true, false} {
				for _, between := range []string{"nothing", "found dead", "answer lost"} {
					of := fmt.Sprintf("drain %v, %s", told, between)
					before, after := of+": first", of+": second"
					transact(t, l, func(s *storeTx) error {
						_, err := s.register("", before, "", until, !told)
						return err
					})
					if err := q.Drain(t.Context(), before, told); err != nil {
						t.Fatal(err)
					}
					transact(t, l, func(s *storeTx) (err error) {
						switch between {
						case "found dead":
							if _, err = s.tx.Exec("UPDATE queue_host SET until = 1"); err == nil {
								_, err = s.recover("another")
							}
						case "answer lost":
							_, err = s.register(before, after, "", until, !told)
						}
						return err
					})
					transact(t, l, func(s *storeTx) error {
						_, err := s.register(before, after, "", until, !told)
						return err
					})
					hosts, err := q.Hosts(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					want := map[bool]string{true: HostDrained, false: HostWorking}[told]
					if len(hosts) != 1 || hosts[0].ID != after || hosts[0].State != want {
						t.Errorf("%s: %v", of, hosts)
					}
					transact(t, l, func(s *storeTx) error {
						_, err := s.removeHosts("owner = $1", after)
						return err
					})
				}
			}
		})
	}
}
