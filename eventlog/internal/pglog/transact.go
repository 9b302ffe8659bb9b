package pglog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/lists"
)

// maxAttempts bounds how often a transaction is retried that the server rolls back
// because of another one.
const maxAttempts = 20

// idleTime is how long a transaction may be idle before the server ends it. That
// frees the locks of a host that was cut off from the network.
const idleTime = 30 * time.Second

// Transact implements [eventlog.Transactor]. The server runs it at the isolation level
// SERIALIZABLE and rolls it back when it cannot be serialised with others; then, and
// when the connection breaks, it is run again, up to twenty times, after a random
// pause. Events that Append takes are written at its end.
//
// When the connection breaks in COMMIT, Transact looks up the outcome for up to
// [Options].RetryTime; if it cannot be found, the log stops.
func (l *Log) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	return l.transact(ctx, pgx.Serializable, fn)
}

// TransactCommitted implements [eventlog.Shared].
func (l *Log) TransactCommitted(ctx context.Context, fn func(eventlog.Tx) error) error {
	return l.transact(ctx, pgx.ReadCommitted, fn)
}

func (l *Log) transact(ctx context.Context, level pgx.TxIsoLevel, fn func(eventlog.Tx) error) error {
	if err := l.runs.Writable(); err != nil {
		return err
	}
	m := l.marks.take()
	defer l.marks.put(m)
	var touched []string // runs that the attempt before could not get at
	for attempt := 1; ; attempt++ {
		t := &Tx{log: l, mark: m}
		err := l.inTx(ctx, touched, level, func(tx pgx.Tx) error { return t.run(ctx, tx, fn) })
		if lost, ok := errors.AsType[*unanswered](err); ok {
			err = l.commitOutcome(m, lost.cause)
		}
		if err == nil {
			t.committed()
			return nil
		}
		if attempt == maxAttempts || !isRefusal(err) && !errors.Is(err, errUndone) && !t.wasBehind(ctx) {
			return l.refusal(ctx, err)
		}
		touched = t.touched()
		await.Pause(ctx, rand.N(pause(attempt)))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// refusal returns the error of a transaction that changed nothing. Unless the server could not be
// reached, the error comes from what the transaction has read, such as a row that exists already or is
// gone. A caller that tries again takes that for success, so it is confirmed.
func (l *Log) refusal(ctx context.Context, err error) error {
	if isTransient(err) || errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrLogStopped) || ctx.Err() != nil {
		return err
	}
	return cmp.Or(l.Confirm(ctx), err)
}

// unanswered is the error of a COMMIT whose outcome is not known.
type unanswered struct{ cause error }

// Error describes what happened to the connection.
func (u *unanswered) Error() string {
	return fmt.Sprintf("pglog: whether the transaction was committed is unknown: %v", u.cause)
}

// Unwrap returns the connection's error.
func (u *unanswered) Unwrap() error { return u.cause }

// change runs fn in a transaction of its own, and commits it so that what fn has changed or found is
// durable.
func (l *Log) change(ctx context.Context, fn func(pgx.Tx) error) error {
	return l.inTx(ctx, nil, pgx.ReadCommitted, func(tx pgx.Tx) error {
		err := fn(tx)
		if err == nil {
			_, err = tx.Exec(ctx, confirmSQL)
		}
		return err
	})
}

// inTx runs fn, which writes something, in a transaction, and commits it. Nothing is appended to the
// runs in the meantime.
func (l *Log) inTx(ctx context.Context, runs []string, level pgx.TxIsoLevel, fn func(pgx.Tx) error) error {
	conn, err := l.pool.Acquire(ctx)
	if isTransient(err) {
		err = fmt.Errorf("%w: %w", errUndone, err)
	}
	if err != nil {
		return fmt.Errorf("pglog: %w", orUnavailable(err))
	}
	defer conn.Release()
	err = inOpenTx(ctx, conn, runs, level, fn)
	if _, lost := errors.AsType[*unanswered](err); err != nil && !lost && conn.Conn().IsClosed() {
		err = fmt.Errorf("%w: %w", errUndone, err)
	}
	return err
}

// beginSQL begins a transaction. A serialisable transaction that scans a whole table
// conflicts with every other one that changes the table. So the server must use an
// index wherever there is one, also where a scan would be cheaper (see Open).
const beginSQL = "BEGIN ISOLATION LEVEL %s READ WRITE; " + durably + `;
	SET LOCAL idle_in_transaction_session_timeout = %d`

// inOpenTx is inTx on a connection.
func inOpenTx(ctx context.Context, conn *pgxpool.Conn, runs []string, level pgx.TxIsoLevel, fn func(pgx.Tx) error) error {
	if len(runs) > 0 {
		unlock, err := lockGates(ctx, conn, runs)
		if err != nil {
			return err
		}
		defer unlock()
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(beginSQL, level, true, idleTime.Milliseconds())})
	if err != nil {
		return fmt.Errorf("pglog: begin: %w", orUnavailable(err))
	}
	defer undo(ctx, tx)
	if err := fn(tx); err != nil {
		return orUnavailable(err)
	}
	return commit(ctx, tx)
}

