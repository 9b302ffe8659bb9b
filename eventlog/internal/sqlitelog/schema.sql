-- Tables named eventlog_ are the Starling runtime's, so that its tools open our files; pos is ours, and
-- makes the file grow at one end however many runs are written at once. All columns of an event are
-- fields of its envelope, which is rebuilt from them and hashed.
CREATE TABLE eventlog_events (
	pos       INTEGER PRIMARY KEY,
	run_id    TEXT    NOT NULL,
	seq       INTEGER NOT NULL,
	prev_hash BLOB,
	ts        INTEGER NOT NULL,
	kind      INTEGER NOT NULL,
	payload   BLOB    NOT NULL,
	UNIQUE (run_id, seq)
);
CREATE TABLE eventlog_schema_migrations (
	version    INTEGER PRIMARY KEY,
	applied_at INTEGER NOT NULL
);

-- Each run's entry in a listing, and the head that the last event is checked against. It is written in
-- the transaction that writes the events.
CREATE TABLE run (
	run_no        INTEGER PRIMARY KEY,
	run_id        TEXT    NOT NULL UNIQUE,
	started       INTEGER NOT NULL,
	last_seq      INTEGER NOT NULL,
	head          BLOB    NOT NULL,
	terminal      INTEGER NOT NULL,
	turns         INTEGER NOT NULL,
	tools         INTEGER NOT NULL,
	input_tokens  INTEGER NOT NULL,
	output_tokens INTEGER NOT NULL,
	cost_usd      REAL    NOT NULL,
	duration_ms   INTEGER NOT NULL,
	bytes         INTEGER NOT NULL DEFAULT 0,
	counted       INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX run_by_start ON run (started);
-- The order of a tenant's listing. A query must contain its expression literally.
CREATE INDEX run_by_namespace ON run (substr(run_id, 1, instr(run_id, '/')), started);

CREATE TABLE module (
	digest BLOB    PRIMARY KEY NOT NULL,
	size   INTEGER NOT NULL,
	wasm   BLOB    NOT NULL
);
-- The users of each module, see eventlog.UseModules.
CREATE TABLE module_use (
	digest  BLOB NOT NULL,
	used_by TEXT NOT NULL,
	PRIMARY KEY (digest, used_by)
) WITHOUT ROWID;
CREATE INDEX module_use_by_user ON module_use (used_by);
-- The modules that are too large for one transaction (pieceBytes); their rows in module are empty.
CREATE TABLE module_piece (
	digest BLOB    NOT NULL,
	n      INTEGER NOT NULL,
	bytes  BLOB    NOT NULL,
	PRIMARY KEY (digest, n)
);

-- The last epoch of each run that was fenced; see fence.go.
CREATE TABLE run_fence (
	run_id TEXT    PRIMARY KEY NOT NULL,
	epoch  INTEGER NOT NULL
) WITHOUT ROWID;

-- For each set of tables of the host, how many of its steps were applied.
CREATE TABLE table_set (
	name  TEXT    PRIMARY KEY NOT NULL,
	steps INTEGER NOT NULL
) WITHOUT ROWID;
