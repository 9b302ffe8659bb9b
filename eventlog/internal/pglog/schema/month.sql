-- Makes a partition, and moves to it the events of its runs that are in the partition of all other runs: the
-- server would refuse to make it. Nothing is written to that one in the meantime.
LOCK TABLE eventlog_events_other IN SHARE ROW EXCLUSIVE MODE;
CREATE TABLE :partition (LIKE eventlog_events INCLUDING STORAGE, PRIMARY KEY (run_id, seq)) WITH (toast_tuple_target = 8160);
WITH moved AS (DELETE FROM eventlog_events_other WHERE right(run_id, 26) >= ':from' AND right(run_id, 26) < ':to' RETURNING *)
	INSERT INTO :partition SELECT * FROM moved;
ALTER TABLE eventlog_events ATTACH PARTITION :partition FOR VALUES FROM (':from') TO (':to');
