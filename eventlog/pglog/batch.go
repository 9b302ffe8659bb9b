package pglog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// batch is what is written in one transaction: some events of some runs.
type batch struct {
	items   []item // as they were taken; they belong to the lane
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
			if stored, err = isStored(ctx, conn, r.ID, b.columns.rows[i].stands); err != nil {
				return nil, err
			}
		}
		if stored {
			continue
		}
		at, _, err := find(ctx, conn, r.ID)
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

// queryer is a connection or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// isStored reports whether the database holds the last event of the run as it is to stand.
func isStored(ctx context.Context, q queryer, runID string, at eventlog.RunSummary) (bool, error) {
	evs, err := page(ctx, q, runID, at.LastSeq-1, 1)
	if err != nil || len(evs) == 0 || evs[0].Seq != at.LastSeq {
		return false, err
	}
	return evs[0].Hash() == at.Head, nil
}
