CREATE TABLE eventlog_events (
	run_id    TEXT COLLATE "C" NOT NULL,
	seq       BIGINT NOT NULL,
	prev_hash BYTEA,
	ts        BIGINT NOT NULL,
	kind      SMALLINT NOT NULL,
	payload   BYTEA NOT NULL,
	PRIMARY KEY (run_id, seq)
) WITH (toast_tuple_target = 8160);
ALTER TABLE eventlog_events ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE eventlog_schema_migrations (
	version    BIGINT PRIMARY KEY,
	applied_at BIGINT NOT NULL
);
INSERT INTO eventlog_schema_migrations (version, applied_at) VALUES (1, 0), (2, 0);
