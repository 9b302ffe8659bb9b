CREATE TABLE run_log (
	one    INTEGER PRIMARY KEY CHECK (one = 1),
	origin TEXT    NOT NULL
);
CREATE TABLE run_leaf (
	leaf          INTEGER PRIMARY KEY,
	run_id        TEXT    COLLATE BINARY NOT NULL UNIQUE,
	events        INTEGER NOT NULL,
	merkle_root   BLOB    NOT NULL,
	terminal_hash BLOB    NOT NULL
);
CREATE TABLE run_removal (
	run_id        TEXT    COLLATE BINARY PRIMARY KEY NOT NULL,
	removed       INTEGER NOT NULL,
	removed_by    TEXT    NOT NULL,
	why           TEXT    NOT NULL,
	leaf          INTEGER UNIQUE
);
CREATE TABLE run_leaf_hash (
	place INTEGER PRIMARY KEY,
	hash  BLOB    NOT NULL
);
CREATE TABLE run_checkpoint (
	leaves INTEGER PRIMARY KEY,
	signed BLOB    NOT NULL,
	made   INTEGER NOT NULL
)
