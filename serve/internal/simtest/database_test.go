package simtest

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/serve/queue"
)

// database stands for the database that all hosts share.
type database struct {
	state chan struct{} // capacity 1: the lock of the row of queue_state, as a server has it

	mu     sync.Mutex // held for one transaction's statements, during which no time passes
	conn   driver.Conn
	stmts  map[string]driver.Stmt
	runs   map[string]*run
	claims []claim // of committed transactions, in order
	count  int     // statements

	signals sync.Mutex
	hear    map[*handle]func()
}

// run is the log of a run.
type run struct {
	cursor eventlog.Cursor
	events []event.Event
	epochs []uint64 // under which each event was recorded
	epoch  uint64   // the last one
}

// claim is a job that was handed out.
type claim struct {
	runID string
	epoch uint64
	at    time.Time
}

func openDatabase() (*database, error) {
	connector, err := sqlite.NewConnector(":memory:")
	if err != nil {
		return nil, err
	}
	conn, err := connector.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	db := &database{state: make(chan struct{}, 1), conn: conn, stmts: make(map[string]driver.Stmt), runs: make(map[string]*run), hear: make(map[*handle]func())}
	for _, step := range queue.Tables.Steps {
		if _, err := conn.(driver.ExecerContext).ExecContext(context.Background(), step, nil); err != nil {
			return nil, err
		}
	}
	return db, nil
}

// soFar returns how many statements there were, and what was handed out.
func (db *database) soFar() (statements int, claims []claim) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.count, slices.Clone(db.claims)
}

func (db *database) close() {
	for _, s := range db.stmts {
		s.Close()
	}
	db.conn.Close()
}

// run runs one statement. Without a function for rows it returns how many rows changed. The
// caller holds mu.
func (db *database) run(sql string, args []any, row func(eventlog.Row) error) (int64, error) {
	db.count++
	s := db.stmts[sql]
	if s == nil {
		var err error
		if s, err = db.conn.Prepare(sql); err != nil {
			return 0, fmt.Errorf("simtest: %s: %w", sql, err)
		}
		db.stmts[sql] = s
	}
	named := make([]driver.NamedValue, len(args))
	for i, a := range args {
		named[i] = driver.NamedValue{Name: fmt.Sprint(i + 1), Ordinal: i + 1, Value: a}
	}
	if row == nil {
		result, err := s.(driver.StmtExecContext).ExecContext(context.Background(), named)
		if err != nil {
			return 0, fmt.Errorf("simtest: %s: %w", sql, err)
		}
		return result.RowsAffected()
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(context.Background(), named)
	if err != nil {
		return 0, fmt.Errorf("simtest: %s: %w", sql, err)
	}
	defer rows.Close()
	for values := make(values, len(rows.Columns())); ; {
		switch err := rows.Next(values); {
		case errors.Is(err, io.EOF):
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("simtest: %s: %w", sql, err)
		}
		if err := row(values); err != nil {
			return 0, err
		}
	}
}

// values is a row of SQLite's. It implements [eventlog.Row].
type values []driver.Value

func (v values) Scan(to ...any) error {
	for i, to := range to {
		n, _ := v[i].(int64)
		ok := true
		switch to := to.(type) {
		case *bool:
			*to = n != 0
		case *int:
			*to = int(n)
		case *int64:
			*to = n
		case *uint64:
			*to = uint64(n)
		case *time.Time:
			if *to = (time.Time{}); n != 0 {
				*to = time.Unix(0, n).UTC()
			}
		case *float64:
			if *to, ok = v[i].(float64); !ok {
				*to, ok = float64(n), true
			}
		case *string:
			*to, ok = v[i].(string)
		case *[]byte:
			*to, ok = v[i].([]byte)
		default:
			ok = false
		}
		if !ok {
			return fmt.Errorf("simtest: column %d holds a %T, which does not go into a %T", i+1, v[i], to)
		}
	}
	return nil
}

// querier runs statements of a transaction. On a server it takes arrays and locks of rows.
type querier struct{ db *database }

func (q querier) Query(sql string, args []any, row func(eventlog.Row) error) error {
	_, err := q.db.run(sql, args, row)
	return err
}

// read runs a query that a test makes, outside of any host.
func (db *database) read(sql string, args []any, row func(eventlog.Row) error) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return querier{db}.Query(sql, args, row)
}

