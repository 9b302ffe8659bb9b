-- The Starling runtime's own.
CREATE TABLE eventlog_events (
	run_id    TEXT    NOT NULL,
	seq       INTEGER NOT NULL,
	prev_hash BLOB,
	ts        INTEGER NOT NULL,
	kind      INTEGER NOT NULL,
	payload   BLOB    NOT NULL,
	PRIMARY KEY (run_id, seq)
);

-- That of earlier commits, whose files can be read.
CREATE TABLE module (digest BLOB PRIMARY KEY NOT NULL, wasm BLOB NOT NULL);

-- That of layout 1.
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
	duration_ms   INTEGER NOT NULL
);
