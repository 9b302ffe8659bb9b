package pglog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// batch is what is written in one transaction: some events of some runs.
type batch struct {
	items   []item // as they were taken; they belong to the lane
	runs    []*run // each once
	at      map[*run]int
	columns columns
}

// columns are the batch as the statement takes it: the first part has an element for
// each run, the second one for each event.
type columns struct {
	no                                   []int32
	id                                   []string
	before, epoch, started, last         []int64
	head                                 [][]byte
	terminal                             []int16
	turns, tools, input, output, elapsed []int64
	cost                                 []float64

	of      []int32
	eventID []string
	seq     []int64
	prev    [][]byte
	ts      []int64
	kind    []int16
	payload [][]byte
}

// runValues are the columns of the table run, but for epoch.
const runValues = "run_id, started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms"

// insertSQL writes a batch. It moves the row of each run from where the batch expects it,
// under the batch's epoch, to where the batch leaves it, and stores the events of those
// runs alone whose row could be moved. The numbers of the others are its result.
//
// Two of these that meet at a run wait for each other at its row: the second one sees
// what the first one has made of it. For $23 see lockGates. IS TRUE keeps the planner,
// which has no idea how long the arrays are, from making nested loops of what it can
// look up in a hash table.
const insertSQL = `WITH given AS (
	SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[],
		$8::smallint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::float8[], $14::bigint[])
	AS g(no, run_id, before, epoch, started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms)
	WHERE (SELECT steps FROM table_set WHERE name = 'eventlog') = $22
		AND (SELECT count(pg_advisory_xact_lock_shared(1398033480, gate)) FROM unnest($23::int[]) AS gates(gate)) >= 0
), moved AS (
	UPDATE run SET started = g.started, last_seq = g.last_seq, head = g.head, terminal = g.terminal, turns = g.turns, tools = g.tools,
		input_tokens = g.input_tokens, output_tokens = g.output_tokens, cost_usd = g.cost_usd, duration_ms = g.duration_ms
	FROM given AS g
	WHERE run.run_id = g.run_id AND run.last_seq = g.before AND run.epoch = g.epoch AND (g.before > 0 OR g.epoch > 0)
	RETURNING g.no
), begun AS (
	INSERT INTO run (epoch, ` + runValues + `) SELECT 0, ` + runValues + ` FROM given WHERE before = 0 AND epoch = 0
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
SELECT no FROM unnest($1::int[]) AS everyone(no) EXCEPT ALL SELECT no FROM taken`

// reset forgets everything but the memory.
func (b *batch) reset() {
	clear(b.runs)
	clear(b.at)
	c := &b.columns
	clear(c.head)
	clear(c.prev)
	clear(c.payload)
	*b = batch{runs: b.runs[:0], at: b.at, columns: columns{
		no: c.no[:0], id: c.id[:0], before: c.before[:0], epoch: c.epoch[:0], started: c.started[:0], last: c.last[:0],
		head: c.head[:0], terminal: c.terminal[:0], turns: c.turns[:0], tools: c.tools[:0], input: c.input[:0],
		output: c.output[:0], elapsed: c.elapsed[:0], cost: c.cost[:0],
		of: c.of[:0], eventID: c.eventID[:0], seq: c.seq[:0], prev: c.prev[:0], ts: c.ts[:0], kind: c.kind[:0], payload: c.payload[:0],
	}}
}

// fill makes an empty batch of the items.
func (b *batch) fill(items []item) {
	b.items = items
	for _, it := range items {
		i, known := b.at[it.Run]
		if !known {
			i = b.addRun(it.Run, it.Event.Seq-1)
		}
		b.columns.stand(i, it.After)
		b.columns.addEvent(i, it.Event)
	}
}

func (b *batch) addRun(r *run, before uint64) int {
	if b.at == nil {
		b.at = make(map[*run]int)
	}
	i := len(b.runs)
	b.at[r] = i
	b.runs = append(b.runs, r)
	b.columns.addRun(r.ID, before, r.Epoch)
	return i
}