// append takes an event, as the backends of package eventlog do. The caller holds mu.
func (db *database) append(runID string, epoch uint64, ev event.Event) error {
	r := db.runs[runID]
	if r == nil {
		r = new(run)
	}
	if epoch != r.epoch {
		return fmt.Errorf("%w: run %q is in epoch %d, the writer's is %d", eventlog.ErrFenced, runID, r.epoch, epoch)
	}
	if err := r.cursor.Append(runID, ev); err != nil {
		return err
	}
	r.events, r.epochs = append(r.events, ev), append(r.epochs, epoch)
	db.runs[runID] = r
	return nil
}

// Errors that a seed injects.
var (
	errDown    = errors.New("simtest: the server cannot be reached")
	errUnknown = errors.New("simtest: the connection broke during the commit, whose outcome is unknown")
	errDead    = errors.New("simtest: this process was killed")
)

// faults is how likely things fail, from 0 to 1, and how long a call takes.
type faults struct {
	before, unknown, again, lost float64
	latency                      time.Duration // to the server or back, on average
	work                         time.Duration // of a transaction that has the lock of queue_state
}

// handle is one process's connection to the database. It implements [eventlog.Transactor], and
// for a server [eventlog.Shared].
type handle struct {
	db     *database
	server bool

	mu     sync.Mutex
	rng    *rand.Rand
	faults faults
	frozen time.Time // no call returns before
	dead   bool
}

// file is a handle to a database that is a file.
type file struct{ eventlog.Transactor }

// injected returns what fails at this time.
func (h *handle) injected() faults {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.faults
}

func (h *handle) likely(p float64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.Float64() < p
}

// travel is the way of a call to the server, or of its answer.
func (h *handle) travel(ctx context.Context) error {
	h.mu.Lock()
	d := time.Duration(h.rng.ExpFloat64() * float64(h.faults.latency))
	h.mu.Unlock()
	for until := time.Now().Add(d); ; {
		h.mu.Lock()
		dead := h.dead
		if h.frozen.After(until) {
			until = h.frozen
		}
		h.mu.Unlock()
		left := time.Until(until)
		if dead {
			return errDead
		}
		if left <= 0 {
			return nil
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (h *handle) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
}

func (h *handle) freeze(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen = time.Now().Add(d)
}

// heal makes nothing fail from now on.
func (h *handle) heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = faults{latency: time.Millisecond}
}

func (h *handle) TableSteps(context.Context, eventlog.TableSet) (int, error) {
	return len(queue.Tables.Steps), nil
}
func (h *handle) CreateTables(context.Context, eventlog.TableSet) error { return nil }

func (h *handle) View(ctx context.Context, fn func(eventlog.Querier) error) error {
	if err := h.travel(ctx); err != nil {
		return err
	}
	if h.likely(h.injected().before) {
		return errDown
	}
	h.db.mu.Lock()
	err := fn(querier{h.db})
	h.db.mu.Unlock()
	if arrived := h.travel(ctx); err == nil {
		err = arrived
	}
	return err
}

// Transact makes a transaction, all of it at the instant of its first statement. What a seed
// injects is what a backend returns once its own retries are over.
func (h *handle) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	if err := h.travel(ctx); err != nil {
		return err
	}
	if h.likely(h.injected().before) {
		return errDown
	}
	if h.likely(h.injected().again) { // rolled back, and made again
		_ = h.transact(fn, false)
	}
	down := h.likely(h.injected().before)
	err := h.transact(fn, !down)
	switch {
	case err != nil:
	case down:
		err = errDown
	case h.likely(h.injected().unknown):
		err = errUnknown
	}
	if arrived := h.travel(ctx); err == nil {
		err = arrived
	}
	return err
}

// TransactCommitted implements [eventlog.Shared].
func (h *handle) TransactCommitted(ctx context.Context, fn func(eventlog.Tx) error) error {
	return h.Transact(ctx, fn)
}

func (h *handle) transact(fn func(eventlog.Tx) error, commit bool) error {
	tx := &tx{querier: querier{h.db}, h: h, made: make(map[string]uint64)}
	var as eventlog.Tx = tx
	if h.server {
		as = serverTx{tx}
	}
	err := fn(as)
	return tx.end(err, commit)
}

func (h *handle) Now(ctx context.Context) (time.Time, error) {
	if err := h.travel(ctx); err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	return now, h.travel(ctx)
}

