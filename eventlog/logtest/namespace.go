package logtest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/eventlog"
)

// namespaces selects among ids that are neighbours in every order.
func namespaces(t *testing.T, log eventlog.EventLog) {
	for _, id := range []string{"a", "a.", "a/1", "a/2", "a/b/1", "a0", "ab/1", "A/1", "a_/1", "/a/1"} {
		store(t, log, Finished(id, 0)...)
	}
	expect := func(namespace string, want ...string) {
		t.Helper()
		page, err := log.ListRunsPage(t.Context(), eventlog.RunPageOptions{Namespace: namespace})
		var ids []string
		for _, r := range page.Runs {
			ids = append(ids, r.RunID)
		}
		slices.Sort(ids)
		if diff := cmp.Diff(want, ids); err != nil || diff != "" || page.TotalMatching != len(want) {
			t.Errorf("%q: total %d, %v\n%s", namespace, page.TotalMatching, err, diff)
		}
	}
	expect("a", "a/1", "a/2", "a/b/1")
	expect("a/b", "a/b/1")
	expect("A", "A/1")
	expect("a%")
	expect("a_", "a_/1")
	expect("nobody")
	page, err := log.ListRunsPage(t.Context(), eventlog.RunPageOptions{Namespace: "a", Query: "B", Status: eventlog.StatusCompleted})
	if err != nil || page.TotalMatching != 1 {
		t.Errorf("with other options: %+v, %v", page, err)
	}
	for query, want := range map[string]int{"a": 0, "/": 1, "1": 2} {
		page, err := log.ListRunsPage(t.Context(), eventlog.RunPageOptions{Namespace: "a", Query: query})
		if err != nil || page.TotalMatching != want {
			t.Errorf("the query %q behind the namespace: %+v, %v", query, page, err)
		}
	}
	report, err := log.(eventlog.Store).PruneRuns(t.Context(), eventlog.PruneOptions{Namespace: "a", Limit: 2})
	if err != nil || report.Runs != 2 {
		t.Errorf("pruning two: %+v, %v", report, err)
	}
	if report, err = log.(eventlog.Store).PruneRuns(t.Context(), eventlog.PruneOptions{Namespace: "a"}); err != nil || report.Runs != 1 {
		t.Errorf("pruning the rest: %+v, %v", report, err)
	}
	expect("a")
	expect("", "/a/1", "A/1", "a", "a.", "a0", "a_/1", "ab/1")
}
