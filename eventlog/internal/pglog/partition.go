package pglog

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
)

// Partition is a part of the table of events: those of the runs whose ids have a ULID from FromULID on and
// before ToULID, see [eventlog.PruneOptions]. FromULID is empty for the first partition. One more
// partition, eventlog_events_other, has the events of all other runs: of months without a partition, and of
// ids that are no ULIDs.
type Partition struct{ Name, FromULID, ToULID string }

var (
	//go:embed schema/divide.sql
	divideTable string
	//go:embed schema/month.sql
	makeMonth string
)

// ErrNotPartitioned means that all events are in one table.
var ErrNotPartitioned = errors.New("pglog: the events are not divided into partitions")

// Partitions returns the partitions, the oldest first.
func (l *Log) Partitions(ctx context.Context) ([]Partition, error) {
	return dblog.Get(ctx, l.read, partitions)
}

func partitions(q eventlog.Querier) ([]Partition, error) {
	const sql = `SELECT quote_ident(relname), coalesce(substring(bound FROM 'FROM \(''(\w+)''\)'), ''), coalesce(substring(bound FROM 'TO \(''(\w+)''\)'), '')
		FROM (SELECT relname, pg_get_expr(relpartbound, oid) AS bound FROM pg_class JOIN pg_inherits ON inhrelid = oid WHERE inhparent = 'eventlog_events'::regclass) AS part`
	all, err := eventlog.QueryAll(q, sql, nil, func(r eventlog.Row) (p Partition, err error) {
		err = r.Scan(&p.Name, &p.FromULID, &p.ToULID)
		return p, err
	})
	if err == nil && len(all) == 0 {
		err = ErrNotPartitioned
	}
	slices.SortFunc(all, func(a, b Partition) int { return cmp.Compare(a.ToULID, b.ToULID) })
	return slices.DeleteFunc(all, func(p Partition) bool { return p.ToULID == "" }), err
}

// missingPartitions returns the partitions to make for this month and some months after it. The first one of a table
// without partitions has everything up to the end of this month.
func missingPartitions(q eventlog.Querier, now time.Time, ahead int) (missing []Partition, err error) {
	have, err := partitions(q)
	month := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	last := month.AddDate(0, ahead, 0)
	if errors.Is(err, ErrNotPartitioned) {
		month = month.AddDate(0, 1, 0)
		missing, err = []Partition{{month.Format("eventlog_events_until_2006_01"), "", event.IDPrefix(month)}}, nil
	}
	for ; !month.After(last); month = month.AddDate(0, 1, 0) {
		p := Partition{month.Format("eventlog_events_2006_01"), event.IDPrefix(month), event.IDPrefix(month.AddDate(0, 1, 0))}
		if !slices.ContainsFunc(have, func(o Partition) bool { return o.FromULID < p.ToULID && p.FromULID < o.ToULID }) {
			missing = append(missing, p)
		}
	}
	return missing, err
}

// MakePartitions makes the partitions that are missing for this month and some months after it, and returns
// them. The first time it divides the table. The role must own the tables.
func (l *Log) MakePartitions(ctx context.Context, now time.Time, ahead int, dryRun bool) (made []Partition, err error) {
	plan := func(q eventlog.Querier) error {
		made, err = missingPartitions(q, now, ahead)
		return err
	}
	if err = l.read(ctx, plan); err != nil || dryRun || len(made) == 0 {
		return made, err
	}
	err = l.alter(ctx, func(q querier) error {
		err := plan(q) // another host may have made them
		for _, p := range made {
			sql := makeMonth
			if p.FromULID == "" {
				sql = divideTable
			}
			if err == nil {
				_, err = q.Exec(strings.NewReplacer(":partition", p.Name, ":from", p.FromULID, ":to", p.ToULID).Replace(sql))
			}
		}
		return err
	})
	return made, err
}

const becomeOwner = `SELECT set_config('role', pg_get_userbyid(relowner), true), set_config('lock_timeout', '5s', true),
	set_config('enable_seqscan', 'on', true) FROM pg_class WHERE oid = 'eventlog_events'::regclass`

