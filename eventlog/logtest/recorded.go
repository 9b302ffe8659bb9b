package logtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
)

// Counted requires what the log says of its recorded bytes to be what its events have, and that it
// does not have to look at the events for it. A log that is closed, or in no database, passes.
func Counted(t testing.TB, log eventlog.EventLog) {
	t.Helper()
	db, ok := log.(eventlog.Database)
	if !ok {
		return
	}
	runs, err := log.ListRuns(t.Context())
	if errors.Is(err, eventlog.ErrLogClosed) {
		return
	}
	namespaces := map[string]bool{"": true}
	for _, s := range runs {
		if ns, _, found := strings.Cut(s.RunID, "/"); found {
			namespaces[ns] = true
		}
	}
	Recorded(t, db, namespaces)
	err = db.View(t.Context(), func(q eventlog.Querier) error {
		const wrong = `SELECT count(*) FROM run WHERE counted <> last_seq
			OR bytes <> (SELECT coalesce(sum(length(payload)), 0) FROM eventlog_events WHERE eventlog_events.run_id = run.run_id)`
		n, err := number(q, wrong)
		if n > 0 {
			t.Errorf("%d rows count other bytes than their events have", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Recorded requires what the log says of namespaces to be what their events have. Events that are on their
// way to the database may arrive meanwhile.
func Recorded(t testing.TB, db eventlog.Database, namespaces map[string]bool) {
	t.Helper()
	const each = 7
	for ns := range namespaces {
		before := eventSums(t, db, ns, each)
		for range 1000 {
			total, later, err := db.Recorded(t.Context(), ns, time.Unix(0, before.middle), each)
			after := eventSums(t, db, ns, each)
			if after != before && !t.Failed() {
				before = after
				continue
			}
			if err != nil || total != after.total || later != after.later {
				t.Errorf("namespace %q: recorded %d, %d of them later, %v; its events have %d, %d", ns, total, later, err, after.total, after.later)
			}
			break
		}
	}
}

// sums are the bytes of events, in all and from the middle of their times on.
type sums struct{ middle, total, later int64 }

func eventSums(t testing.TB, db eventlog.Database, ns string, each int) (s sums) {
	t.Helper()
	c := []any{ns + "/", ns + "0"}
	where := " FROM eventlog_events WHERE run_id >= $1 AND run_id < $2"
	if ns == "" {
		c, where = nil, " FROM eventlog_events"
	}
	err := db.View(t.Context(), func(q eventlog.Querier) (err error) {
		if s.middle, err = number(q, "SELECT CAST(coalesce(avg(ts), 0) AS BIGINT)"+where, c...); err != nil {
			return err
		}
		sum := fmt.Sprintf("SELECT CAST(coalesce(sum(length(payload) + %d), 0) AS BIGINT)", each) + where
		if s.total, err = number(q, sum, c...); err != nil {
			return err
		}
		if ns == "" {
			sum += " WHERE ts >= $1"
		} else {
			sum += " AND ts >= $3"
		}
		s.later, err = number(q, sum, append(c, s.middle)...)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return s
}