// undo rolls back the transaction unless it was committed.
func undo(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	tx.Rollback(ctx)
}

// commit commits. From here on the caller's context makes no difference.
func commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTime)
	defer cancel()
	waited(tx.Conn())
	err := tx.Commit(ctx)
	err = cmp.Or(err, waited(tx.Conn()))
	e, fromServer := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback), fromServer && e.SeverityUnlocalized == "ERROR":
		return fmt.Errorf("pglog: commit: %w", orUnavailable(err))
	}
	return &unanswered{err}
}

// View implements [eventlog.Transactor].
func (l *Log) View(ctx context.Context, fn func(eventlog.Querier) error) error {
	if err := l.readable(); err != nil {
		return err
	}
	tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("pglog: begin: %w", orUnavailable(err))
	}
	defer undo(ctx, tx)
	return fn(statements(ctx, tx))
}

// CreateTables implements [eventlog.Transactor]. The role needs the right to
// create tables only if steps are missing ([Denied] if it lacks the right). A
// read-only log returns [eventlog.ErrReadOnly] unless it has the tables.
func (l *Log) CreateTables(ctx context.Context, set eventlog.TableSet) error {
	if set.Name == layoutSet {
		return fmt.Errorf("pglog: a set of tables cannot be called %s", layoutSet)
	}
	if missing, err := dblog.Missing(ctx, l, "pglog", set); err != nil || !missing {
		return err
	}
	if err := l.runs.Writable(); err != nil {
		return err
	}
	return l.explainForeign(l.change(ctx, func(tx pgx.Tx) error {
		if err := lockTables(ctx, tx); err != nil {
			return err
		}
		return dblog.TakeSteps(querier{ctx, tx}, set, func(statements string) error {
			_, err := tx.Exec(ctx, types.Replace(statements))
			return err
		})
	}))
}

// types are the server's words for SQLite's, see [eventlog.TableSet].
var types = strings.NewReplacer(" BLOB", " BYTEA", " INTEGER", " BIGINT", " REAL", " DOUBLE PRECISION", " COLLATE BINARY", ` COLLATE "C"`)

// TableSteps implements [eventlog.Transactor].
func (l *Log) TableSteps(ctx context.Context, set eventlog.TableSet) (int, error) {
	return dblog.Get(ctx, l.read, func(q eventlog.Querier) (int, error) { return dblog.StepsTaken(q, set) })
}

// statements returns the statements of the transaction.
func statements(ctx context.Context, tx pgx.Tx) *dblog.Statements {
	return &dblog.Statements{Name: "pglog", On: querier{ctx, tx}, Conflict: func(err error) bool { return isConflict(err) || isModuleLost(err) }, Explain: orUnavailable, Arg: isMany}
}

// isMany reports whether an argument is an [eventlog.Bulk] argument.
func isMany(arg any) bool {
	switch arg.(type) {
	case []int64, []float64, []string, [][]byte:
		return true
	}
	return false
}

// resultRow implements [eventlog.Row].
type resultRow struct{ rows pgx.Rows }

