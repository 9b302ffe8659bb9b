package pglog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/internal/lists"
)

// planTime is how long the server's plan for the writing statement is kept. A plan
// made for an empty table is bad for a table of a million runs.
const planTime = 5 * time.Second

// writer is the connection that writes. Its fields belong to the goroutine that runs
// [Log.write].
type writer struct {
	log     *Log
	conn    *pgx.Conn // nil while not connected
	planned time.Time // when the plans were made
}

// restart is [pending.Backend].Restart. The server may still be writing the old writer's
// last batch, which is harmless: each statement names the expected position of the run.
func (l *Log) restart() (start func(), err error) {
	select {
	case <-l.stopped:
	default:
		return nil, errors.New("pglog: the writer has not ended yet")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := l.examine(ctx); err != nil {
		return nil, err
	}
	l.stopped = make(chan struct{})
	return func() { go l.write() }, nil
}

// write is the goroutine. It ends with the log, or with the first batch that cannot be
// written.
func (l *Log) write() {
	n := writer{log: l}
	defer close(l.stopped)
	defer n.disconnect()
	var items []item
	var b batch
	var took time.Duration // by the batch before
	for {
		if answered := len(b.runs); answered > 1 {
			l.runs.Gather(answered, pending.GatherTime(took))
		}
		b.reset()
		if items = l.runs.Take(items); len(items) == 0 {
			return
		}
		b.fill(items)
		began := time.Now()
		lost, err := n.store(&b)
		took = time.Since(began)
		if err != nil {
			l.runs.Stop(err, nil)
			return
		}
		l.runs.Acknowledge(items, lost, &l.hub)
		for _, r := range b.runs {
			if lost[r] == nil {
				l.notifier.tell(r.ID)
			}
		}
	}
}

// conflicts has the error of each run that could not be continued.
type conflicts map[*run]error

// store writes the batch, and tries again when the connection breaks. An attempt whose
// outcome is unknown needs no answer: writing the batch again changes nothing if it is
// already stored (see settle), whether the server has committed it, has lost it, or is
// still at work on it.
//
// An error is final: the server refuses the batch, or was unreachable for
// Options.RetryTime. Whether the database has the batch is then unknown.
func (n *writer) store(b *batch) (conflicts, error) {
	var since time.Time
	for again := 0; ; again++ {
		lost, err := n.attempt(b, again > 0)
		if err == nil || !isTransient(err) {
			return lost, err
		}
		if !isRefusal(err) {
			n.disconnect()
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) >= n.log.opts.retryTime() {
			return nil, fmt.Errorf("pglog: tried %d times: %w", again+1, err)
		}
		time.Sleep(pause(again))
	}
}

// pause is how long to wait before attempt number n+2, so that a restarting server
// is not overrun.
func pause(n int) time.Duration { return min(time.Second, time.Millisecond<<min(n, 10)) }

// attempt writes the batch once.
func (n *writer) attempt(b *batch, again bool) (conflicts, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTime)
	defer cancel()
	if err := n.prepare(ctx); err != nil {
		return nil, err
	}
	waited(n.conn)
	refused, err := b.columns.insert(ctx, n.conn, gates(lists.Map(b.runs, func(r *run) string { return r.ID })))
	err = cmp.Or(err, waited(n.conn))
	switch {
	case (isConflict(err) || isModuleLost(err)) && len(b.runs) > 1:
		return n.attemptEach(b, again)
	case isConflict(err):
		return conflicts{b.runs[0]: pending.Continued(b.runs[0].ID)}, nil
	case isModuleLost(err):
		return conflicts{b.runs[0]: pending.ModuleLost(b.runs[0].ID)}, nil
	case err != nil:
		return nil, fmt.Errorf("pglog: store %d events: %w", len(b.items), err)
	case len(refused) == 0:
		return nil, nil
	}
	return settle(ctx, n.conn, b, refused, again)
}

// attemptEach writes the runs of the batch one by one. It is for a batch with an
// event that a program without the table run has already written.
func (n *writer) attemptEach(b *batch, again bool) (conflicts, error) {
	lost := make(conflicts)
	for _, one := range b.split() {
		bad, err := n.attempt(one, again)
		if err != nil {
			return nil, err
		}
		maps.Copy(lost, bad)
	}
	return lost, nil
}

// prepare provides a connection with plans that are not too old.
func (n *writer) prepare(ctx context.Context) (err error) {
	if n.conn != nil && time.Since(n.planned) < planTime {
		return nil
	}
	first := "DISCARD PLANS"
	if n.conn == nil {
		if n.conn, err = n.log.connect(ctx, writing); err != nil {
			return err
		}
		first = fmt.Sprintf(durably, false)
	}
	n.planned = time.Now()
	if _, err := n.conn.Exec(ctx, first); err != nil {
		n.disconnect()
		return fmt.Errorf("pglog: %w", err)
	}
	return nil
}

