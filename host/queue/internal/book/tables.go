package book

import (
	"strings"

	"github.com/starling-host/starling/eventlog"
)

// The tables. queue_job has a row for each job that is not done. queue_tenant has
// the tag of a tenant's next turn and counts its jobs by state; open is how many
// of them may be handed out now, so that claiming looks at nobody else.
// queue_state has one row: the virtual time, the number of the last job, and how
// many jobs are not running. queue_host has a row for each process at work.
const tables = `CREATE TABLE queue_job (
	run_id       TEXT PRIMARY KEY NOT NULL,
	tenant       TEXT NOT NULL,
	number       INTEGER NOT NULL,
	state        INTEGER NOT NULL,
	rank         INTEGER NOT NULL,
	max_attempts INTEGER NOT NULL,
	attempt      INTEGER NOT NULL,
	deaths       INTEGER NOT NULL,
	snoozes      INTEGER NOT NULL,
	epoch        INTEGER NOT NULL,
	cancelled    INTEGER NOT NULL,
	due          INTEGER NOT NULL,
	enqueued     INTEGER NOT NULL,
	owner        TEXT NOT NULL,
	turn         INTEGER NOT NULL,
	failure      TEXT NOT NULL,
	payload      BLOB NOT NULL
);
CREATE INDEX queue_job_line ON queue_job (tenant, rank, number) WHERE state = 0;
CREATE INDEX queue_job_due ON queue_job (due) WHERE state = 1;
CREATE INDEX queue_job_owner ON queue_job (owner) WHERE state = 2;
CREATE INDEX queue_job_ending ON queue_job (number) WHERE state = 3;
CREATE TABLE queue_tenant (
	tenant   TEXT PRIMARY KEY NOT NULL,
	tag      REAL NOT NULL,
	open     INTEGER NOT NULL,
	ready    INTEGER NOT NULL,
	sleeping INTEGER NOT NULL,
	running  INTEGER NOT NULL,
	ending   INTEGER NOT NULL
);
CREATE INDEX queue_tenant_turn ON queue_tenant (tag) WHERE open > 0;
CREATE TABLE queue_state (
	id      INTEGER PRIMARY KEY NOT NULL,
	virtual REAL NOT NULL,
	number  INTEGER NOT NULL,
	waiting INTEGER NOT NULL
);
INSERT INTO queue_state (id, virtual, number, waiting) VALUES (1, 0, 0, 0);
CREATE TABLE queue_host (
	owner TEXT PRIMARY KEY NOT NULL,
	host  TEXT NOT NULL,
	until INTEGER NOT NULL
)`

// begins tells a death that a run had part in from one that it had not: begun is set
// once it is known of a job that was handed out that its run begins, stranded counts the
// processes that died before that.
const begins = `ALTER TABLE queue_job ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queue_job ADD COLUMN stranded INTEGER NOT NULL DEFAULT 0`

// Tables are what CreateTables is to be called with.
var Tables = eventlog.TableSet{
	Name: "queue", Tables: []string{"queue_job", "queue_tenant", "queue_state", "queue_host"}, Steps: []eventlog.TableStep{step(tables), step(begins)},
}

// step says in both dialects what is said in that of SQLite.
func step(sql string) eventlog.TableStep {
	types := strings.NewReplacer(" INTEGER", " BIGINT", " REAL", " DOUBLE PRECISION", " BLOB", " BYTEA")
	return eventlog.TableStep{SQLite: sql, Postgres: types.Replace(sql)}
}

// The states of a row: those of queue.State, and ending, a job that was cancelled
// and is ready to be handed out so that its run ends.
const (
	ready = iota
	sleeping
	running
	ending
	states
)
