package pglog

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"

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
const runValues = "run_id, " + movedColumns

// movedColumns are the columns that a batch changes, and movedValues what it makes of them.
const (
	movedColumns = "started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms"
	movedValues  = "{run.started}, {run.last_seq}, g.head, {run.terminal}, {run.turns}, {run.tools}, {run.input_tokens}, {run.output_tokens}, ($4::float8[])[g.no], {run.duration_ms}"
)

// The numbers of a run and of an event, in the order of their matrices.
var (
	runNumbers   = []string{"before", "epoch", "started", "last_seq", "terminal", "turns", "tools", "input_tokens", "output_tokens", "duration_ms"}
	eventNumbers = []string{"no", "seq", "ts", "kind"}
)

// numbers says where the numbers are in the statement: {run.before} is that of run g.no,
// {event.no} that of event e.place.
func numbers() *strings.Replacer {
	var pairs []string
	add := func(kind string, names []string, row string) {
		for i, name := range names {
			pairs = append(pairs, "{"+kind+"."+name+"}", fmt.Sprintf("%s[%d]", row, i+1))
		}
	}
	add("run", runNumbers, "($3::bigint[])[g.no]")
	add("event", eventNumbers, "($8::bigint[])[e.place]")
	return strings.NewReplacer(pairs...)
}

// insertSQL writes a batch. It moves the row of each run from where the batch expects it,
// under the batch's epoch, to where the batch leaves it, and stores the events of those
// runs alone whose row could be moved. The numbers of the others are its result; the first
// run is number one. $10 says that there are runs that begin.
//
// Two of these that meet at a run wait for each other at its row: the second one sees
// what the first one has made of it. For $9 see lockGates. IS TRUE keeps the planner,
// which has no idea how long the arrays are, from making nested loops of what it can
// look up in a hash table.
//
// The server makes a table of every array that is unnested, and reads each again row by
// row. So only what has no fixed length is unnested; a number is taken out of a matrix,
// where the server finds it by its place.
var insertSQL = numbers().Replace(fmt.Sprintf(`WITH gate AS (
	SELECT (SELECT steps FROM table_set WHERE name = 'eventlog') = %d
		AND (SELECT count(pg_advisory_xact_lock_shared(1398033480, gate)) FROM unnest($9::int[]) AS gates(gate)) >= 0 AS open
), moved AS (
	UPDATE run SET (`+movedColumns+`) = ROW (`+movedValues+`)
	FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS g(run_id, head, no)
	WHERE (SELECT open FROM gate) AND ({run.before} > 0 OR {run.epoch} > 0)
		AND run.run_id = g.run_id AND run.last_seq = {run.before} AND run.epoch = {run.epoch}
	RETURNING g.no
), begun AS (
	INSERT INTO run (run_id, epoch, `+movedColumns+`)
	SELECT g.run_id, 0, `+movedValues+` FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS g(run_id, head, no)
	WHERE $10::bool AND (SELECT open FROM gate) AND {run.before} = 0 AND {run.epoch} = 0
	ON CONFLICT (run_id) DO NOTHING
	RETURNING run_id
), taken AS (
	SELECT no FROM moved UNION ALL
	SELECT no FROM unnest($1::text[]) WITH ORDINALITY AS g(run_id, no)
	WHERE $10::bool AND {run.before} = 0 AND {run.epoch} = 0 AND (run_id IN (SELECT run_id FROM begun)) IS TRUE
), stored AS (
	INSERT INTO eventlog_events (run_id, seq, prev_hash, ts, kind, payload)
	SELECT e.run_id, {event.seq}, e.prev_hash, {event.ts}, {event.kind}, e.payload
	FROM unnest($5::text[], $6::bytea[], $7::bytea[]) WITH ORDINALITY AS e(run_id, prev_hash, payload, place)
	WHERE (SELECT count(*) FROM taken) = cardinality($4::float8[]) OR ({event.no} IN (SELECT no FROM taken)) IS TRUE
)
SELECT no FROM generate_series(1, cardinality($4::float8[])) AS everyone(no)
WHERE (SELECT count(*) FROM taken) < cardinality($4::float8[]) AND (no IN (SELECT no FROM taken)) IS NOT TRUE`, layoutVersion))

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

// begins reports whether a run begins, which has no row yet.
func (c *columns) begins() bool {
	return slices.ContainsFunc(c.rows, func(r row) bool { return r.before == 0 && r.epoch == 0 })
}

// encode makes the parameters of the statement.
func (c *columns) encode(gates []int32) [][]byte {
	p, r, e := &c.params, c.rows, c.events
	p.reset()
	p.array(pgtype.TextOID, len(r), func(i int) { p.text(r[i].id) })
	p.array(pgtype.ByteaOID, len(r), func(i int) { p.bytes(r[i].stands.Head[:]) })
	p.matrix(len(r), len(runNumbers), func(i int) {
		s := &r[i].stands
		p.int8s(int64(r[i].before), int64(r[i].epoch), s.StartedAt.UnixNano(), int64(s.LastSeq), int64(s.TerminalKind),
			int64(s.TurnCount), int64(s.ToolCallCount), s.InputTokens, s.OutputTokens, s.DurationMs)
	})
	p.array(pgtype.Float8OID, len(r), func(i int) { p.float8(r[i].stands.CostUSD) })

	p.array(pgtype.TextOID, len(e), func(i int) { p.text(e[i].RunID) })
	p.array(pgtype.ByteaOID, len(e), func(i int) { p.bytesOrNull(e[i].PrevHash) })
	p.array(pgtype.ByteaOID, len(e), func(i int) { p.bytes(e[i].Payload) })
	p.matrix(len(e), len(eventNumbers), func(i int) {
		p.int8s(int64(e[i].row+1), int64(e[i].Seq), e[i].Timestamp, int64(e[i].Kind))
	})

	p.array(pgtype.Int4OID, len(gates), func(i int) { p.int4(gates[i]) })
	p.boolean(c.begins())
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
		refused = append(refused, int32(binary.BigEndian.Uint32(rows.Values()[0]))-1)
	}
	_, err = rows.Close()
	return refused, err
}