func (n *writer) disconnect() {
	if n.conn != nil {
		closeConn(n.conn)
		n.conn = nil
	}
}

// writing are the settings of the connections that write. The server gives up a
// statement when we have, and neither compiles nor scans for small writes.
var writing = map[string]string{
	"default_transaction_isolation": "read committed",
	"statement_timeout":             fmt.Sprint(attemptTime.Milliseconds()),
	"jit":                           "off",
	"enable_seqscan":                "off",
}

// durably makes the connection wait for the disk, should the operator have set that
// commits do not. The stricter settings, which wait for standby servers, stay.
const durably = "SELECT set_config('synchronous_commit', 'on', %v) WHERE current_setting('synchronous_commit') = 'off'"

// A server shows what a transaction has written before its standbys have it in two cases: the wait of
// COMMIT was cancelled, by an operator or because the client gave up, and the server has restarted.
// Then COMMIT succeeds with a warning, or its outcome is found in the tables. Neither is a reason to
// acknowledge anything: a standby that is promoted would lack it.

// confirmSQL is a transaction that changes nothing, but whose COMMIT waits as synchronous_commit
// asks. Whatever was committed before it is earlier in the server's WAL, and so on the standbys as
// well. It needs no right.
const confirmSQL = "SELECT pg_logical_emit_message(true, 'starling', '')"

// confirm returns nil once all that the connection can read is durable. If ctx ends first, the server is
// asked to give up, and tells whether it was a standby that it waited for.
func confirm(ctx context.Context, conn *pgx.Conn) error {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	gaveUp := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(gaveUp)
		time.AfterFunc(time.Second, end)
		conn.PgConn().CancelRequest(late)
	})
	waited(conn)
	_, err := conn.Exec(late, fmt.Sprintf(durably, true)+"; "+confirmSQL)
	err = cmp.Or(err, waited(conn))
	if !stop() {
		<-gaveUp
		closeConn(conn) // the request to give up must not meet another statement
		if code(err) != "" || late.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("pglog: confirm what was found: %w", orUnavailable(err))
	}
	return nil
}

// Confirm is for [eventlog.Confirm].
func (l *Log) Confirm(ctx context.Context) error {
	if err := l.runs.Writable(); err != nil {
		return err
	}
	return orUnavailable(l.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return confirm(ctx, conn.Conn()) }))
}

// errNotWaited means that a COMMIT succeeded without its wait for the standbys.
var errNotWaited = fmt.Errorf("%w: %w", eventlog.ErrUnavailable, eventlog.ErrStandbyAway)

// waited returns errNotWaited if the server has warned of that since the call before.
func waited(conn *pgx.Conn) error {
	data := conn.PgConn().CustomData()
	_, gaveUp := data[gaveUpWaiting]
	delete(data, gaveUpWaiting)
	if gaveUp {
		return errNotWaited
	}
	return nil
}

const gaveUpWaiting = "pglog: gave up waiting"

// hearNotice keeps for waited that there was a warning without a code of its own. That of a COMMIT
// which did not wait is one, and its text depends on the server's language.
func hearNotice(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" && n.Code == plainWarning {
		conn.CustomData()[gaveUpWaiting] = true
	}
}

// connect makes a connection outside of the pool, in the pool's way.
func (l *Log) connect(ctx context.Context, settings map[string]string) (*pgx.Conn, error) {
	return l.connectHearing(ctx, settings, l.pool.Config().ConnConfig.OnNotice)
}

// connectHearing is connect with a handler for the server's notices.
func (l *Log) connectHearing(ctx context.Context, settings map[string]string, hear pgconn.NoticeHandler) (*pgx.Conn, error) {
	config := l.pool.Config()
	config.ConnConfig.OnNotice = hear
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("pglog: %w", err)
	}
	if err = config.AfterConnect(ctx, conn); err == nil {
		err = set(ctx, conn, settings)
	}
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// closeConn closes a connection without waiting for a server that may be gone.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx)
}

// batch is the content of one transaction: some events of some runs.
type batch struct {
	items   []item // in the order of their appends; they belong to the writer
	runs    []*run // each once
	at      map[*run]int
	columns columns
}

// reset forgets everything but the memory.
func (b *batch) reset() {
	clear(b.runs)
	clear(b.at)
	b.columns.reset()
	b.items, b.runs = nil, b.runs[:0]
}

// fill makes an empty batch of the items.
func (b *batch) fill(items []item) {
	b.items = items
	for _, it := range items {
		i, known := b.at[it.Run]
		if !known {
			if b.at == nil {
				b.at = make(map[*run]int)
			}
			i = len(b.runs)
			b.at[it.Run] = i
			b.runs = append(b.runs, it.Run)
		}
		b.columns.add(i, it.Run.Epoch, it.Event, it.After)
		for _, digest := range it.Uses {
			b.columns.uses = append(b.columns.uses, rowUse{it.Run.ID, digest})
		}
	}
}