// Scan implements [eventlog.Row].
func (r resultRow) Scan(to ...any) error {
	values, err := r.rows.Values()
	if err != nil {
		return fmt.Errorf("pglog: %w", err)
	}
	for i, v := range values {
		if n, ok := v.(pgtype.Numeric); ok { // such as a sum
			if whole, err := n.Int64Value(); err == nil {
				values[i] = whole.Int64
			} else if part, err := n.Float64Value(); err == nil {
				values[i] = part.Float64
			}
		}
	}
	return dblog.ScanValues("pglog", values, to)
}

// Tx implements [eventlog.Tx] in a transaction of the server's.
type Tx struct {
	*dblog.Statements
	log     *Log
	mark    *mark
	changes pending.Changes
	columns columns        // the events that Append has accepted
	rows    map[string]int // the places of runs in columns
	doubt   *doubt
	wanted  []string // the runs that it has tried to fence
}

// run runs fn, and writes the events that it has appended. A failed statement fails the
// transaction, even if fn returns nil. If the server refused the statement because of another
// transaction, that error takes precedence over the error of fn.
func (t *Tx) run(ctx context.Context, tx pgx.Tx, fn func(eventlog.Tx) error) error {
	t.Statements = statements(ctx, tx)
	err := fn(t)
	if err == nil || isRefusal(t.Failed) {
		err = t.Failed
	}
	if err != nil {
		return err
	}
	if err := t.mark.leave(ctx, tx); err != nil || len(t.rows) == 0 {
		return err
	}
	refused, err := t.columns.insert(ctx, tx.Conn(), nil)
	if isConflict(err) || err == nil && len(refused) > 0 {
		return fmt.Errorf("%w: concurrent append: another process continued the run", eventlog.ErrInvalidAppend)
	}
	if err != nil {
		return fmt.Errorf("pglog: store %d events: %w", len(t.columns.events), err)
	}
	return nil
}

// Append implements [eventlog.Tx]. It appends under the epoch that this transaction has
// made, if any, and compares only with the database: a writer in this process that is
// ahead of it has lost the run.
func (t *Tx) Append(runID string, ev event.Event) error {
	if err := t.Ready("append"); err != nil {
		return err
	}
	if err := storable(runID); err != nil {
		return err
	}
	at, moved := t.changes.Moved[runID]
	if !moved {
		var err error
		if at.Cursor, err = t.position(runID, ev); err != nil {
			return t.Fail("append", err)
		}
	}
	if err := at.Append(runID, ev); err != nil {
		t.doubt = &doubt{runID, at.Run().LastSeq}
		return err
	}
	if t.rows == nil {
		t.rows = make(map[string]int)
	}
	if !moved {
		t.rows[runID] = len(t.rows)
	}
	t.columns.add(t.rows[runID], t.changes.Epochs[runID], ev, at.Run())
	t.changes.Move(runID, at)
	return nil
}

// position returns the position of the run that an event claims to continue. A first
// event is taken for one unchecked; the end of the transaction checks it. Suppose two
// transactions that begin runs both looked: the server, which notes the index pages that
// were read, would take each for a reader of the other's run, and roll one back.
func (t *Tx) position(runID string, ev event.Event) (c eventlog.Cursor, err error) {
	if ev.Seq == 1 && t.changes.Epochs[runID] == 0 {
		return c, nil
	}
	at, _, err := dialect.Find(t.On, runID)
	if err == nil && at.Epoch != t.changes.Epochs[runID] {
		err = pending.StaleEpoch(runID, t.changes.Epochs[runID], at.Epoch)
	}
	return at.Cursor, err
}

// doubt is a run that an event did not continue, with the last event that the
// transaction saw of it.
type doubt struct {
	runID string
	seq   uint64
}

// wasBehind reports whether the transaction saw less than the run has now: it missed events that
// this process had queued, or that another process has appended since it began. It is called after
// the end of the transaction.
func (t *Tx) wasBehind(ctx context.Context) bool {
	if t.doubt == nil || t.log.runs.Settle(ctx, t.doubt.runID) != nil {
		return false
	}
	at, _, err := t.log.index.Look(ctx, t.doubt.runID)
	return err == nil && at.Run().LastSeq > t.doubt.seq
}