func (h *handle) Signal() {
	h.db.signals.Lock()
	defer h.db.signals.Unlock()
	for other, heard := range h.db.hear {
		if other != h && !h.likely(h.injected().lost) {
			time.AfterFunc(time.Millisecond, heard)
		}
	}
}

func (h *handle) OnSignal(heard func()) (stop func()) {
	h.db.signals.Lock()
	defer h.db.signals.Unlock()
	h.db.hear[h] = heard
	return func() {
		h.db.signals.Lock()
		defer h.db.signals.Unlock()
		delete(h.db.hear, h)
	}
}

// Append records an event under an epoch, as eventlog.Store.Fenced does.
func (h *handle) Append(ctx context.Context, runID string, epoch uint64, ev event.Event) error {
	if err := h.travel(ctx); err != nil {
		return err
	}
	h.db.mu.Lock()
	err := h.db.append(runID, epoch, ev)
	h.db.mu.Unlock()
	if arrived := h.travel(ctx); err == nil {
		err = arrived
	}
	return err
}

// Read reads the events of a run.
func (h *handle) Read(ctx context.Context, runID string) (events []event.Event, err error) {
	if err := h.travel(ctx); err != nil {
		return nil, err
	}
	h.db.mu.Lock()
	if r := h.db.runs[runID]; r != nil {
		events = r.events[:len(r.events):len(r.events)]
	}
	h.db.mu.Unlock()
	return events, h.travel(ctx)
}

// tx is a transaction. It begins with its first statement.
type tx struct {
	querier
	h      *handle
	begun  bool
	locked bool // it has the lock of queue_state
	failed error
	made   map[string]uint64 // the epochs that it has made
	claims []claim
	undo   []func()
}

func (t *tx) begin() error {
	if !t.begun {
		t.db.mu.Lock()
		t.begun = true
		_, t.failed = t.db.run("BEGIN", nil, nil)
	}
	return t.failed
}

func (t *tx) end(err error, commit bool) error {
	if err == nil {
		err = t.failed
	}
	if t.begun {
		if err == nil && commit {
			_, err = t.db.run("COMMIT", nil, nil)
			t.db.claims = append(t.db.claims, t.claims...)
		} else {
			for _, undo := range slices.Backward(t.undo) {
				undo()
			}
			if _, failed := t.db.run("ROLLBACK", nil, nil); failed != nil {
				err = errors.Join(err, failed)
			}
		}
		defer t.db.mu.Unlock()
	}
	if t.locked {
		<-t.db.state
	}
	return err
}

func (t *tx) Query(sql string, args []any, row func(eventlog.Row) error) error {
	if err := t.begin(); err != nil {
		return err
	}
	var refused error
	_, err := t.db.run(sql, args, func(r eventlog.Row) error {
		refused = row(r)
		return refused
	})
	if err != nil && refused == nil {
		t.failed = err
	}
	return err
}

func (t *tx) Exec(sql string, args ...any) (int64, error) {
	if err := t.begin(); err != nil {
		return 0, err
	}
	n, err := t.db.run(sql, args, nil)
	t.failed = err
	return n, err
}

// keep remembers the log of a run, in case the transaction is rolled back.
func (t *tx) keep(runID string) *run {
	r := t.db.runs[runID]
	if r == nil {
		t.undo = append(t.undo, func() { delete(t.db.runs, runID) })
		r = new(run)
		t.db.runs[runID] = r
	} else {
		before := *r
		t.undo = append(t.undo, func() { *r = before })
	}
	return r
}

func (t *tx) Append(runID string, ev event.Event) error {
	if err := t.begin(); err != nil {
		return err
	}
	t.keep(runID)
	return t.db.append(runID, t.made[runID], ev)
}

func (t *tx) Fence(runID string) (uint64, error) {
	if err := t.begin(); err != nil {
		return 0, err
	}
	r := t.keep(runID)
	r.epoch++
	t.made[runID] = r.epoch
	t.claims = append(t.claims, claim{runID, r.epoch, time.Now()})
	return r.epoch, nil
}

// serverTx takes the statements that the queue has for a server, and runs them on SQLite.
type serverTx struct{ *tx }

func (t serverTx) FenceAll(runIDs []string) (map[string]uint64, error) {
	epochs := make(map[string]uint64, len(runIDs))
	for _, id := range runIDs {
		var err error
		if epochs[id], err = t.Fence(id); err != nil {
			return nil, err
		}
	}
	return epochs, nil
}

