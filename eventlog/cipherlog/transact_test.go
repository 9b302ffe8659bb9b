package cipherlog_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/memlog"
)

// Events that a transaction appends are sealed, in runs that it begins, that
// another one has begun, and that the log has appended to before and after.
func TestTransactionsSeal(t *testing.T) {
	inner := onDisk(t)
	log := over(t, inner, 1)
	run, other := secretRun("acme/r"), secretRun("acme/other")
	inTransaction := func(evs ...event.Event) {
		t.Helper()
		err := log.(eventlog.Transactor).Transact(t.Context(), func(tx eventlog.Tx) error {
			for _, e := range evs {
				if err := tx.Append(e.RunID, e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	inTransaction(run[0], run[1], other[0])
	inTransaction(other[1], run[2], other[2])
	store(t, log, run[3:4])
	inTransaction(run[4])
	store(t, log, run[5:])
	for name, l := range map[string]eventlog.EventLog{"plain": log, "stored": inner} {
		if _, err := eventlog.CheckRun(t.Context(), l, "acme/r", eventlog.CheckOptions{Strict: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := log.Read(t.Context(), "acme/r")
	if diff := cmp.Diff(run, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// What a transaction that fails has appended leaves no trace, neither in the file
// nor in what the log remembers.
func TestTransactionsThatFail(t *testing.T) {
	inner := onDisk(t)
	log := over(t, inner, 1)
	run := secretRun("acme/r")
	store(t, log, run[:2])
	undo := errors.New("undo")
	for _, swallow := range []bool{false, true} {
		err := log.(eventlog.Transactor).Transact(t.Context(), func(tx eventlog.Tx) error {
			if err := tx.Append("acme/r", run[2]); err != nil && !swallow {
				return err
			}
			return undo
		})
		if !errors.Is(err, undo) {
			t.Errorf("%v", err)
		}
	}
	for name, e := range map[string]event.Event{"a gap": run[4], "another namespace's run": secretRun("x")[0]} {
		err := view(t, inner, 1, "acme").(eventlog.Transactor).Transact(t.Context(), func(tx eventlog.Tx) error { return tx.Append(e.RunID, e) })
		if !errors.Is(err, eventlog.ErrInvalidAppend) {
			t.Errorf("%s: %v", name, err)
		}
	}
	store(t, log, run[2:])
	if _, err := eventlog.CheckRun(t.Context(), log, "acme/r", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
}

// Two workers have the run one after the other; the first one's events are refused
// once the second has it, and the run stays whole.
func TestFencedWriters(t *testing.T) {
	inner := onDisk(t)
	log := view(t, inner, 1, "acme")
	run := secretRun("acme/r")
	store(t, log, run[:1])
	claim := func() (writer eventlog.EventLog) {
		t.Helper()
		err := log.(eventlog.Transactor).Transact(t.Context(), func(tx eventlog.Tx) error {
			epoch, err := tx.Fence("acme/r")
			writer = log.(eventlog.Fencer).Fenced("acme/r", epoch)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return writer
	}
	first := claim()
	store(t, first, run[1:3])
	second := claim()
	err := first.Append(t.Context(), "acme/r", run[3])
	if err == nil {
		err = first.Sync(t.Context(), "acme/r")
	}
	if !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("the writer of an earlier epoch: %v", err)
	}
	store(t, second, run[3:])
	for name, l := range map[string]eventlog.EventLog{"plain": second, "stored": inner} {
		if _, err := eventlog.CheckRun(t.Context(), l, "acme/r", eventlog.CheckOptions{Strict: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err = log.(eventlog.Transactor).Transact(t.Context(), func(tx eventlog.Tx) error { _, err := tx.Fence("other/r"); return err })
	if err == nil {
		t.Error("a run of another namespace was fenced")
	}
}

// A log has the optional interfaces of the one below it, and no others.
func TestInterfaces(t *testing.T) {
	inMemory, disk := over(t, memlog.New(), 1), over(t, onDisk(t), 1)
	for name, has := range map[string]func(eventlog.EventLog) bool{
		"RunFinder":    func(l eventlog.EventLog) bool { _, ok := l.(eventlog.RunFinder); return ok },
		"ModuleStore":  func(l eventlog.EventLog) bool { _, ok := l.(eventlog.ModuleStore); return ok },
		"SchemaKeeper": func(l eventlog.EventLog) bool { _, ok := l.(eventlog.SchemaKeeper); return ok },
		"Transactor":   func(l eventlog.EventLog) bool { _, ok := l.(eventlog.Transactor); return ok },
		"Fencer":       func(l eventlog.EventLog) bool { _, ok := l.(eventlog.Fencer); return ok },
	} {
		always := name == "RunFinder" || name == "ModuleStore" || name == "Fencer"
		if has(inMemory) != always || !has(disk) {
			t.Errorf("%s: in memory %v, on disk %v", name, has(inMemory), has(disk))
		}
	}
	bare := over(t, fixed{events: sealed(t, 1, logtest.Finished("r", 1))[0]}, 1)
	if _, ok := bare.(eventlog.RunFinder); ok {
		t.Error("a log finds runs that the one below does not find")
	}
}