// touched are the runs that the transaction has changed, or wanted to.
func (t *Tx) touched() []string {
	runs := slices.AppendSeq(slices.Collect(maps.Keys(t.changes.Epochs)), maps.Keys(t.rows))
	if t.doubt != nil {
		runs = append(runs, t.doubt.runID)
	}
	return append(runs, t.wanted...)
}

// Fence implements [eventlog.Tx].
func (t *Tx) Fence(runID string) (epoch uint64, err error) {
	epochs, err := t.FenceAll([]string{runID})
	return epochs[runID], err
}

// FenceAll makes a new epoch of each of the runs, in one statement, and returns them by
// run.
func (t *Tx) FenceAll(runIDs []string) (epochs map[string]uint64, err error) {
	if err := t.Ready("fence"); err != nil {
		return nil, err
	}
	for _, id := range runIDs {
		if err := storable(id); err != nil {
			return nil, err
		}
	}
	t.wanted = append(t.wanted, runIDs...)
	epochs = make(map[string]uint64, len(runIDs))
	rows := dblog.NewScanner()
	err = t.On.Query(fenceSQL, []any{runIDs}, func(row eventlog.Row) error {
		at, s, err := rows.Scan(row)
		if err != nil {
			return err
		}
		epochs[s.RunID] = at.Epoch
		t.changes.Fence(s.RunID, at.Epoch)
		if i, moved := t.rows[s.RunID]; moved {
			t.columns.rows[i].epoch, at.Cursor = at.Epoch, t.changes.Moved[s.RunID].Cursor
		}
		t.changes.Give(s.RunID, at)
		return nil
	})
	if err != nil {
		return nil, t.Fail("fence", err)
	}
	return epochs, nil
}

// committed reports the transaction's changes of runs to their writers in this
// process, their streams, and other processes.
func (t *Tx) committed() {
	l := t.log
	l.runs.Lock()
	defer l.runs.Unlock()
	l.runs.Committed(&t.changes, &l.hub)
	for id := range t.rows {
		l.notifier.tell(id)
	}
}

// marks are how it is found out whether a transaction was committed whose COMMIT was not
// answered: it leaves a mark, in a row that no other transaction changes at the same
// time. The number that the server gives a transaction is not enough. A server that has
// crashed gives the numbers again that it had not written down.
type marks struct {
	mu   sync.Mutex // guards what follows
	log  string     // names this log's rows; empty before the first
	made int
	free []*mark
}

// mark belongs to one call of Transact at a time.
type mark struct {
	slot  string // the key of its row
	value int64  // of the last transaction that has left it
}

// take returns a mark that is not in use.
func (m *marks) take() *mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.free); n > 0 {
		last := m.free[n-1]
		m.free = m.free[:n-1]
		return last
	}
	if m.log == "" {
		m.log = event.NewID()
	}
	m.made++
	return &mark{slot: fmt.Sprintf("%s/%d", m.log, m.made)}
}

func (m *marks) put(used *mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, used)
}

// markTime is how long the rows stay of a log that was not closed.
const markTime = 7 * 24 * time.Hour

// leave leaves a new mark in the transaction.
func (m *mark) leave(ctx context.Context, tx pgx.Tx) error {
	m.value++
	const sql = `INSERT INTO commit_mark (slot, mark, at) VALUES ($1, $2, $3)
		ON CONFLICT (slot) DO UPDATE SET mark = excluded.mark, at = excluded.at`
	if _, err := tx.Exec(ctx, sql, m.slot, m.value, time.Now().UnixNano()); err != nil {
		return fmt.Errorf("pglog: mark a transaction: %w", err)
	}
	return nil
}

// errUndone means that the connection broke, and nothing was committed.
var errUndone = errors.New("the connection broke, and the transaction was undone")

