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
