package sqlitelog

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// apply writes the batch inside the transaction that has begun: the events in
// the order in which they were taken, then one row for each run. It returns
// the run that met a conflict, if any.
func (w *writer) apply(batch []item, bad conflicts) (culprit *run, err error) {
	if err := w.checkLayout(); err != nil {
		return nil, err
	}
	var touched []*run
	defer func() {
		for _, r := range touched {
			r.first = 0
		}
	}()
	for _, it := range batch {
		switch r := it.run; {
		case it.pruning != nil:
			err = w.prune(it.pruning)
		case r == nil:
			err = w.storeModule(it.module)
		case r.failed != nil || bad[r] != nil:
			continue
		default:
			if r.first == 0 {
				r.first = it.event.Seq
				touched = append(touched, r)
			}
			r.after = it.after
			if err = w.storeEvent(it); isConflict(err) {
				return r, nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
	for _, r := range touched {
		if ok, err := w.storeRun(r); err != nil || !ok {
			return r, err
		}
	}
	return nil, nil
}

// checkLayout notices, inside the transaction, that a newer program has
// migrated the file since it was opened.
func (w *writer) checkLayout() error {
	return w.version.query(context.Background(), nil, func(row []driver.Value) error {
		if v, ok := row[0].(int64); ok {
			return eventlog.CheckSchema(int(v), layoutVersion)
		}
		return fmt.Errorf("sqlitelog: user_version is %v", row[0])
	})
}

func (w *writer) storeEvent(it item) error {
	e := it.event
	_, _, err := w.insertEvent.exec(eventValues(e)...)
	if err != nil && !isConflict(err) {
		return fmt.Errorf("sqlitelog: store event %d of run %q: %w", e.Seq, e.RunID, err)
	}
	return err
}

// eventValues are the columns of an event, without pos.
func eventValues(e event.Event) []driver.Value {
	var prev driver.Value
	if len(e.PrevHash) > 0 {
		prev = e.PrevHash
	}
	return []driver.Value{e.RunID, int64(e.Seq), prev, e.Timestamp, int64(e.Kind), []byte(e.Payload)}
}

// storeRun brings the run's row to where its events are. It reports false when
// the row is not where this process left it.
func (w *writer) storeRun(r *run) (bool, error) {
	vals := append(summaryValues(r.after), r.id)
	if r.first == 1 {
		_, no, err := w.insertRun.exec(vals...)
		if isConflict(err) {
			return false, nil
		}
		r.no = no
		return true, err
	}
	changed, _, err := w.updateRun.exec(append(vals[:len(vals)-1], r.no, int64(r.first-1))...)
	return changed == 1, err
}

// summaryValues are the columns of the table run from started to duration_ms.
func summaryValues(s eventlog.RunSummary) []driver.Value {
	return []driver.Value{s.StartedAt.UnixNano(), int64(s.LastSeq), s.Head[:], int64(s.TerminalKind),
		int64(s.TurnCount), int64(s.ToolCallCount), s.InputTokens, s.OutputTokens, s.CostUSD, s.DurationMs}
}

func (w *writer) storeModule(m *module) error {
	if _, _, err := w.insertModule.exec(m.digest[:], m.wasm); err != nil {
		return fmt.Errorf("sqlitelog: store module %v: %w", m.digest, err)
	}
	return nil
}

// acknowledge answers the barriers of a batch that is durable, and wakes who
// follows its runs. The runs that conflicted are given up.
func (l *Log) acknowledge(batch []item, bad conflicts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range batch {
		r := it.run
		switch {
		case r == nil:
			it.done() <- nil
		case r.failed != nil:
		case bad[r] != nil:
			r.failed = bad[r]
			r.answer(r.queued, r.failed)
		default:
			r.durable = it.event.Seq
			r.answer(r.durable, nil)
			l.hub.Wake(r.id)
			if r.ended {
				l.forget(r)
			}
		}
	}
}

// answer tells the barriers up to event seq. The caller holds Log.mu.
func (r *run) answer(seq uint64, err error) {
	n := 0
	for n < len(r.waiters) && r.waiters[n].seq <= seq {
		r.waiters[n].done <- err
		n++
	}
	r.waiters = append(r.waiters[:0], r.waiters[n:]...)
}

// stop ends the log with the failure of a transaction. What the disk holds of
// that transaction is unknown, and after a sync that failed the kernel may
// report the next one as good although the data is lost, so nothing is tried
// again: every barrier and every later call gets the failure.
func (l *Log) stop(cause error, batch []item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = fmt.Errorf("%w: %w", eventlog.ErrLogStopped, cause)
	for _, r := range l.runs {
		r.answer(r.queued, l.failed)
	}
	for _, it := range append(batch, l.queue...) {
		if done := it.done(); done != nil {
			done <- l.failed
		}
	}
	l.queue, l.bytes = nil, 0
	close(l.room)
	l.room = make(chan struct{})
}
