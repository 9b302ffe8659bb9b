package cipherlog_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/cipherlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// view is the log of one tenant.
func view(t testing.TB, inner eventlog.EventLog, key byte, namespace string) eventlog.EventLog {
	t.Helper()
	log, err := cipherlog.New(inner, keyOf(t, key), namespace)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestTenantsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	inner := store.Memory()
	a, b := view(t, inner, 1, "a"), view(t, inner, 2, "b")
	keep(t, a, secretRun("a/1"))
	keep(t, b, secretRun("b/1"))
	keep(t, b, secretRun("b/2"))
	if _, err := a.Read(t.Context(), "b/1"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("Read: %v", err)
	}
	if _, err := a.Stream(t.Context(), "b/1"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("Stream: %v", err)
	}
	if _, err := a.Run(t.Context(), "b/1"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("Run: %v", err)
	}
	if err := a.Append(t.Context(), "b/3", secretRun("b/3")[0]); !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Errorf("Append: %v", err)
	}
	page, err := a.ListRunsPage(t.Context(), eventlog.RunPageOptions{})
	if err != nil || page.TotalMatching != 1 || page.Runs[0].RunID != "a/1" {
		t.Errorf("page %+v, %v", page, err)
	}
	if _, err := a.ListRunsPage(t.Context(), eventlog.RunPageOptions{Namespace: "b"}); err == nil {
		t.Error("a page of another namespace")
	}
	all, err := b.ListRuns(t.Context())
	if err != nil || len(all) != 2 {
		t.Errorf("list %+v, %v", all, err)
	}
}

