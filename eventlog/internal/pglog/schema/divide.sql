-- Makes the table of events the first partition, up to the ULID :to, of a new table with the same rights.
-- Events of runs whose ids sort behind it go to the partition of all other runs.
ALTER TABLE eventlog_events RENAME TO :partition;
CREATE TABLE eventlog_events (LIKE :partition INCLUDING STORAGE) PARTITION BY RANGE (right(run_id, 26));
DO $$ DECLARE sql text; BEGIN
	FOR sql IN SELECT format('GRANT %s ON eventlog_events TO %s', privilege_type, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END)
		FROM pg_class, aclexplode(relacl) WHERE oid = ':partition'::regclass
	LOOP EXECUTE sql; END LOOP;
END $$;
CREATE TABLE eventlog_events_other PARTITION OF eventlog_events (PRIMARY KEY (run_id, seq)) DEFAULT WITH (toast_tuple_target = 8160);
WITH moved AS (DELETE FROM :partition WHERE right(run_id, 26) >= ':to' RETURNING *) INSERT INTO eventlog_events_other SELECT * FROM moved;
ALTER TABLE eventlog_events ATTACH PARTITION :partition FOR VALUES FROM (MINVALUE) TO (':to');
