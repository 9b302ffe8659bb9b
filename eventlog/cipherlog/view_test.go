package cipherlog_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/cipherlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/memlog"
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
	inner := memlog.New()
	a, b := view(t, inner, 1, "a"), view(t, inner, 2, "b")
	store(t, a, secretRun("a/1"))
	store(t, b, secretRun("b/1"))
	store(t, b, secretRun("b/2"))
	if _, err := a.Read(t.Context(), "b/1"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("Read: %v", err)
	}
	if _, err := a.Stream(t.Context(), "b/1"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("Stream: %v", err)
	}
	if _, err := a.(eventlog.RunFinder).Run(t.Context(), "b/1"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("Run: %v", err)
	}
	if err := a.Append(t.Context(), "b/3", secretRun("b/3")[0]); !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Errorf("Append: %v", err)
	}
	page, err := a.(eventlog.RunPageLister).ListRunsPage(t.Context(), eventlog.RunPageOptions{})
	if err != nil || page.TotalMatching != 1 || page.Runs[0].RunID != "a/1" {
		t.Errorf("page %+v, %v", page, err)
	}
	if _, err := a.(eventlog.RunPageLister).ListRunsPage(t.Context(), eventlog.RunPageOptions{Namespace: "b"}); err == nil {
		t.Error("a page of another namespace")
	}
	all, err := b.(eventlog.RunLister).ListRuns(t.Context())
	if err != nil || len(all) != 2 {
		t.Errorf("list %+v, %v", all, err)
	}
	if _, err := a.(eventlog.RunPruner).PruneRuns(t.Context(), eventlog.PruneOptions{Namespace: "b"}); !errors.Is(err, eventlog.ErrInvalidPrune) {
		t.Errorf("PruneRuns: %v", err)
	}
	if r, err := a.(eventlog.RunPruner).PruneRuns(t.Context(), eventlog.PruneOptions{}); err != nil || r.Runs != 1 {
		t.Errorf("PruneRuns: %+v, %v", r, err)
	}
	if _, err := b.Read(t.Context(), "b/2"); err != nil {
		t.Errorf("after another tenant's pruning: %v", err)
	}
}

// A run goes on in another process, which knows nothing but the file, and then in
// the first one again, which remembers an older state.
func TestAnotherProcessGoesOn(t *testing.T) {
	inner := memlog.New()
	run := secretRun("acme/r")
	first, second := over(t, inner, 1), over(t, inner, 1)
	for i, log := range []eventlog.EventLog{first, first, second, second, first, second, first} {
		store(t, log, run[i:i+1])
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

// What whoever has no key sees of a listing, and whoever has it.
func TestSummaries(t *testing.T) {
	inner := memlog.New()
	log := over(t, inner, 1)
	run := secretRun("acme/r")
	store(t, log, run)
	stored, err := inner.Run(t.Context(), "acme/r")
	if err != nil || stored.TurnCount != 1 || stored.InputTokens != 0 || stored.CostUSD != 0 || stored.TerminalKind != event.KindRunCompleted {
		t.Errorf("without the key: %+v, %v", stored, err)
	}
	plain, err := log.(eventlog.RunFinder).Run(t.Context(), "acme/r")
	if err != nil || plain.ToolCallCount != 1 || plain.InputTokens != 12 || plain.OutputTokens != 3 || plain.CostUSD != 0.25 || plain.Head != run[6].Hash() {
		t.Errorf("with the key: %+v, %v", plain, err)
	}
	// One run of another key does not hide the others.
	store(t, over(t, inner, 2), logtest.Finished("acme/other", 1))
	all, err := log.(eventlog.RunLister).ListRuns(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, s := range all {
		if known := s.RunID == "acme/r"; known != (s.CostUSD == 0.25) {
			t.Errorf("%+v", s)
		}
	}
}

// A first event that was sealed for a transaction of the log below begins a run
// that the log goes on with.
func TestFirst(t *testing.T) {
	inner := memlog.New()
	run := secretRun("acme/r")
	first, err := cipherlog.First(keyOf(t, 1), run[0])
	if err != nil {
		t.Fatal(err)
	}
	store(t, inner, []event.Event{first})
	log := over(t, inner, 1)
	store(t, log, run[1:])
	if _, err := eventlog.CheckRun(t.Context(), log, "acme/r", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
	if _, err := cipherlog.First(keyOf(t, 1), run[1]); err == nil {
		t.Error("a second event was taken for a first one")
	}
	if _, err := cipherlog.First(cipherlog.Key{}, run[0]); err == nil {
		t.Error("an event was sealed without a key")
	}
}