// A run continues in another process, which has only the file, and then in the
// first one again, which remembers an older state.
func TestAnotherProcessGoesOn(t *testing.T) {
	t.Parallel()
	inner := store.Memory()
	run := secretRun("acme/r")
	first, second := over(t, inner, 1), over(t, inner, 1)
	for i, log := range []eventlog.EventLog{first, first, second, second, first, second, first} {
		keep(t, log, run[i:i+1])
	}
	got, err := first.Read(t.Context(), "acme/r")
	if diff := cmp.Diff(run, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	for name, log := range map[string]eventlog.EventLog{"plain": first, "stored": inner} {
		if _, err := eventlog.CheckRun(t.Context(), log, "acme/r", eventlog.CheckOptions{Strict: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A listing, seen with and without the key.
func TestSummaries(t *testing.T) {
	t.Parallel()
	inner := store.Memory()
	log := over(t, inner, 1)
	run := secretRun("acme/r")
	keep(t, log, run)
	stored, err := inner.Run(t.Context(), "acme/r")
	if err != nil || stored.TurnCount != 1 || stored.InputTokens != 0 || stored.CostUSD != 0 || stored.TerminalKind != event.KindRunCompleted {
		t.Errorf("without the key: %+v, %v", stored, err)
	}
	plain, err := log.Run(t.Context(), "acme/r")
	if err != nil || plain.ToolCallCount != 1 || plain.InputTokens != 12 || plain.OutputTokens != 3 || plain.CostUSD != 0.25 || plain.Head != run[6].Hash() {
		t.Errorf("with the key: %+v, %v", plain, err)
	}
	// One run of another key does not hide the others.
	keep(t, over(t, inner, 2), logtest.Finished("acme/other", 1))
	all, err := log.ListRuns(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, s := range all {
		if known := s.RunID == "acme/r"; known != (s.CostUSD == 0.25) {
			t.Errorf("%+v", s)
		}
	}
}

// A first event encrypted for a transaction of the log below begins a run that the
// log continues.
func TestFirst(t *testing.T) {
	t.Parallel()
	inner := store.Memory()
	run := secretRun("acme/r")
	first, err := cipherlog.First(keyOf(t, 1), run[0])
	if err != nil {
		t.Fatal(err)
	}
	keep(t, inner, []event.Event{first})
	log := over(t, inner, 1)
	keep(t, log, run[1:])
	if _, err := eventlog.CheckRun(t.Context(), log, "acme/r", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
	if _, err := cipherlog.First(keyOf(t, 1), run[1]); err == nil {
		t.Error("a second event was taken for a first one")
	}
	if _, err := cipherlog.First(cipherlog.Key{}, run[0]); err == nil {
		t.Error("an event was encrypted without a key")
	}
}

// TestModulesAreKeptBelow: a log keeps modules if the one below it does.
func TestModulesAreKeptBelow(t *testing.T) {
	t.Parallel()
	inner := store.Memory()
	digest, err := over(t, inner, 1).(eventlog.ModuleStore).PutModule(t.Context(), []byte("module"))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := inner.HasModule(t.Context(), digest); !found || err != nil {
		t.Errorf("HasModule: %v, %v", found, err)
	}
	if _, ok := over(t, struct{ eventlog.EventLog }{inner}, 1).(eventlog.ModuleStore); ok {
		t.Error("a log keeps modules that the one below it does not")
	}
}

// TestFencedWriters: two workers have a run one after the other. The log below refuses the
// first one's events once the second has the run, and the run stays whole.
func TestFencedWriters(t *testing.T) {
	t.Parallel()
	inner := onDisk(t)
	run := secretRun("acme/r")
	keep(t, view(t, inner, 1, "acme"), run[:1])
	claim := func() (writer eventlog.EventLog) {
		t.Helper()
		err := inner.Transact(t.Context(), func(tx eventlog.Tx) error {
			epoch, err := tx.Fence("acme/r")
			writer = view(t, inner.Fenced("acme/r", epoch), 1, "acme")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return writer
	}
	first := claim()
	keep(t, first, run[1:3])
	second := claim()
	err := first.Append(t.Context(), "acme/r", run[3])
	if err == nil {
		err = first.Sync(t.Context(), "acme/r")
	}
	if !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("the writer of an earlier epoch: %v", err)
	}
	keep(t, second, run[3:])
	for name, l := range map[string]eventlog.EventLog{"plain": second, "stored": inner} {
		if _, err := eventlog.CheckRun(t.Context(), l, "acme/r", eventlog.CheckOptions{Strict: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFilesOfEncryptedRunsAreKept: the log below cannot read which files an event names, and keeps them as long
// as the run, also for the writer of one epoch.
func TestFilesOfEncryptedRunsAreKept(t *testing.T) {
	t.Parallel()
	inner := onDisk(t)
	contents, root := logtest.Tree(map[string]string{"a/b": "b", "c": "c"})
	put := func() {
		t.Helper()
		if err := inner.PutContents(t.Context(), "", contents); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(want int) {
		t.Helper()
		if removed, err := inner.RemoveUnusedModules(t.Context()); err != nil || removed.Modules != want {
			t.Errorf("%+v are removed, want %d, %v", removed, want, err)
		}
	}
	for _, fenced := range []bool{false, true} {
		put()
		run, below := logtest.WithFiles("acme/r", root, root), eventlog.EventLog(inner)
		keep(t, view(t, inner, 1, "acme"), run[:1])
		if fenced {
			err := inner.Transact(t.Context(), func(tx eventlog.Tx) error {
				epoch, err := tx.Fence("acme/r")
				below = inner.Fenced("acme/r", epoch)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		writer := view(t, below, 1, "acme")
		keep(t, writer, run[1:2])
		remove(0)
		keep(t, writer, run[2:])
		remove(0)
		if _, err := inner.PruneRuns(t.Context(), eventlog.PruneOptions{}); err != nil {
			t.Fatal(err)
		}
		remove(len(contents))
	}
	run := logtest.WithFiles("acme/late", root, root)
	log := view(t, inner, 1, "acme")
	keep(t, log, run[:1])
	if err := log.Append(t.Context(), "acme/late", run[1]); !errors.Is(err, eventlog.ErrModuleNotFound) {
		t.Errorf("an event that names files that are gone: %v", err)
	}
}
