package sqlitelog

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
)

// TestANamespaceIsFoundByTheIndex asks SQLite how it looks for the runs of one
// namespace among others.
func TestANamespaceIsFoundByTheIndex(t *testing.T) {
	l := open(t)
	for i := range 500 {
		c := logtest.Chain{RunID: fmt.Sprintf("tenant-%d/%d", i%50, i), Clock: int64(i)}
		if err := l.Append(t.Context(), c.RunID, c.Start("g")); err != nil {
			t.Fatal(err)
		}
	}
	for what, o := range map[string]eventlog.RunPageOptions{
		"alone":              {Namespace: "tenant-7"},
		"with other options": {Namespace: "tenant-7", Status: eventlog.StatusOpen, Query: "7"},
	} {
		where, args := conditions(o.Normal())
		for _, query := range []string{
			"SELECT count(*) FROM run" + where,
			"SELECT " + runColumns + " FROM run" + where + newestFirst + " LIMIT 50 OFFSET 0",
		} {
			if plan := explain(t, l, query, args); !strings.Contains(plan, "run_id>? AND run_id<?") {
				t.Errorf("%s: %s:\n%s", what, query, plan)
			}
		}
		where, args = byStart(where, args, o.Namespace)
		where, args = startingAt(where, args, time.Unix(0, 400))
		query := "SELECT " + runColumns + " FROM run" + where + newestFirst + " LIMIT 50 OFFSET 0"
		if plan := explain(t, l, query, args); !strings.Contains(plan, "run_by_namespace") || !strings.Contains(plan, "started<?") {
			t.Errorf("%s, a page: %s:\n%s", what, query, plan)
		}
	}
}

func explain(t testing.TB, l *Log, query string, args []driver.Value) string {
	t.Helper()
	var plan strings.Builder
	err := l.readers.with(t.Context(), func(r *reader) error {
		return r.conn.query(t.Context(), "EXPLAIN QUERY PLAN "+query, args, func(row []driver.Value) error {
			fmt.Fprintln(&plan, row[3])
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
