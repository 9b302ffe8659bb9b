CREATE TABLE run (
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
	duration_ms   BIGINT NOT NULL,
	bytes         BIGINT NOT NULL DEFAULT 0,
	counted       BIGINT NOT NULL DEFAULT 0
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
	size   BIGINT NOT NULL,
	wasm   BYTEA NOT NULL
);
ALTER TABLE module ALTER COLUMN wasm SET STORAGE EXTERNAL;
CREATE TABLE module_use (
	digest  BYTEA NOT NULL REFERENCES module,
	used_by TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (digest, used_by)
);
CREATE INDEX module_use_by_user ON module_use (used_by);
CREATE TABLE table_set (
	name  TEXT COLLATE "C" PRIMARY KEY,
	steps BIGINT NOT NULL
);
INSERT INTO table_set (name, steps) VALUES ('eventlog', 1), ('eventlog_expanded', 2);