// split returns a batch for each run.
func (b *batch) split() []*batch {
	items := make([][]item, len(b.runs))
	for _, it := range b.items {
		i := b.at[it.Run]
		items[i] = append(items[i], it)
	}
	return lists.Map(items, func(items []item) *batch {
		one := &batch{}
		one.fill(items)
		return one
	})
}

// settle finds out why runs of a batch were refused. After an attempt whose outcome is
// unknown, the reason may be that the events are already stored: since each event holds
// the hash of the one before, checking the last one suffices. Events that were only found are
// confirmed.
func settle(ctx context.Context, conn *pgx.Conn, b *batch, refused []int32, again bool) (conflicts, error) {
	layout, err := findLayout(ctx, conn)
	if err != nil {
		return nil, err
	}
	if layout != layoutVersion {
		return nil, fmt.Errorf("pglog: the tables have changed since the log was opened: %w", eventlog.CheckSchema(layout, layoutVersion))
	}
	lost, found := make(conflicts), false
	for _, i := range refused {
		r := b.runs[i]
		stored := false
		if again {
			if stored, err = isStored(ctx, conn, r.ID, b.columns.rows[i].after); err != nil {
				return nil, err
			}
		}
		if found = found || stored; stored {
			continue
		}
		at, _, err := dialect.Find(querier{ctx, conn}, r.ID)
		if err != nil {
			return nil, err
		}
		lost[r] = pending.Continued(r.ID)
		if at.Epoch != r.Epoch {
			lost[r] = pending.StaleEpoch(r.ID, r.Epoch, at.Epoch)
		}
	}
	if found {
		err = confirm(ctx, conn)
	}
	return lost, err
}

// isStored reports whether the database holds the batch's last event of the run.
func isStored(ctx context.Context, q queryer, runID string, at eventlog.RunSummary) (bool, error) {
	evs, err := page(ctx, q, runID, at.LastSeq-1, 1)
	if err != nil || len(evs) == 0 || evs[0].Seq != at.LastSeq {
		return false, err
	}
	return evs[0].Hash() == at.Head, nil
}

// columns are runs and events to write, in the order of the statement's arrays: some of
// these have an element for each run, the others one for each event.
type columns struct {
	rows   []row
	events []rowEvent
	uses   []rowUse
}

// rowUse is a module, or the root of files, that an event of a run names.
type rowUse struct {
	runID  string
	digest canon.Hash
}

// row is the row of a run that must be at event before, under the epoch.
type row struct {
	id            string
	before, epoch uint64
	after         eventlog.RunSummary // of the run after the batch
	bytes         int64               // of the payloads in the batch
}

// rowEvent is an event of the run in a row.
type rowEvent struct {
	row int
	event.Event
}

// runValues are the columns of the table run, except for epoch and what is counted.
const runValues = "run_id, " + dblog.Columns

// movedValues are the values of [dblog.Columns] after a batch.
const movedValues = "{run.started}, {run.last_seq}, g.head, {run.terminal}, {run.turns}, {run.tools}, {run.input_tokens}, {run.output_tokens}, ($4::float8[])[g.no], {run.duration_ms}"

// The numbers of a run and of an event, in the order in which one array has those of all of them.
var (
	runNumbers   = []string{"before", "epoch", "started", "last_seq", "terminal", "turns", "tools", "input_tokens", "output_tokens", "duration_ms", "bytes"}
	eventNumbers = []string{"no", "seq", "ts", "kind"}
)

// numbers replaces {run.before} with the place of that number of run g.no in the
// statement, and {event.no} by that of event e.place.
func numbers() *strings.Replacer {
	var pairs []string
	add := func(kind string, names []string, array, place string) {
		for i, name := range names {
			pairs = append(pairs, "{"+kind+"."+name+"}", fmt.Sprintf("(%s::bigint[])[(%s-1)*%d+%d]", array, place, len(names), i+1))
		}
	}
	add("run", runNumbers, "$3", "g.no")
	add("event", eventNumbers, "$8", "e.place")
	return strings.NewReplacer(pairs...)
}

