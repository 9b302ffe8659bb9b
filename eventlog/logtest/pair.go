package logtest

import (
	"errors"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
)

// RunPair tests two logs that lie in one database, as two hosts have them. Open
// returns a new, empty one twice; the suite closes both.
func RunPair(t *testing.T, open func(testing.TB) (a, b eventlog.EventLog)) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, a, b eventlog.EventLog)
	}{
		{"tables are made once, whoever is first", pairTables},
		{"transactions are as if one came after the other", func(t *testing.T, a, b eventlog.EventLog) { countUp(t, a, b) }},
		{"a run goes from one to the other", pairHandOver},
		{"what an earlier writer has on its way elsewhere ends at the fence", pairFence},
	} {
		t.Run(c.name, func(t *testing.T) {
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
