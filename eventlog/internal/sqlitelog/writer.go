package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// writer commits the queue while there is something in it.
type writer struct {
	conn    *conn
	touched []*run   // whose rows are behind their events
	careful bool     // each function of the host has a savepoint
	seen    int64    // data_version, which changes when another connection has committed
	newest  position // of the last event that was written
}

// The statements that write. insertRunSQL takes the run's id, the epoch that it must
// be in, the values of dblog.Values, the id once more, and what is counted. A row of a run that is in
// another epoch has no start, which the table refuses: if the row came from a SELECT,
// SQLite would keep copies of the pages that it changes in case a later row failed.
// updateRunSQL takes the values without the start, what is counted more, the row's number, the
// last event that it must stand at, the id and the epoch, and changes nothing where they differ.
const (
	insertEventSQL = "INSERT INTO eventlog_events (run_id, seq, prev_hash, ts, kind, payload) VALUES (?, ?, ?, ?, ?, ?)"
	insertRunSQL   = `INSERT INTO run (started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms, run_id, bytes, counted)
	VALUES (iif(` + inEpochSQL + `, ?, NULL), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateRunSQL = `UPDATE run SET last_seq = ?, head = ?, terminal = ?, turns = ?, tools = ?, input_tokens = ?, output_tokens = ?, cost_usd = ?, duration_ms = ?,
	bytes = bytes + ?, counted = counted + ?
	WHERE run_no = ? AND last_seq = ? AND ` + inEpochSQL
)

// prepare makes the connection ready to write.
func (w *writer) prepare(ctx context.Context, synchronous string) error {
	if err := w.conn.execAll(ctx, writing(synchronous)); err != nil {
		return err
	}
	mode, err := dblog.One[string](querier{ctx, w.conn}, "PRAGMA journal_mode")
	if err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("sqlitelog: asked for write-ahead logging, got journal mode %v", mode)
	}
	return nil
}

// startWriter begins to write to a file of our layout. The caller holds the lock.
func (l *Log) startWriter(ctx context.Context) error {
	if err := requireUses(ctx, l.writer.conn); err != nil {
		return err
	}
	if err := l.writer.prepare(ctx, l.opts.Synchronous); err != nil {
		return err
	}
	l.running.Store(true)
	l.begin()
	return nil
}

// begin starts the goroutines that write.
func (l *Log) begin() {
	l.checkpointer = newCheckpointer()
	go l.checkpoints()
	go l.write()
}

// restart is [pending.Backend].Restart. A connection whose commit failed, and a lock whose
// wait was given up, are unusable, so everything that writes is opened again. First it checks
// that nothing prevents writing: the file is at its path, its lock is free, and the disk takes
// a page that changes nothing. If the process dies here, nothing was written.
func (l *Log) restart() (start func(), err error) {
	select {
	case <-l.stopped:
	default:
		return nil, errors.New("sqlitelog: the writer has not ended yet")
	}
	if err := l.inPlace(); err != nil {
		return nil, err
	}
	next := &Log{path: l.path}
	defer func() {
		if err != nil {
			err = errors.Join(err, next.abort())
		}
	}()
	if next.lock, err = openLock(l.path); err != nil {
		return nil, err
	}
	if err := next.lock.lockSoon(); err != nil {
		return nil, err
	}
	ctx := context.Background()
	if next.writer.conn, err = connect(ctx, l.path, "mode=rw"); err != nil {
		return nil, err
	}
	if err := next.writer.checkFile(); err != nil {
		return nil, err
	}
	if err := next.writer.prepare(ctx, l.opts.Synchronous); err != nil {
		return nil, err
	}
	if err := next.writer.conn.exec(ctx, fmt.Sprintf("PRAGMA user_version=%d", layoutVersion)); err != nil {
		return nil, err
	}
	if err := next.lock.Unlock(); err != nil {
		return nil, err
	}
	close(l.checkpointer.wake)
	<-l.checkpointer.ended
	_ = errors.Join(l.writer.conn.Close(), l.lock.Close()) // the last error of the old ones is known
	l.lock, l.writer, l.stopped = next.lock, next.writer, make(chan struct{})
	return l.begin, nil
}

// write is the writer's goroutine. It ends with the log, or with the first transaction that
// fails: how much of that one is on the disk is unknown.
func (l *Log) write() {
	defer close(l.stopped)
	batch := make([]item, 0, pending.MaxBatch)
	for {
		if batch = l.runs.Take(batch); len(batch) == 0 {
			return
		}
		began := time.Now()
		conflicts, err := l.commit(batch)
		if err != nil {
			l.runs.Stop(damaged(err), batch)
			return
		}
		l.runs.Acknowledge(batch, conflicts, &l.hub)
		if err := l.wakeCheckpointer(batch); err != nil {
			l.runs.Stop(damaged(err), nil)
			return
		}
		if len(batch) > 1 {
			l.runs.Gather(len(batch), pending.GatherTime(time.Since(began)))
		}
	}
}

// conflicts has the error of each run that another writer continued first.
type conflicts map[*run]error

// commit writes the batch in one transaction, without the runs that turn out to conflict. If the
// file is removed from its path in the meantime, COMMIT succeeds but no other process finds the
// result, so the path is checked afterwards.
//
// If the process dies before COMMIT has returned, the file has the whole batch or nothing, and no
// caller has seen it reported as durable.
func (l *Log) commit(batch []item) (conflicts, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if err := l.lock.Lock(ctx); err != nil {
		return nil, err
	}
	bad, seen, newest := make(conflicts), l.writer.seen, l.writer.newest
	l.writer.careful = false
	for {
		again, err := l.writer.try(batch, bad)
		if err == nil && again {
			continue // each round takes out at least one run, or is the first that is careful
		}
		if err == nil {
			err = l.inPlace()
			others := l.writer.seen != seen // have committed since its last transaction
			if others {
				l.hub.WakeAll()
			}
			l.poll.looked.Add(1)
			l.compared.wrote(newest, l.writer.newest, others)
		}
		if unlockErr := l.lock.Unlock(); err == nil {
			err = unlockErr
		}
		return bad, err
	}
}

// try makes one attempt. When it meets a conflict, it adds the run to bad; when a
// function failed that cannot be undone alone, the next attempt is careful. Either
// way it leaves the file unchanged, to be tried again.
func (w *writer) try(batch []item, bad conflicts) (again bool, err error) {
	newest := w.newest
	defer func() {
		if again || err != nil {
			w.newest = newest
		}
	}()
	if _, _, err := w.conn.run("BEGIN IMMEDIATE"); err != nil {
		return false, fmt.Errorf("sqlitelog: begin: %w", err)
	}
	if err := w.apply(batch, bad); err != nil {
		_, _, rollbackErr := w.conn.run("ROLLBACK")
		var lost *conflict
		switch {
		case errors.As(err, &lost):
			bad[lost.run] = lost.err
		case errors.Is(err, errMixed):
			w.careful = true
		default:
			return false, err
		}
		return true, rollbackErr
	}
	if _, _, err := w.conn.run("COMMIT"); err != nil {
		w.conn.run("ROLLBACK")
		return false, fmt.Errorf("sqlitelog: commit: %w", err)
	}
	return false, nil
}

// conflict is a run that another writer has taken over.
type conflict struct {
	run *run
	err error
}

func (c *conflict) Error() string { return c.err.Error() }

// apply writes the batch inside the open transaction: the events in the order
// of their appends, then one row for each run. A [*conflict] names the run
// that has to be left out.
func (w *writer) apply(batch []item, bad conflicts) error {
	if err := w.checkFile(); err != nil {
		return err
	}
	defer w.forgetTouched()
	for _, it := range batch {
		if err := w.applyItem(it, bad); err != nil {
			return err
		}
	}
	return w.storeRuns()
}

func (w *writer) applyItem(it item, bad conflicts) error {
	if it.Task != nil {
		if err := w.storeRuns(); err != nil { // so that the file is consistent for it
			return err
		}
		return it.Task.Do()
	}
	r := it.Run
	if bad[r] != nil {
		return nil
	}
	if r.Writer.first == 0 {
		r.Writer.first, r.Writer.bytes, r.Writer.uses = it.Event.Seq, 0, nil
		w.touched = append(w.touched, r)
	}
	if it.Row != 0 {
		r.Writer.no = it.Row
	}
	r.Writer.after = it.After
	r.Writer.bytes += len(it.Event.Payload)
	r.Writer.uses = append(r.Writer.uses, it.Uses...)
	err := w.storeEvent(it.Event)
	if isConflict(err) {
		err = w.conflictReason(r.ID, r.Epoch)
	}
	return lost(r, err)
}

// lost turns the error of one run, which is left out of the batch, into a
// [*conflict].
func lost(r *run, err error) error {
	if errors.Is(err, eventlog.ErrInvalidAppend) {
		return &conflict{r, err}
	}
	return err
}

// checkFile notices, inside the transaction, that a newer program has migrated the
// file since it was opened, and whether another connection has committed since the last one.
func (w *writer) checkFile() error {
	layout, err := w.conn.integer(context.Background(), "PRAGMA user_version")
	if err != nil {
		return err
	}
	if err := eventlog.CheckSchema(int(layout), layoutVersion); err != nil {
		return err
	}
	w.seen, err = w.conn.integer(context.Background(), "PRAGMA data_version")
	return err
}

func (w *writer) storeEvent(e event.Event) error {
	_, pos, err := w.conn.run(insertEventSQL, eventValues(e)...)
	if err != nil && !isConflict(err) {
		return fmt.Errorf("sqlitelog: store event %d of run %q: %w", e.Seq, e.RunID, err)
	}
	if err == nil {
		w.newest = position{pos, e.RunID, int64(e.Seq)}
	}
	return err
}

// eventValues are the columns of an event, without pos.
func eventValues(e event.Event) []any {
	var prev any
	if len(e.PrevHash) > 0 {
		prev = e.PrevHash
	}
	return []any{e.RunID, int64(e.Seq), prev, e.Timestamp, int64(e.Kind), []byte(e.Payload)}
}

// storeRuns brings the rows of the runs that were touched to where their events
// are.
func (w *writer) storeRuns() error {
	for _, r := range w.touched {
		if err := w.storeRun(r); err != nil {
			return err
		}
	}
	w.forgetTouched()
	return nil
}

func (w *writer) forgetTouched() {
	for _, r := range w.touched {
		r.Writer.first = 0
	}
	w.touched = w.touched[:0]
}

// storeRun checks whether the row is where this process left it, and whether
// the run is still its own.
func (w *writer) storeRun(r *run) (err error) {
	at := &r.Writer
	if at.first == 1 {
		at.no, err = w.createRow(at.after, at.bytes, r.Epoch)
	} else {
		err = w.updateRow(at.no, at.first-1, at.after, at.bytes, r.Epoch)
	}
	if err == nil {
		err = eventlog.UseModules(querier{context.Background(), w.conn}, r.ID, at.uses...)
	}
	if errors.Is(err, eventlog.ErrModuleNotFound) {
		err = pending.ModuleLost(r.ID)
	}
	return lost(r, err)
}

// createRow stores the row of a run that has begun, under the epoch, with the bytes of its payloads.
func (w *writer) createRow(s eventlog.RunSummary, bytes int, epoch uint64) (no int64, err error) {
	_, no, err = w.conn.run(insertRunSQL, rowValues(s, bytes, epoch)...)
	switch {
	case isConflict(err):
		return 0, pending.Continued(s.RunID)
	case codeOf(err) == sqlite3.SQLITE_CONSTRAINT_NOTNULL: // of the start, see insertRunSQL
		return 0, w.conflictReason(s.RunID, epoch)
	}
	return no, err
}

// rowValues are the parameters of insertRunSQL.
func rowValues(s eventlog.RunSummary, bytes int, epoch uint64) []any {
	return append(append([]any{s.RunID, int64(epoch)}, dblog.Values(s)...), s.RunID, int64(bytes), int64(s.LastSeq))
}

// updateRow moves the row from the event it must be at to s, under the epoch, and counts the bytes of
// the payloads in between.
func (w *writer) updateRow(no int64, from uint64, s eventlog.RunSummary, bytes int, epoch uint64) error {
	changed, _, err := w.conn.run(updateRunSQL,
		append(dblog.Values(s)[1:], int64(bytes), int64(s.LastSeq-from), no, int64(from), s.RunID, int64(epoch))...)
	if err == nil && changed == 0 {
		return w.conflictReason(s.RunID, epoch)
	}
	return err
}

// conflictReason explains why a run could not be written on.
func (w *writer) conflictReason(runID string, epoch uint64) error {
	last, err := w.conn.epoch(context.Background(), epochSQL, runID)
	switch {
	case err != nil:
		return err
	case last != epoch:
		return pending.StaleEpoch(runID, epoch, last)
	}
	return pending.Continued(runID)
}

// perform hands a task to the writer and waits until it is durable, or until ctx ends;
// then the task stays queued. So do must not write to what its caller reads: what it finds is
// its result, of its last attempt.
func perform[T any](ctx context.Context, l *Log, bytes int, do func(w *writer) (T, error)) (none T, err error) {
	var found T // the writer's, until done has the error
	done := make(chan error, 1)
	task := pending.Task{Bytes: bytes, Done: func(err error) { done <- err }, Do: func() (err error) {
		found, err = do(&l.writer)
		return err
	}}
	if err := l.runs.Put(ctx, item{Task: &task}); err != nil {
		return none, err
	}
	select {
	case err := <-done:
		return found, err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}