// addRun adds the row of a run that has to stand at event before.
func (c *columns) addRun(id string, before, epoch uint64) {
	c.no = append(c.no, int32(len(c.no)))
	c.id = append(c.id, id)
	c.before = append(c.before, int64(before))
	c.epoch = append(c.epoch, int64(epoch))
	c.started, c.last = append(c.started, 0), append(c.last, 0)
	c.head, c.terminal = append(c.head, nil), append(c.terminal, 0)
	c.turns, c.tools = append(c.turns, 0), append(c.tools, 0)
	c.input, c.output = append(c.input, 0), append(c.output, 0)
	c.elapsed, c.cost = append(c.elapsed, 0), append(c.cost, 0)
}

// stand says where row i is to stand.
func (c *columns) stand(i int, s eventlog.RunSummary) {
	c.started[i], c.last[i] = s.StartedAt.UnixNano(), int64(s.LastSeq)
	c.head[i], c.terminal[i] = s.Head[:], int16(s.TerminalKind)
	c.turns[i], c.tools[i] = int64(s.TurnCount), int64(s.ToolCallCount)
	c.input[i], c.output[i] = s.InputTokens, s.OutputTokens
	c.elapsed[i], c.cost[i] = s.DurationMs, s.CostUSD
}

// addEvent adds an event of the run in row i.
func (c *columns) addEvent(i int, e event.Event) {
	c.of = append(c.of, int32(i))
	c.eventID = append(c.eventID, e.RunID)
	c.seq = append(c.seq, int64(e.Seq))
	prev := e.PrevHash
	if len(prev) == 0 {
		prev = nil // NULL
	}
	c.prev = append(c.prev, prev)
	c.ts = append(c.ts, e.Timestamp)
	c.kind = append(c.kind, int16(e.Kind))
	c.payload = append(c.payload, e.Payload)
}

// queryer is a connection or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// insert writes the columns, through the gates, and returns the rows of the runs that
// were refused.
func (c *columns) insert(ctx context.Context, q queryer, gates []int32) (refused []int32, err error) {
	rows, err := q.Query(ctx, insertSQL,
		c.no, c.id, c.before, c.epoch, c.started, c.last, c.head, c.terminal, c.turns, c.tools, c.input, c.output, c.cost, c.elapsed,
		c.of, c.eventID, c.seq, c.prev, c.ts, c.kind, c.payload, layoutVersion, gates)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}

// split returns a batch for each run.
func (b *batch) split() []*batch {
	items := make([][]item, len(b.runs))
	for _, it := range b.items {
		i := b.at[it.Run]
		items[i] = append(items[i], it)
	}
	each := make([]*batch, len(items))
	for i := range each {
		each[i] = &batch{}
		each[i].fill(items[i])
	}
	return each
}

// settle finds out why runs of a batch were refused. After an attempt whose outcome is
// unknown, the reason may be that the events are there: since each event holds the hash
// of the one before, the last one tells for all.
func settle(ctx context.Context, conn *pgx.Conn, b *batch, refused []int32, again bool) (conflicts, error) {
	layout, err := findLayout(ctx, conn)
	if err != nil {
		return nil, err
	}
	if layout != layoutVersion {
		return nil, fmt.Errorf("pglog: the tables have changed since the log was opened: %w", eventlog.CheckSchema(layout, layoutVersion))
	}
	lost := make(conflicts)
	for _, i := range refused {
		r := b.runs[i]
		stored := false
		if again {
			if stored, err = isStored(ctx, conn, r.ID, b.columns.last[i], b.columns.head[i]); err != nil {
				return nil, err
			}
		}
		if stored {
			continue
		}
		at, err := find(ctx, conn, r.ID)
		if err != nil {
			return nil, err
		}
		lost[r] = pending.Continued(r.ID)
		if at.Epoch != r.Epoch {
			lost[r] = pending.StaleEpoch(r.ID, r.Epoch, at.Epoch)
		}
	}
	return lost, nil
}

// isStored reports whether the database holds the event with that number and hash.
func isStored(ctx context.Context, q queryer, runID string, seq int64, hash []byte) (bool, error) {
	evs, err := page(ctx, q, runID, uint64(seq-1), 1)
	if err != nil || len(evs) == 0 || evs[0].Seq != uint64(seq) {
		return false, err
	}
	got := evs[0].Hash()
	return string(got[:]) == string(hash), nil
}
