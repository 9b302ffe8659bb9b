package dblog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Log has those methods of a log that are the same in every database. A log embeds it.
type Log struct {
	x    *Backend
	self eventlog.Database
}

// NewLog returns the methods of a log that does the rest itself.
func NewLog(b *Backend, self eventlog.Database) Log { return Log{b, self} }

// Append implements [eventlog.EventLog]. It checks the event in memory and queues it;
// only the first event that this process appends to a run looks into the database, to
// find where the run stands.
func (l *Log) Append(ctx context.Context, runID string, ev event.Event) error {
	return l.x.Runs.Append(ctx, runID, 0, ev)
}

// Import implements [eventlog.Store].
func (l *Log) Import(ctx context.Context, ev event.Event) error { return l.x.Runs.Import(ctx, ev) }

// Sync implements [eventlog.EventLog]. For a run without pending events it costs
// only a look into a map.
func (l *Log) Sync(ctx context.Context, runID string) error { return l.x.Runs.Sync(ctx, runID, 0) }

// Read implements [eventlog.EventLog].
func (l *Log) Read(ctx context.Context, runID string) ([]event.Event, error) {
	return tail.Collect(l.Events(ctx, runID, 0))
}

// Events implements [eventlog.EventLog]. It holds nothing of the database while the
// caller works, so a caller may take its time.
func (l *Log) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return l.x.Runs.Events(ctx, runID, after, l.x.Page)
}

// Run implements [eventlog.EventLog]. A summary that the log computes and does not keep
// has no head.
func (l *Log) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	if err := l.x.Runs.Settle(ctx, runID); err != nil {
		return eventlog.RunSummary{}, err
	}
	var at pending.Position
	indexed, err := true, error(nil)
	if l.x.holds(runID) {
		at, indexed, err = l.x.Look(ctx, runID)
	}
	s := at.Run()
	if err == nil && s.RunID == "" {
		err = fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
	}
	if !indexed {
		s.Head = canon.Hash{}
	}
	return s, err
}

// ListRuns implements [eventlog.EventLog].
func (l *Log) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	behind, err := l.x.Behind(ctx, ForAll)
	if err != nil {
		return nil, err
	}
	return l.x.all(ctx, behind)
}

// ListRunsPage implements [eventlog.EventLog].
func (l *Log) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (page eventlog.RunPage, err error) {
	if err := o.Valid(); err != nil {
		return page, err
	}
	o = o.Normal()
	page = eventlog.RunPage{Limit: o.Limit, Offset: o.Offset}
	if !l.x.holds(o.Query) || !l.x.holds(o.Namespace) {
		return page, nil
	}
	behind, err := l.x.Behind(ctx, ForPage)
	if err != nil {
		return page, err
	}
	if len(behind) == 0 && l.x.Indexed() {
		var malformed []string
		var unnamed error
		count, list := l.x.PageOf(o)
		err = l.x.Read(ctx, func(q eventlog.Querier) error {
			if page.TotalMatching, err = One[int](q, count.SQL, count.Args...); err != nil {
				return err
			}
			page.Runs, malformed, unnamed, err = summaries(q, list)
			return err
		})
		if err = cmp.Or(err, unnamed); err != nil || len(malformed) == 0 {
			return page, err
		}
	}
	all, err := l.x.all(ctx, behind)
	if err != nil {
		return page, err
	}
	return o.Select(all)
}

// Recorded implements [eventlog.Database]. It reads the rows of the runs, and the events only of
// runs that are not counted or that have events on both sides of the time.
func (l *Log) Recorded(ctx context.Context, namespace string, since time.Time, each int64) (total, later int64, err error) {
	x := l.x
	c := x.Select(x.HasEvents).Namespace(namespace)
	start, startMs := c.arg(eventlog.Nanos(since)), c.arg(since.UnixMilli())
	perEvent := "CAST(" + c.arg(each) + " AS BIGINT)"
	counted, bytes := "counted = last_seq", "bytes + last_seq * "+perEvent
	if !x.Counts() {
		counted, bytes = "1 = 0", "0"
	}
	events := "(SELECT coalesce(sum(length(payload) + " + perEvent + "), 0)" + x.ofRow()
	sql := "SELECT CAST(coalesce(sum(CASE WHEN " + counted + " THEN " + bytes + " ELSE " + events + ") END), 0) AS BIGINT)," +
		" CAST(coalesce(sum(CASE WHEN started / 1000000 + duration_ms + 1 < " + startMs + " THEN 0" +
		" WHEN started >= " + start + " AND " + counted + " THEN " + bytes + " ELSE " + events + " AND ts >= " + start + ") END), 0) AS BIGINT)" +
		" FROM run" + c.Where()
	err = x.Read(ctx, func(q eventlog.Querier) error {
		return q.Query(sql, c.Args, func(r eventlog.Row) error { return r.Scan(&total, &later) })
	})
	return total, later, err
}

