package pglog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog"
)

// Roles are the names of database roles, by what they may do. A role without a name
// is left out.
type Roles struct {
	// Writer is the role of a host: it appends events and reads. It can neither change
	// nor remove an event. On the tables of the host itself it may do everything.
	Writer string
	// Retention is the role of a program that prunes: it reads and removes.
	Retention string
	// Reader is the role of an inspector, which reads: also what the host keeps, where
	// the wrapped keys are that open the runs of tenants.
	Reader string
}

// Need is what a role has to be allowed on tables.
type Need struct {
	Rights string // such as "SELECT, INSERT"
	Tables []string
}

// Needs are those of the roles of [Roles].
type Needs struct{ Writer, Retention, Reader []Need }

// NeedsOf returns what each role needs, and no more. The sets are those of the host's
// own tables.
func NeedsOf(sets ...eventlog.TableSet) Needs {
	var host []string
	marks := Need{"SELECT, INSERT, UPDATE, DELETE", []string{"commit_mark"}}
	retention := []Need{{"DELETE", []string{"eventlog_events", "run", "module"}}, marks}
	for _, set := range withModules(sets) {
		host = append(host, set.Tables...)
		for _, table := range slices.Sorted(maps.Keys(set.Retention)) {
			retention = append(retention, Need{set.Retention[table], []string{table}})
		}
	}
	look := Need{"SELECT", []string{"eventlog_events", "eventlog_schema_migrations", "run", "module", "table_set"}}
	return Needs{
		Writer: []Need{
			look,
			{"INSERT", []string{"eventlog_events", "run", "module"}},
			{"UPDATE", []string{"run"}},
			marks,
			{"SELECT, INSERT, UPDATE, DELETE", host},
		},
		Retention: append([]Need{look}, retention...),
		Reader:    []Need{look, {"SELECT", host}},
	}
}

// Grants returns the SQL that gives each role what it needs, for the owner of the tables
// to run. The sets are those of the host's own tables.
func Grants(r Roles, sets ...eventlog.TableSet) string {
	var b strings.Builder
	grant := func(role string, needs []Need) {
		for _, n := range needs {
			if role == "" || len(n.Tables) == 0 {
				continue
			}
			names := make([]string, len(n.Tables))
			for i, table := range n.Tables {
				names[i] = quote(table, `"`)
			}
			fmt.Fprintf(&b, "GRANT %s ON %s TO %s;\n", n.Rights, strings.Join(names, ", "), quote(role, `"`))
		}
	}
	needs := NeedsOf(sets...)
	grant(r.Writer, needs.Writer)
	grant(r.Retention, needs.Retention)
	grant(r.Reader, needs.Reader)
	return b.String()
}

// Lacking returns who the role of the connection is, and what of the needs it may not do,
// such as "INSERT on run". The tables are there.
func (l *Log) Lacking(ctx context.Context, needs ...Need) (role string, lacking []string, err error) {
	const query = `SELECT current_user, coalesce(array_agg(r || ' on ' || t ORDER BY n) FILTER (WHERE NOT has_table_privilege(quote_ident(t), r)), '{}')
		FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS need (r, t, n)`
	var rights, tables []string
	for _, n := range needs {
		for _, table := range n.Tables {
			for _, right := range strings.Split(n.Rights, ", ") {
				rights, tables = append(rights, right), append(tables, table)
			}
		}
	}
	if err := l.pool.QueryRow(ctx, query, rights, tables).Scan(&role, &lacking); err != nil {
		return "", nil, fmt.Errorf("pglog: look for the rights of the role: %w", err)
	}
	return role, lacking, nil
}
