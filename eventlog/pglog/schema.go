package pglog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog"
)

const (
	// layoutVersion is the layout that this program writes. The database keeps it as
	// the step of the set of tables called [layoutSet].
	layoutVersion = 1
	layoutSet     = "eventlog"
)

// The tables. Those named eventlog_ are the seed runtime's. All columns of an event
// are fields of its envelope, which is rebuilt from them and hashed.
//
// Run ids are compared byte by byte (COLLATE "C"): an index over them outlives a new
// version of the operating system's collations. Payloads of up to a page lie in
// their row as they are; the server's compression would cost more than all the rest
// of an append, and nothing at all is gained by it where payloads are encrypted.
//
// run has a row for each run that has events, or that was given to a writer before it
// had any (last_seq is 0). Every append changes the row of its run: its lock and its
// columns last_seq and epoch decide between two writers. fillfactor leaves room for these
// changes on the same page, which no index then has to know of.
const (
	eventsTable = `CREATE TABLE eventlog_events (
	run_id    TEXT COLLATE "C" NOT NULL,
	seq       BIGINT NOT NULL,
	prev_hash BYTEA,
	ts        BIGINT NOT NULL,
	kind      SMALLINT NOT NULL,
	payload   BYTEA NOT NULL,
	PRIMARY KEY (run_id, seq)
) WITH (toast_tuple_target = 8160);
ALTER TABLE eventlog_events ALTER COLUMN payload SET STORAGE EXTERNAL;
`
	migrationsTable = `CREATE TABLE eventlog_schema_migrations (
	version    BIGINT PRIMARY KEY,
	applied_at BIGINT NOT NULL
);
INSERT INTO eventlog_schema_migrations (version, applied_at) VALUES (1, 0), (2, 0);
`
	ownTables = `CREATE TABLE run (
	run_id        TEXT COLLATE "C" PRIMARY KEY,
	epoch         BIGINT NOT NULL,
	started       BIGINT NOT NULL,
	last_seq      BIGINT NOT NULL,
	head          BYTEA NOT NULL,
	terminal      SMALLINT NOT NULL,
	turns         BIGINT NOT NULL,
	tools         BIGINT NOT NULL,
	input_tokens  BIGINT NOT NULL,
	output_tokens BIGINT NOT NULL,
	cost_usd      DOUBLE PRECISION NOT NULL,
	duration_ms   BIGINT NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX run_by_start ON run (started, run_id);
CREATE INDEX run_by_namespace ON run (split_part(run_id, '/', 1), started, run_id);
CREATE TABLE commit_mark (
	slot TEXT COLLATE "C" PRIMARY KEY,
	mark BIGINT NOT NULL,
	at   BIGINT NOT NULL
);
CREATE TABLE module (
	digest BYTEA PRIMARY KEY,
	wasm   BYTEA NOT NULL
);
ALTER TABLE module ALTER COLUMN wasm SET STORAGE EXTERNAL;
CREATE TABLE table_set (
	name  TEXT COLLATE "C" PRIMARY KEY,
	steps BIGINT NOT NULL
);
INSERT INTO table_set (name, steps) VALUES ('eventlog', 1);
`
)

// InstallSchema returns the SQL with which an operator prepares an empty database by
// hand, for hosts whose role may create nothing: the log's tables, then those of the
// given sets. It is one transaction.
func InstallSchema(sets ...eventlog.TableSet) string {
	var b strings.Builder
	b.WriteString("BEGIN;\n" + eventsTable + migrationsTable + ownTables)
	for _, set := range withModules(sets) {
		for _, step := range set.Steps {
			b.WriteString(strings.TrimSpace(step.Postgres) + ";\n")
		}
		fmt.Fprintf(&b, "INSERT INTO table_set (name, steps) VALUES (%s, %d);\n", quote(set.Name, `'`), len(set.Steps))
	}
	b.WriteString("COMMIT;\n")
	return b.String()
}

// withModules returns the sets with the one that every log has.
func withModules(sets []eventlog.TableSet) []eventlog.TableSet {
	if slices.ContainsFunc(sets, func(s eventlog.TableSet) bool { return s.Name == eventlog.ModuleTables.Name }) {
		return sets
	}
	return append([]eventlog.TableSet{eventlog.ModuleTables}, sets...)
}

// quote makes a text an SQL name or string.
func quote(text, mark string) string {
	return mark + strings.ReplaceAll(text, mark, mark+mark) + mark
}
