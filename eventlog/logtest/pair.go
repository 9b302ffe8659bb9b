package logtest

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
)

// RunPair tests two logs in one database, as two hosts have them. Open returns a new, empty
// one twice; the suite closes both.
//
// Logs that do not implement [eventlog.Transactor] skip the tests of transactions.
func RunPair(t *testing.T, open func(testing.TB) (a, b eventlog.EventLog)) {
	one, other := open(t)
	_, transacts := one.(eventlog.Transactor)
	if err := errors.Join(one.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name      string
		transacts bool
		test      func(t *testing.T, a, b eventlog.EventLog)
	}{
		{"of two that continue a run at once, one is told", false, pairConflict},
		{"tables are made once, by the first that needs them", true, pairTables},
		{"transactions are as if one came after the other", true, func(t *testing.T, a, b eventlog.EventLog) { countUp(t, a, b) }},
		{"a run goes from one to the other", true, pairHandOver},
		{"what an earlier writer has on its way elsewhere ends at the fence", true, pairFence},
	} {
		if c.transacts && !transacts {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := open(t)
			defer a.Close()
			defer b.Close()
			c.test(t, a, b)
		})
	}
}

func pairTables(t *testing.T, a, b eventlog.EventLog) {
	var both sync.WaitGroup
	for _, log := range []eventlog.EventLog{a, b} {
		both.Go(func() {
			for range 10 {
				if err := log.(eventlog.Transactor).CreateTables(t.Context(), jobTables); err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
	expectNumber(t, transactor(t, a), 1, "SELECT count(*) FROM logtest_counter")
}

// pairConflict makes both append the same number to a run that neither was given.
// The later one gets an error, and can write other runs.
func pairConflict(t *testing.T, a, b eventlog.EventLog) {
	c := Chain{RunID: "shared"}
	store(t, a, c.Start("g"))
	inA, inB := c, c
	evA, evB := inA.Effect(1), inB.Effect(2)

	// Both know the run at event 1, so both take event 2.
	if err := b.Append(t.Context(), "shared", evB); err != nil {
		t.Fatal(err)
	}
	errA := errors.Join(a.Append(t.Context(), "shared", evA), a.Sync(t.Context(), "shared"))
	errB := b.Sync(t.Context(), "shared")
	if (errA == nil) == (errB == nil) {
		t.Fatalf("first: %v, second: %v; want exactly one to win", errA, errB)
	}
	loser, err, next := a, errA, inA.Effect(3)
	if errA == nil {
		loser, err, next = b, errB, inB.Effect(3)
	}
	for what, err := range map[string]error{
		"the barrier":    err,
		"the next event": loser.Append(t.Context(), "shared", next),
		"the next sync":  loser.Sync(t.Context(), "shared"),
	} {
		if !errors.Is(err, eventlog.ErrInvalidAppend) || !strings.Contains(err.Error(), "concurrent append") {
			t.Errorf("%s: %v", what, err)
		}
	}
	store(t, loser, Finished("unharmed", 3)...)
	if _, err := eventlog.CheckRun(t.Context(), a, "shared", eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
		t.Error(err)
	}
}

// pairHandOver enqueues with one, claims and begins with the other, and takes over
// with the first.
func pairHandOver(t *testing.T, a, b eventlog.EventLog) {
	c := Chain{RunID: "run"}
	transact(t, transactor(t, a), func(tx eventlog.Tx) error { return enqueue(tx, c.Start("g"), c.Effect(1)) })
	inB, epoch := fence(t, b, "run", 0)
	store(t, inB, c.Effect(2))
	old := c
	inA, _ := fence(t, a, "run", epoch)
	store(t, inA, c.Effect(3))
	refused(t, "the writer of the other host", inB, old.Effect(4), eventlog.ErrFenced)
	store(t, inA, c.Complete())
	for _, log := range []eventlog.EventLog{a, b} {
		if _, err := eventlog.CheckRun(t.Context(), log, "run", eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
	}
}

// pairFence is [fencingOnTheWay] with writers in both in turn.
func pairFence(t *testing.T, a, b eventlog.EventLog) {
	c := Chain{RunID: "run"}
	store(t, a, c.Start("g"))
	writer, epoch := fence(t, a, "run", 0)
	for i := range 10 {
		var old sync.WaitGroup
		begun := make(chan struct{})
		old.Go(func() { writeUntilFenced(t, writer, c, begun) })
		<-begun
		next := []eventlog.EventLog{b, a}[i%2]
		writer, epoch = fence(t, next, "run", epoch)
		evs, err := next.Read(t.Context(), "run")
		if err != nil {
			t.Fatal(err)
		}
		c = Resume(evs)
		store(t, writer, c.Effect(1000))
		old.Wait()
	}
	store(t, writer, c.Complete())
	if _, err := eventlog.CheckRun(t.Context(), a, "run", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
	if err := a.Append(t.Context(), "run", c.Effect(1)); !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Error(err)
	}
}