// alter changes the tables as their owner. It does not wait long behind a long reader, because all others
// would wait behind it.
func (l *Log) alter(ctx context.Context, fn func(querier) error) error {
	if err := l.runs.Writable(); err != nil {
		return err
	}
	return l.change(ctx, func(tx pgx.Tx) error {
		err := mustOwn(ctx, tx, "eventlog_events")
		if err == nil {
			_, err = tx.Exec(ctx, becomeOwner)
		}
		if err == nil {
			err = lockTables(ctx, tx)
		}
		if err != nil {
			return fmt.Errorf("pglog: partitions: %w", err)
		}
		return fn(querier{ctx, tx})
	})
}

// MayDrop returns why the role cannot make and drop partitions, or nil.
func (l *Log) MayDrop(ctx context.Context) error {
	_, err := l.Partitions(ctx)
	return cmp.Or(err, mustOwn(ctx, l.pool, "eventlog_events"))
}

// Extent returns how many runs a partition has, and how many events. A run that has not ended is an error, and so is
// one whose id is no ULID: it may sort among those of a month in which it did not begin.
func (l *Log) Extent(ctx context.Context, p Partition) (eventlog.PruneReport, error) {
	return dblog.Get(ctx, l.read, func(q eventlog.Querier) (eventlog.PruneReport, error) { return extent(q, p, nil) })
}

// extent is Extent. If archived is not nil, a run that is not in it with the hash of its last event is an
// error, too.
func extent(q eventlog.Querier, p Partition, archived map[string]canon.Hash) (report eventlog.PruneReport, err error) {
	const sql = `SELECT run_id, last_seq, head, terminal, CASE WHEN right(run_id, 26) ~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$' THEN 1 ELSE 0 END
		FROM run WHERE right(run_id, 26) >= $1 AND right(run_id, 26) < $2 ORDER BY terminal`
	err = q.Query(sql, []any{p.FromULID, p.ToULID}, func(r eventlog.Row) error {
		var id string
		var last, terminal int64
		var head []byte
		var isULID bool
		if err := r.Scan(&id, &last, &head, &terminal, &isULID); err != nil {
			return err
		}
		report.Runs++
		report.Events += last
		has, in := archived[id]
		switch {
		case terminal == 0:
			return fmt.Errorf("run %q has not ended", id)
		case !isULID:
			return fmt.Errorf("the id of run %q is not a ULID; hint: starling-host prune --run removes it", id)
		case archived != nil && (!in || !bytes.Equal(has[:], head)):
			return fmt.Errorf("its archive does not have run %q as it is in the database", id)
		}
		return nil
	})
	return report, err
}

// DropPartition removes the runs of a partition as PruneRuns does, and drops the partition, to which nothing
// is written in the meantime. A run that has not ended keeps it, or, if archived is not nil, one that is not
// in it with the hash of its last event. The role must own the tables.
func (l *Log) DropPartition(ctx context.Context, p Partition, why string, archived map[string]canon.Hash) (eventlog.PruneReport, error) {
	o := eventlog.PruneOptions{FromULID: p.FromULID, ToULID: p.ToULID, Why: why}
	return l.index.Remove(ctx, o, func(doomed, mark string, _, args []any) (report eventlog.PruneReport, err error) {
		err = l.alter(ctx, func(q querier) error {
			_, err := q.Exec("LOCK TABLE " + p.Name + " IN SHARE MODE")
			if err == nil {
				_, err = extent(q, p, archived)
			}
			if err == nil {
				err = q.Query(doomed+marking(mark)+removeSQL, args, dblog.ScanReport(&report))
			}
			events := int64(0)
			if err == nil {
				err = q.q.QueryRow(ctx, "SELECT count(*) FROM "+p.Name).Scan(&events)
			}
			if err == nil && events != report.Events {
				err = fmt.Errorf("it has %d events, of which the table run knows %d; hint: starling-host migrate", events, report.Events)
			}
			if err == nil {
				_, err = q.Exec("DROP TABLE " + p.Name)
			}
			return err
		})
		return report, err
	})
}