// insertSQL writes a batch. It moves the row of each run from where the batch expects it,
// under the batch's epoch, to where the batch leaves it, and stores the events only of the
// runs whose rows it could move. Its result is the places of the other runs, the first of
// which is 0. $10 is whether runs begin. $11 and $12 are the modules and roots of files that
// events name and the ids of their runs; if one of them is no longer there, the statement fails.
//
// Two such statements that meet at a run wait for each other at its row: the second one
// sees the first one's change. For $9 see lockGates. IS TRUE keeps the planner, which
// cannot know how long the arrays are, from choosing nested loops over a hash table.
//
// The server makes a table of every array that is unnested, and reads each again row by
// row. So only values without a fixed length are unnested; the numbers are in one array, where the
// server finds each by its place.
var insertSQL = numbers().Replace(fmt.Sprintf(`WITH gate AS (
	SELECT (SELECT steps FROM table_set WHERE name = 'eventlog') <= %d
		AND (SELECT count(pg_advisory_xact_lock_shared(1398033480, gate)) FROM unnest($9::int[]) AS gates(gate)) >= 0 AS open
), moved AS (
	UPDATE run SET (`+dblog.Columns+`) = ROW (`+movedValues+`),
		bytes = run.bytes + {run.bytes}, counted = run.counted + {run.last_seq} - {run.before}
	FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS g(run_id, head, no)
	WHERE (SELECT open FROM gate) AND ({run.before} > 0 OR {run.epoch} > 0)
		AND run.run_id = g.run_id AND run.last_seq = {run.before} AND run.epoch = {run.epoch}
	RETURNING g.no
), begun AS (
	INSERT INTO run (run_id, epoch, `+dblog.Columns+`, bytes, counted)
	SELECT g.run_id, 0, `+movedValues+`, {run.bytes}, {run.last_seq} FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS g(run_id, head, no)
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
), used AS (
	INSERT INTO module_use (digest, used_by)
	SELECT u.digest, u.run_id FROM unnest($11::bytea[], $12::text[]) AS u(digest, run_id)
	WHERE u.run_id IN (SELECT g.run_id FROM unnest($1::text[]) WITH ORDINALITY AS g(run_id, no) WHERE g.no IN (SELECT no FROM taken))
	ON CONFLICT (digest, used_by) DO NOTHING
)
SELECT no - 1 FROM generate_series(1, cardinality($4::float8[])) AS everyone(no)
WHERE (SELECT count(*) FROM taken) < cardinality($4::float8[]) AND (no IN (SELECT no FROM taken)) IS NOT TRUE`, layoutVersion))

// reset forgets everything but the memory.
func (c *columns) reset() {
	clear(c.rows)
	clear(c.events)
	c.rows, c.events, c.uses = c.rows[:0], c.events[:0], c.uses[:0]
}

// add adds an event of the run in row i, or of one more run, which must be at the event before it, under
// the epoch. After it the run has the summary.
func (c *columns) add(i int, epoch uint64, e event.Event, after eventlog.RunSummary) {
	if i == len(c.rows) {
		c.rows = append(c.rows, row{id: e.RunID, before: e.Seq - 1, epoch: epoch})
	}
	c.rows[i].after = after
	c.rows[i].bytes += int64(len(e.Payload))
	c.events = append(c.events, rowEvent{i, e})
}

// arguments returns the arguments of the statement.
func (c *columns) arguments(gates []int32) []any {
	runs, events := len(c.rows), len(c.events)
	ids, heads, costs, ofRuns := make([]string, runs), make([][]byte, runs), make([]float64, runs), make([]int64, 0, runs*len(runNumbers))
	for i := range c.rows {
		r := &c.rows[i]
		s := &r.after
		ids[i], heads[i], costs[i] = r.id, s.Head[:], s.CostUSD
		ofRuns = append(ofRuns, int64(r.before), int64(r.epoch), s.StartedAt.UnixNano(), int64(s.LastSeq), int64(s.TerminalKind),
			int64(s.TurnCount), int64(s.ToolCallCount), s.InputTokens, s.OutputTokens, s.DurationMs, r.bytes)
	}
	eventRuns, hashes, payloads, ofEvents := make([]string, events), make([][]byte, events), make([][]byte, events), make([]int64, 0, events*len(eventNumbers))
	for i, e := range c.events {
		eventRuns[i], payloads[i] = e.RunID, e.Payload
		if len(e.PrevHash) > 0 { // otherwise NULL
			hashes[i] = e.PrevHash
		}
		ofEvents = append(ofEvents, int64(e.row+1), int64(e.Seq), e.Timestamp, int64(e.Kind))
	}
	modules, users := make([][]byte, len(c.uses)), make([]string, len(c.uses))
	for i := range c.uses {
		modules[i], users[i] = c.uses[i].digest[:], c.uses[i].runID
	}
	begins := slices.ContainsFunc(c.rows, func(r row) bool { return r.before == 0 && r.epoch == 0 }) // it has no row yet
	return []any{ids, heads, ofRuns, costs, eventRuns, hashes, payloads, ofEvents, gates, begins, modules, users}
}

// insert writes the columns, through the gates, and returns the rows of the runs that
// were refused.
func (c *columns) insert(ctx context.Context, conn *pgx.Conn, gates []int32) (refused []int32, err error) {
	rows, _ := conn.Query(ctx, insertSQL, c.arguments(gates)...) // CollectRows returns its error
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}
