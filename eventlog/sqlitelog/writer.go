package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog/internal/pending"
)

// writer commits what has queued up, for as long as there is something.
type writer struct {
	conn *conn

	begin, commit, rollback, layout, version *stmt
	insertEvent, insertRun, updateRun        *stmt
	insertModule, insertPiece, look          *stmt
	savepoint, release, undo                 *stmt

	reader  reader   // on the same connection, with the statements of the host's transactions
	touched []*run   // whose rows are behind their events
	careful bool     // each function of the host has a savepoint
	seen    int64    // data_version, which changes when another connection has committed
	newest  position // of the last event that was written
}

// The statements that write. insertRunSQL takes the run's id, the epoch that it must
// be in, the values of summaryValues and the id once more. A row of a run that is in
// another epoch has no start, which the table refuses: if the row came from a SELECT,
// SQLite would keep copies of the pages that it changes in case a later row failed.
// updateRunSQL takes the values without the start, the row's number, the last event
// that it must stand at, the id and the epoch, and changes nothing where they differ.
const (
	insertEventSQL = "INSERT INTO eventlog_events (run_id, seq, prev_hash, ts, kind, payload) VALUES (?, ?, ?, ?, ?, ?)"
	insertRunSQL   = `INSERT INTO run (started, last_seq, head, terminal, turns, tools, input_tokens, output_tokens, cost_usd, duration_ms, run_id)
	VALUES (iif(` + inEpochSQL + `, ?, NULL), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateRunSQL = `UPDATE run SET last_seq = ?, head = ?, terminal = ?, turns = ?, tools = ?, input_tokens = ?, output_tokens = ?, cost_usd = ?, duration_ms = ?
	WHERE run_no = ? AND last_seq = ? AND ` + inEpochSQL
)

// prepare makes the connection ready to write.
func (w *writer) prepare(ctx context.Context, synchronous string) error {
	w.reader.conn = w.conn
	if err := w.conn.execAll(ctx, writing(synchronous)); err != nil {
		return err
	}
	mode, err := w.conn.value(ctx, "PRAGMA journal_mode")
	if err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("sqlitelog: asked for write-ahead logging, got journal mode %v", mode)
	}
	for _, p := range w.prepared() {
		s, err := w.conn.prepare(ctx, p.sql)
		if err != nil {
			return err
		}
		*p.to = s
	}
	return nil
}

// prepared are the writer's statements, from prepare to close.
func (w *writer) prepared() []prepared {
	return []prepared{
		{&w.begin, "BEGIN IMMEDIATE"},
		{&w.commit, "COMMIT"},
		{&w.rollback, "ROLLBACK"},
		{&w.layout, "PRAGMA user_version"},
		{&w.version, "PRAGMA data_version"},
		{&w.insertEvent, insertEventSQL},
		{&w.insertRun, insertRunSQL},
		{&w.updateRun, updateRunSQL},
		{&w.insertModule, "INSERT INTO module (digest, wasm) VALUES (?, ?) ON CONFLICT DO NOTHING"},
		{&w.insertPiece, "INSERT INTO module_piece (digest, n, bytes) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"},
		{&w.look, lookSQL},
		{&w.savepoint, "SAVEPOINT host"},
		{&w.release, "RELEASE host"},
		{&w.undo, "ROLLBACK TO host"},
	}
}

// prepared is a statement, and where it is kept.
type prepared struct {
	to  **stmt
	sql string
}

func (w *writer) close() error {
	w.reader.stmts.close()
	for _, p := range w.prepared() {
		if *p.to != nil {
			(*p.to).Close()
		}
	}
	return w.conn.Close()
}

// startWriter begins to write to a file of our layout. The caller holds the lock.
func (l *Log) startWriter(ctx context.Context) error {
	if err := complete(ctx, l.writer.conn); err != nil {
		return err
	}
	if err := l.writer.prepare(ctx, l.opts.Synchronous); err != nil {
		return err
	}
	l.checkpointer = newCheckpointer()
	l.running.Store(true)
	go l.checkpoints()
	go l.write()
	return nil
}

// write is the writer's goroutine. It ends with the log, or with the first
// transaction that fails.
func (l *Log) write() {
	defer close(l.stopped)
	batch := make([]item, 0, pending.MaxBatch)
	for {
		if batch = l.queue.Take(batch); len(batch) == 0 {
			return
		}
		began := time.Now()
		conflicts, err := l.commit(batch)
		if err != nil {
			l.stop(err, batch)
			return
		}
		l.acknowledge(batch, conflicts)
		if err := l.tend(batch); err != nil {
			l.stop(err, nil)
			return
		}
		if len(batch) > 1 {
			l.queue.Gather(len(batch), pending.GatherTime(time.Since(began)))
		}
	}
}

// conflicts has the error of each run that another writer continued first.
type conflicts map[*run]error

// commit writes the batch in one transaction, without the runs that turn out
// to conflict. Where the file has gone from its path in the meantime, COMMIT succeeds
// and nobody finds what it has stored, so the path is looked at afterwards.
//
// If the process dies before COMMIT has returned, the batch is in the file as a
// whole or not at all, and nobody was told that it is.
func (l *Log) commit(batch []item) (conflicts, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
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
			l.lookedAround(l.writer.seen != seen)
			l.compared.wrote(newest, l.writer.newest, l.writer.seen != seen)
		}
		if unlockErr := l.lock.Unlock(); err == nil {
			err = unlockErr
		}
		return bad, err
	}
}

// try makes one attempt. When it meets a conflict, it adds the run to bad; when a
// function failed that cannot be undone alone, the next attempt is careful. Either
// way it leaves the file as it was, to be tried again.
func (w *writer) try(batch []item, bad conflicts) (again bool, err error) {
	newest := w.newest
	defer func() {
		if again || err != nil {
			w.newest = newest
		}
	}()
	if _, _, err := w.begin.exec(); err != nil {
		return false, fmt.Errorf("sqlitelog: begin: %w", err)
	}
	if err := w.apply(batch, bad); err != nil {
		_, _, rollbackErr := w.rollback.exec()
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
	if _, _, err := w.commit.exec(); err != nil {
		w.rollback.exec()
		return false, fmt.Errorf("sqlitelog: commit: %w", err)
	}
	return false, nil
}