func (t serverTx) Exec(sql string, args ...any) (int64, error) {
	if strings.HasPrefix(sql, "SET LOCAL lock_timeout") {
		return 0, nil
	}
	sql, args = translate(sql, args)
	return t.tx.Exec(sql, args...)
}

func (t serverTx) Query(sql string, args []any, row func(eventlog.Row) error) error {
	if strings.HasPrefix(sql, "WITH state AS") {
		return t.takeState(sql, row)
	}
	if _, inner, ok := strings.Cut(sql, "LATERAL ("); ok { // once for each row of the arrays
		inner, _, _ = strings.Cut(inner, "FOR UPDATE")
		inner = strings.NewReplacer("v.tenant", "$1", "v.n", "$2 + 0").Replace(inner)
		for i, name := range args[0].([]string) {
			if err := t.tx.Query(inner, []any{name, args[1].([]int64)[i]}, row); err != nil {
				return err
			}
		}
		return nil
	}
	sql, args = translate(sql, args)
	return t.tx.Query(sql, args, row)
}

// takeState locks the row of queue_state until the end of the transaction, unless another one has it, and
// takes the rows of queue_change. The transaction works while it has the lock and before anything is read.
func (t serverTx) takeState(sql string, row func(eventlog.Row) error) error {
	if t.begun {
		return errors.New("simtest: queue_state is locked after another statement")
	}
	select {
	case t.db.state <- struct{}{}:
		t.locked = true
	default:
		return nil // no row
	}
	time.Sleep(t.h.injected().work)
	at := strings.Index(sql, "SELECT '', virtual")
	sql = strings.NewReplacer("FROM state", "FROM queue_state WHERE id = 1", "FROM gone", "FROM queue_change").Replace(sql[at:])
	if err := t.tx.Query(sql, nil, row); err != nil {
		return err
	}
	_, err := t.tx.Exec("DELETE FROM queue_change")
	return err
}

var unnest = regexp.MustCompile(`unnest\([^)]*\)(?: AS v(?:\(([^)]*)\))?)?`)

// translate makes a statement of PostgreSQL, whose arguments may be arrays, one of SQLite's.
func translate(sql string, args []any) (string, []any) {
	sql = strings.NewReplacer(" FOR UPDATE SKIP LOCKED", "", " FOR UPDATE", "").Replace(sql)
	if len(args) == 0 || reflect.TypeOf(args[0]).Kind() != reflect.Slice || reflect.TypeOf(args[0]) == reflect.TypeFor[[]byte]() {
		return sql, args
	}
	var flat []any
	var tuples []string
	for i := range reflect.ValueOf(args[0]).Len() {
		places := make([]string, len(args))
		for c, array := range args {
			flat = append(flat, reflect.ValueOf(array).Index(i).Interface())
			places[c] = fmt.Sprint("$", len(flat))
		}
		tuples = append(tuples, "("+strings.Join(places, ", ")+")")
	}
	rows := strings.Join(tuples, ", ")
	if before, after, ok := strings.Cut(sql, " USING "); ok { // DELETE of the rows that a join finds
		from, after, _ := strings.Cut(after, "WHERE")
		where, returning, _ := strings.Cut(after, "RETURNING queue_job.")
		sql = before + " WHERE rowid IN (SELECT queue_job.rowid FROM " + from + ", queue_job WHERE " + where + ") RETURNING " + returning
	}
	sql = strings.ReplaceAll(sql, "= ANY ($1)", "IN ("+strings.NewReplacer("(", "", ")", "").Replace(rows)+")")
	sql = unnest.ReplaceAllStringFunc(sql, func(call string) string {
		names := strings.Split(unnest.FindStringSubmatch(call)[1], ", ")
		columns := make([]string, len(args))
		for i := range args {
			columns[i] = fmt.Sprint("column", i+1)
			if names[0] != "" {
				columns[i] += " AS " + names[i]
			}
		}
		return "(SELECT " + strings.Join(columns, ", ") + " FROM (VALUES " + rows + ")) AS v"
	})
	if strings.HasPrefix(sql, "INSERT") {
		sql = strings.Replace(sql, "ON CONFLICT", "WHERE true ON CONFLICT", 1)
	}
	return sql, flat
}
