package search

import (
	"fmt"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// TestBounds searches more runs than are looked at.
func TestBounds(t *testing.T) {
	defer func(n int) { maxRuns = n }(maxRuns)
	maxRuns = 4
	log := store.Memory()
	for i := range 10 {
		chain := logtest.Chain{RunID: fmt.Sprint("R", i), Clock: int64(i) * int64(time.Hour)}
		if err := log.Append(t.Context(), chain.RunID, chain.Start("goal")); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		"": "10 R9 R8 true", "state:open": "10 R9 R8 true", "text:goal": "4 R9 R8 true", "until:1970-01-01T03:00": "3 R2 R1 false", "until:1970-01-01T05:00 text:goal": "4 R4 R3 true",
		"since:1970-01-01T08:00": "2 R9 R8 false", "-state:failed": "4 R9 R8 true",
	} {
		q, err := Parse(text, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		found, err := Find(t.Context(), log, q, Options{Limit: 2, Begun: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(found.Total, " ", found.Runs[0].RunID, " ", found.Runs[1].RunID, " ", found.More); got != want {
			t.Errorf("%s finds %s, want %s", text, got, want)
		}
	}
	found, err := Find(t.Context(), log, Query{}, Options{Limit: 2, Offset: 7})
	if err != nil || len(found.Runs) != 2 || found.Runs[0].RunID != "R2" || found.Total != 10 {
		t.Errorf("a late page has %+v, %v", found, err)
	}
}
