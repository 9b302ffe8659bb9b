CREATE TABLE IF NOT EXISTS run_removal (
	run_id        TEXT    COLLATE BINARY PRIMARY KEY NOT NULL,
	removed       INTEGER NOT NULL,
	removed_by    TEXT    NOT NULL,
	why           TEXT    NOT NULL,
	leaf          INTEGER UNIQUE
)