// commitOutcome checks whether the mark exists. While the server is still at work on the
// transaction, the statement waits for the row.
func (l *Log) commitOutcome(m *mark, cause error) error {
	const sql = `INSERT INTO commit_mark (slot, mark, at) VALUES ($1, 0, $2)
		ON CONFLICT (slot) DO UPDATE SET at = excluded.at RETURNING mark`
	ctx, cancel := context.WithTimeout(context.Background(), max(l.opts.retryTime(), time.Second))
	defer cancel()
	for n := 0; ctx.Err() == nil; n++ {
		var found int64
		err := l.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			waited(conn.Conn())
			err := conn.QueryRow(ctx, sql, m.slot, time.Now().UnixNano()).Scan(&found)
			return cmp.Or(err, waited(conn.Conn()))
		})
		if err == nil && found == m.value {
			return nil
		}
		if err == nil {
			return fmt.Errorf("pglog: %w: %w", errUndone, cause)
		}
		await.Pause(ctx, pause(n))
	}
	l.runs.Stop(&unanswered{cause}, nil)
	return l.runs.Failure()
}

// clear removes the rows of a log that is being closed, and old ones. Nothing but room is
// lost when it fails.
func (m *marks) clear(l *Log) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.pool.Exec(ctx, "DELETE FROM commit_mark WHERE starts_with(slot, $1) OR at < $2", m.log+"/", time.Now().Add(-markTime).UnixNano())
}

// fenceSQL makes a new epoch of each run. A run without events gets a row for the
// position before its first one. Every append to the run takes the row's lock, too:
// an append that has it first is committed before the fence, and a later append sees
// the new epoch. Rows are locked in the order of the runs' names, to avoid deadlocks.
const fenceSQL = `INSERT INTO run (epoch, ` + runValues + `)
	SELECT 1, id, 0, 0, decode(repeat('00', 32), 'hex'), 0, 0, 0, 0, 0, 0, 0 FROM unnest($1::text[]) AS id GROUP BY id ORDER BY id
	ON CONFLICT (run_id) DO UPDATE SET epoch = run.epoch + 1 RETURNING 0, epoch, ` + runValues

// gateCount is the number of gates.
const gateCount = 64

// gate returns the gate that appends to the run pass.
func gate(runID string) int32 {
	h := uint32(2166136261) // FNV-1a, as in hash/fnv, which allocates
	for i := range len(runID) {
		h = (h ^ uint32(runID[i])) * 16777619
	}
	return int32(h % gateCount)
}

// gates returns the gates of several runs, each once and in order.
func gates(runIDs []string) []int32 {
	all := lists.Map(runIDs, gate)
	slices.Sort(all)
	return slices.Compact(all)
}

// lockGates keeps every process from appending to the runs, until unlock.
//
// A serialisable transaction cannot change the row of a run that was appended to since
// it began, and would never get to fence a run that is written all the time. So after
// such a failure, the next attempt begins behind closed gates. A gate is an advisory
// lock that the appending statement takes shared. Many runs share a gate, so that a
// batch of a thousand runs does not hold a thousand locks.
//
// The session holds the locks, not a transaction, so only the end of the session frees the gates of
// a host that was cut off or frozen with the gates closed. While the session holds them, the server
// ends it if it is idle for idleTime or its host does not answer. Older servers cannot do this
// (idle_session_timeout needs PostgreSQL 14, tcp_user_timeout 12).
func lockGates(ctx context.Context, conn *pgxpool.Conn, runIDs []string) (unlock func(), err error) {
	unlock = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		const open = `SELECT pg_advisory_unlock_all();
			SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name = 'idle_session_timeout'`
		if _, err := conn.Exec(ctx, open, pgx.QueryExecModeSimpleProtocol); err != nil {
			conn.Conn().Close(ctx) // which unlocks as well
		}
	}
	const attend = `SELECT set_config(s.name, v.value, false) FROM pg_settings s JOIN (VALUES
		('idle_session_timeout', $1), ('tcp_user_timeout', $1),
		('tcp_keepalives_idle', '10'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '2')
		) AS v(name, value) ON v.name = s.name`
	const lock = "SELECT pg_advisory_lock(1398033480, gate) FROM unnest($1::int[]) AS gates(gate)"
	_, err = conn.Exec(ctx, attend, fmt.Sprint(idleTime.Milliseconds()))
	if err == nil {
		_, err = conn.Exec(ctx, lock, gates(runIDs))
	}
	if err != nil {
		unlock() // the session keeps the locks it got before the statement failed
		return nil, fmt.Errorf("pglog: lock runs: %w", orUnavailable(err))
	}
	return unlock, nil
}
