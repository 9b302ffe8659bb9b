package pglog

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// columns are runs and events to write, in the order of the statement's arrays: some of
// these have an element for each run, the others one for each event.
type columns struct {
	rows   []row
	events []rowEvent
	params params
}

// row is the row of a run that has to stand at event before, under the epoch.
type row struct {
	id            string
	before, epoch uint64
	stands        eventlog.RunSummary // where it is to stand
}

// rowEvent is an event of the run in a row.
type rowEvent struct {
	row int
	event.Event
}

// runValues are the columns of the table run, but for epoch.
const runValues = "run_id, started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms"

// insertSQL writes a batch. It moves the row of each run from where the batch expects it,
// under the batch's epoch, to where the batch leaves it, and stores the events of those
// runs alone whose row could be moved. The numbers of the others are its result.
//
// Two of these that meet at a run wait for each other at its row: the second one sees
// what the first one has made of it. For $22 see lockGates. IS TRUE keeps the planner,
// which has no idea how long the arrays are, from making nested loops of what it can
// look up in a hash table.
var insertSQL = fmt.Sprintf(`WITH given AS (
	SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[],
		$8::smallint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::float8[], $14::bigint[])
	AS g(no, run_id, before, epoch, started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms)
	WHERE (SELECT steps FROM table_set WHERE name = 'eventlog') = %d
		AND (SELECT count(pg_advisory_xact_lock_shared(1398033480, gate)) FROM unnest($22::int[]) AS gates(gate)) >= 0
), moved AS (
	UPDATE run SET started = g.started, last_seq = g.last_seq, head = g.head, terminal = g.terminal, turns = g.turns, tools = g.tools,
		input_tokens = g.input_tokens, output_tokens = g.output_tokens, cost_usd = g.cost_usd, duration_ms = g.duration_ms
	FROM given AS g
	WHERE run.run_id = g.run_id AND run.last_seq = g.before AND run.epoch = g.epoch AND (g.before > 0 OR g.epoch > 0)
	RETURNING g.no
), begun AS (
	INSERT INTO run (epoch, `+runValues+`) SELECT 0, `+runValues+` FROM given WHERE before = 0 AND epoch = 0
	ON CONFLICT (run_id) DO NOTHING
	RETURNING run_id
), taken AS (
	SELECT no FROM moved UNION ALL
	SELECT no FROM given WHERE before = 0 AND epoch = 0 AND (run_id IN (SELECT run_id FROM begun)) IS TRUE
), stored AS (
	INSERT INTO eventlog_events (run_id, seq, prev_hash, ts, kind, payload)
	SELECT e.run_id, e.seq, e.prev_hash, e.ts, e.kind, e.payload
	FROM unnest($15::int[], $16::text[], $17::bigint[], $18::bytea[], $19::bigint[], $20::smallint[], $21::bytea[])
		AS e(no, run_id, seq, prev_hash, ts, kind, payload)
	WHERE (e.no IN (SELECT no FROM taken)) IS TRUE
)
SELECT no FROM unnest($1::int[]) AS everyone(no) EXCEPT ALL SELECT no FROM taken`, layoutVersion)

// reset forgets everything but the memory.
func (c *columns) reset() {
	clear(c.rows)
	clear(c.events)
	c.rows, c.events = c.rows[:0], c.events[:0]
}

// addRun adds the row of a run that has to stand at event before.
func (c *columns) addRun(id string, before, epoch uint64) {
	c.rows = append(c.rows, row{id: id, before: before, epoch: epoch})
}

// runIDs yields the runs.
func (c *columns) runIDs() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range c.rows {
			if !yield(c.rows[i].id) {
				return
			}
		}
	}
}

// stand says where row i is to stand.
func (c *columns) stand(i int, s eventlog.RunSummary) { c.rows[i].stands = s }

// addEvent adds an event of the run in row i.
func (c *columns) addEvent(i int, e event.Event) { c.events = append(c.events, rowEvent{i, e}) }

// encode makes the parameters of the statement.
func (c *columns) encode(gates []int32) [][]byte {
	p, r, e := &c.params, c.rows, c.events
	p.reset()
	p.array(pgtype.Int4OID, len(r), func(i int) { p.int4(int32(i)) })
	p.array(pgtype.TextOID, len(r), func(i int) { p.text(r[i].id) })
	p.array(pgtype.Int8OID, len(r), func(i int) { p.int8(int64(r[i].before)) })
	p.array(pgtype.Int8OID, len(r), func(i int) { p.int8(int64(r[i].epoch)) })
	p.array(pgtype.Int8OID, len(r), func(i int) { p.int8(r[i].stands.StartedAt.UnixNano()) })
	p.array(pgtype.Int8OID, len(r), func(i int) { p.int8(int64(r[i].stands.LastSeq)) })
	p.array(pgtype.ByteaOID, len(r), func(i int) { p.bytes(r[i].stands.Head[:]) })
	p.array(pgtype.Int2OID, len(r), func(i int) { p.int2(int16(r[i].stands.TerminalKind)) })
	p.array(pgtype.Int8OID, len(r), func(i int) { p.int8(int64(r[i].stands.TurnCount)) })
	p.array(pgtype.Int8OID, len(r), func(i int) { p.int8(int64(r[i].stands.ToolCallCount)) })
	p.array(pgtype.Int8OID, len(r), func(i int) { p.int8(r[i].stands.InputTokens) })
	p.array(pgtype.Int8OID, len(r), func(i int) { p.int8(r[i].stands.OutputTokens) })
	p.array(pgtype.Float8OID, len(r), func(i int) { p.float8(r[i].stands.CostUSD) })
	p.array(pgtype.Int8OID, len(r), func(i int) { p.int8(r[i].stands.DurationMs) })

	p.array(pgtype.Int4OID, len(e), func(i int) { p.int4(int32(e[i].row)) })
	p.array(pgtype.TextOID, len(e), func(i int) { p.text(e[i].RunID) })
	p.array(pgtype.Int8OID, len(e), func(i int) { p.int8(int64(e[i].Seq)) })
	p.array(pgtype.ByteaOID, len(e), func(i int) { p.bytesOrNull(e[i].PrevHash) })
	p.array(pgtype.Int8OID, len(e), func(i int) { p.int8(e[i].Timestamp) })
	p.array(pgtype.Int2OID, len(e), func(i int) { p.int2(int16(e[i].Kind)) })
	p.array(pgtype.ByteaOID, len(e), func(i int) { p.bytes(e[i].Payload) })

	p.array(pgtype.Int4OID, len(gates), func(i int) { p.int4(gates[i]) })
	return p.values()
}

// insert writes the columns, through the gates, and returns the rows of the runs that
// were refused.
func (c *columns) insert(ctx context.Context, conn *pgx.Conn, gates []int32) (refused []int32, err error) {
	statement, err := conn.Prepare(ctx, "eventlog_insert", insertSQL)
	if err != nil {
		return nil, err
	}
	binaryFormat := []int16{pgx.BinaryFormatCode}
	rows := conn.PgConn().ExecStatement(ctx, statement, c.encode(gates), binaryFormat, binaryFormat)
	for rows.NextRow() {
		refused = append(refused, int32(binary.BigEndian.Uint32(rows.Values()[0])))
	}
	_, err = rows.Close()
	return refused, err
}
