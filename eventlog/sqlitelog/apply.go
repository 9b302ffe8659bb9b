package sqlitelog

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// conflict is a run of which another writer has taken the place.
type conflict struct {
	run *run
	err error
}

func (c *conflict) Error() string { return c.err.Error() }

// apply writes the batch inside the transaction that has begun: the events in
// the order in which they were taken, then one row for each run. A [*conflict]
// names the run that has to be left out.
func (w *writer) apply(batch []item, bad conflicts) error {
	if err := w.lookAround(); err != nil {
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
		return it.Task.(task).do(w)
	}
	r := it.Run
	if bad[r] != nil {
		return nil
	}
	if r.Writer.first == 0 {
		r.Writer.first = it.Event.Seq
		w.touched = append(w.touched, r)
	}
	if it.Row != 0 {
		r.Writer.no = it.Row
	}
	r.Writer.after = it.After
	err := w.storeEvent(it.Event)
	if isConflict(err) {
		err = w.whyNot(r.ID, r.Epoch)
	}
	return lost(r, err)
}

// lost turns the error of one run, which the batch goes on without, into a
// [*conflict].
func lost(r *run, err error) error {
	if errors.Is(err, eventlog.ErrInvalidAppend) {
		return &conflict{r, err}
	}
	return err
}

// lookAround notices, inside the transaction, that a newer program has migrated the
// file since it was opened, and whether anybody else has committed since the last one.
func (w *writer) lookAround() error {
	layout, err := w.layout.queryInt()
	if err != nil {
		return err
	}
	if err := eventlog.CheckSchema(int(layout), layoutVersion); err != nil {
		return err
	}
	w.seen, err = w.version.queryInt()
	return err
}

func (w *writer) storeEvent(e event.Event) error {
	_, pos, err := w.insertEvent.exec(eventValues(e)...)
	if err != nil && !isConflict(err) {
		return fmt.Errorf("sqlitelog: store event %d of run %q: %w", e.Seq, e.RunID, err)
	}
	if err == nil {
		w.newest = position{pos, e.RunID, int64(e.Seq)}
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

// storeRun finds out whether the row is where this process left it, and whether
// the run is still its own.
func (w *writer) storeRun(r *run) (err error) {
	at := &r.Writer
	if at.first == 1 {
		at.no, err = w.createRow(at.after, r.Epoch)
	} else {
		err = w.updateRow(at.no, at.first-1, at.after, r.Epoch)
	}
	return lost(r, err)
}

// createRow stores the row of a run that has begun, under the epoch.
func (w *writer) createRow(s eventlog.RunSummary, epoch uint64) (no int64, err error) {
	_, no, err = w.insertRun.exec(rowValues(s, epoch)...)
	switch {
	case isConflict(err):
		return 0, pending.Continued(s.RunID)
	case isNull(err):
		return 0, w.whyNot(s.RunID, epoch)
	}
	return no, err
}

// updateRow brings the row from the event it must stand at to s, under the epoch.
func (w *writer) updateRow(no int64, from uint64, s eventlog.RunSummary, epoch uint64) error {
	changed, _, err := w.updateRun.exec(append(summaryValues(s)[1:], no, int64(from), s.RunID, int64(epoch))...)
	if err == nil && changed == 0 {
		return w.whyNot(s.RunID, epoch)
	}
	return err
}

// whyNot explains why a run could not be written on.
func (w *writer) whyNot(runID string, epoch uint64) error {
	last, err := w.epoch(runID)
	switch {
	case err != nil:
		return err
	case last != epoch:
		return pending.StaleEpoch(runID, epoch, last)
	}
	return pending.Continued(runID)
}

// summaryValues are the columns of the table run from started to duration_ms.
func summaryValues(s eventlog.RunSummary) []driver.Value {
	return []driver.Value{s.StartedAt.UnixNano(), int64(s.LastSeq), s.Head[:], int64(s.TerminalKind),
		int64(s.TurnCount), int64(s.ToolCallCount), s.InputTokens, s.OutputTokens, s.CostUSD, s.DurationMs}
}

// rowValues are what insertRunSQL takes.
func rowValues(s eventlog.RunSummary, epoch uint64) []driver.Value {
	values := append([]driver.Value{s.RunID, int64(epoch)}, summaryValues(s)...)
	return append(values, s.RunID)
}

// acknowledge answers who waits for a batch that is durable, and hands its events to
// who follows their runs. The runs that conflicted are given up.
func (l *Log) acknowledge(batch []item, bad conflicts) {
	l.runs.Lock()
	defer l.runs.Unlock()
	for _, it := range batch {
		r := it.Run
		switch {
		case it.Task != nil:
			it.Task.(task).finish(l, nil)
		case bad[r] != nil:
			r.GiveUp(bad[r])
		default:
			l.runs.Durable(r, it.Event.Seq)
			l.hub.Hand(it.Event)
		}
	}
}

// stop ends the log with the failure of a transaction. What the disk holds of
// that transaction is unknown, and after a sync that failed the kernel may
// report the next one as good although the data is lost, so nothing is tried
// again: every barrier and every later call gets the failure.
func (l *Log) stop(cause error, batch []item) {
	left := l.runs.Stop(cause)
	err := l.runs.Failure()
	l.runs.Lock()
	defer l.runs.Unlock()
	for _, it := range append(batch, left...) {
		if it.Task != nil {
			it.Task.(task).finish(l, err)
		}
	}
}