// Miscounted implements [eventlog.Database].
func (l *Log) Miscounted(ctx context.Context, runID string) ([]string, error) {
	return l.x.miscounted(ctx, runID)
}

// Fenced implements [eventlog.Store].
func (l *Log) Fenced(runID string, epoch uint64) eventlog.EventLog {
	runs := l.x.Runs
	return pending.Fenced(l.self, runID,
		func(ctx context.Context, ev event.Event) error { return runs.Append(ctx, runID, epoch, ev) },
		func(ctx context.Context) error { return runs.Sync(ctx, runID, epoch) })
}

// PutModule implements [eventlog.ModuleStore].
func (l *Log) PutModule(ctx context.Context, wasm []byte) (canon.Hash, error) {
	if len(wasm) > eventlog.MaxModuleBytes {
		return canon.Hash{}, fmt.Errorf("%s: module has %d bytes; at most %d are allowed", l.x.Name, len(wasm), eventlog.MaxModuleBytes)
	}
	digest := canon.Sum(wasm)
	if err := l.put(ctx, "store module "+digest.String(), "", []eventlog.Content{{Bytes: wasm}}, []canon.Hash{digest}); err != nil {
		return canon.Hash{}, err
	}
	l.x.found.Store(digest, nil)
	return digest, nil
}

// HasModule implements [eventlog.ModuleStore].
func (l *Log) HasModule(ctx context.Context, digest canon.Hash) (bool, error) {
	return l.x.hasModule(ctx, digest)
}

func (x *Backend) hasModule(ctx context.Context, digest canon.Hash) (found bool, err error) {
	if !x.Indexed() {
		return false, nil
	}
	found, err = Get(ctx, x.Read, func(q eventlog.Querier) (bool, error) {
		return One[bool](q, "SELECT count(*) FROM module WHERE digest = $1", digest[:])
	})
	switch {
	case found:
		x.found.Store(digest, nil)
	case err == nil:
		x.found.Delete(digest)
	}
	return found, err
}

// Module implements [eventlog.ModuleStore]. The pieces of a module never change once its
// row exists, so two statements see the same.
func (l *Log) Module(ctx context.Context, digest canon.Hash) (wasm []byte, err error) {
	found := false
	read := func(q eventlog.Querier) (err error) {
		wasm = nil
		const query = "SELECT CASE WHEN length(wasm) <= $1 THEN wasm END FROM module WHERE digest = $2"
		found, err = eventlog.QueryOne(q, query, []any{int64(eventlog.MaxModuleBytes), digest[:]}, &wasm)
		wasm = unpack(wasm, eventlog.MaxModuleBytes)
		if err != nil || !found || len(wasm) > 0 || !l.x.Pieces {
			return err
		}
		const pieces = "SELECT CASE WHEN length(bytes) <= $1 THEN bytes END FROM module_piece WHERE digest = $2 ORDER BY n LIMIT $3"
		args := []any{int64(PieceBytes), digest[:], int64(eventlog.MaxModuleBytes / PieceBytes)}
		parts, err := eventlog.QueryAll(q, pieces, args, func(row eventlog.Row) (part []byte, err error) {
			err = row.Scan(&part)
			return unpack(part, PieceBytes), err
		})
		wasm = bytes.Join(parts, nil)
		return err
	}
	if l.x.Indexed() {
		err = l.x.Read(ctx, read)
	}
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("%w: %v", eventlog.ErrModuleNotFound, digest)
	case canon.Sum(wasm) != digest:
		return nil, fmt.Errorf("%w: the module stored as %v has digest %v", eventlog.ErrLogCorrupt, digest, canon.Sum(wasm))
	}
	return wasm, nil
}
