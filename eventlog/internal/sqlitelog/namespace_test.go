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

// TestANamespaceIsFoundByTheIndex asks SQLite for its plan to find the runs of
// one namespace.
func TestANamespaceIsFoundByTheIndex(t *testing.T) {
	t.Parallel()
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
		o.From = time.Unix(0, 400)
		count, list := dialect.PageOf(o.Normal())
		if plan := explain(t, l, count.SQL, count.Args); !strings.Contains(plan, "run_id>? AND run_id<?") {
			t.Errorf("%s: %s:\n%s", what, count.SQL, plan)
		}
		if plan := explain(t, l, list.SQL, list.Args); !strings.Contains(plan, "run_by_namespace") || !strings.Contains(plan, "started<?") {
			t.Errorf("%s, a page: %s:\n%s", what, list.SQL, plan)
		}
	}
}

func explain(t testing.TB, l *Log, query string, args []any) string {
	t.Helper()
	var plan strings.Builder
	err := l.readers.with(t.Context(), func(r *conn) error {
		return r.query(t.Context(), "EXPLAIN QUERY PLAN "+query, args, func(row []driver.Value) error {
			fmt.Fprintln(&plan, row[3])
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
