CREATE TABLE run_leaf_again (
	leaf          INTEGER PRIMARY KEY,
	run_id        TEXT    COLLATE BINARY NOT NULL,
	events        INTEGER NOT NULL,
	merkle_root   BLOB    NOT NULL,
	terminal_hash BLOB    NOT NULL
);
INSERT INTO run_leaf_again SELECT leaf, run_id, events, merkle_root, terminal_hash FROM run_leaf;
DROP TABLE run_leaf;
ALTER TABLE run_leaf_again RENAME TO run_leaf;
CREATE INDEX run_leaf_by_run ON run_leaf (run_id);
CREATE TABLE run_removal_again (
	run_id        TEXT    COLLATE BINARY NOT NULL,
	removed       INTEGER NOT NULL,
	removed_by    TEXT    NOT NULL,
	why           TEXT    NOT NULL,
	leaf          INTEGER UNIQUE,
	PRIMARY KEY (run_id, removed)
);
INSERT INTO run_removal_again SELECT run_id, removed, removed_by, why, leaf FROM run_removal;
DROP TABLE run_removal;
ALTER TABLE run_removal_again RENAME TO run_removal
