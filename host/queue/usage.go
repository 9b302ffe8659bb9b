package queue

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
)

// UsageDays is for how many days the usage of tenants is kept.
const UsageDays = 400

// Usage is what runs have used.
type Usage struct {
	Runs          int64 // that have ended; counted by the queue
	Fuel          int64
	Effects       int64
	EgressBytes   int64
	RecordedBytes int64
}

// DayUsage is the usage of a tenant's runs that ended on one day.
type DayUsage struct {
	Day time.Time // its beginning, in UTC
	Usage
}

// used has a row for each tenant and day on which a run of the tenant ended. The days are
// counted from 1970.
const used = `CREATE TABLE queue_usage (
	tenant   TEXT NOT NULL,
	day      INTEGER NOT NULL,
	runs     INTEGER NOT NULL,
	fuel     INTEGER NOT NULL,
	effects  INTEGER NOT NULL,
	egress   INTEGER NOT NULL,
	recorded INTEGER NOT NULL,
	PRIMARY KEY (tenant, day)
)`

// dayOf returns the number of the day of a point in time.
func dayOf(ns int64) int64 { return ns / int64(24*time.Hour) }

// maxUsage bounds what one run counts, so that no sum passes what a database can hold.
const maxUsage = 1 << 50

// use counts what a run has used whose job was done.
func (s *storeTx) use(tenant string, u Usage) {
	if s.usage == nil {
		s.usage = make(map[string]Usage)
	}
	sum := s.usage[tenant]
	sum.Runs++
	sum.Fuel += min(max(u.Fuel, 0), maxUsage)
	sum.Effects += min(max(u.Effects, 0), maxUsage)
	sum.EgressBytes += min(max(u.EgressBytes, 0), maxUsage)
	sum.RecordedBytes += min(max(u.RecordedBytes, 0), maxUsage)
	s.usage[tenant] = sum
}

var addUsage = statement{
	one: "INSERT INTO queue_usage (tenant, day, runs, fuel, effects, egress, recorded) VALUES ($1, $2, $3, $4, $5, $6, $7)" + toUsage,
	many: `INSERT INTO queue_usage (tenant, day, runs, fuel, effects, egress, recorded) SELECT *
	FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])` + toUsage,
}

const toUsage = ` ON CONFLICT (tenant, day) DO UPDATE SET runs = queue_usage.runs + excluded.runs, fuel = queue_usage.fuel + excluded.fuel,
	effects = queue_usage.effects + excluded.effects, egress = queue_usage.egress + excluded.egress, recorded = queue_usage.recorded + excluded.recorded`

// flushUsage writes what was counted to today's rows.
func (s *storeTx) flushUsage() error {
	var rows [][]any
	for _, tenant := range slices.Sorted(maps.Keys(s.usage)) {
		u := s.usage[tenant]
		rows = append(rows, []any{tenant, dayOf(s.now), u.Runs, u.Fuel, u.Effects, u.EgressBytes, u.RecordedBytes})
	}
	_, err := s.execAll(&addUsage, rows)
	return err
}

// sweepUsage removes the rows that are too old, in each process once a day.
func (s *storeTx) sweepUsage() error {
	today := dayOf(s.now)
	if s.cfg.swept.Swap(today) == today {
		return nil
	}
	_, err := s.tx.Exec("DELETE FROM queue_usage WHERE day <= $1", today-UsageDays)
	return err
}

// Usage returns what the runs of a tenant have used, from the newest day on, for so many days
// that end with today. A day on which no run ended is left out.
func (q *Queue) Usage(ctx context.Context, tenant string, days int) (list []DayUsage, err error) {
	const sql = "SELECT day, runs, fuel, effects, egress, recorded FROM queue_usage WHERE tenant = $1 AND day > $2 ORDER BY day DESC"
	err = q.log.View(ctx, func(v eventlog.Querier) error {
		list = nil
		return v.Query(sql, []any{tenant, dayOf(q.cfg.Clock.Now().UnixNano()) - int64(days)}, func(r eventlog.Row) error {
			var u DayUsage
			var day int64
			err := r.Scan(&day, &u.Runs, &u.Fuel, &u.Effects, &u.EgressBytes, &u.RecordedBytes)
			u.Day = time.Unix(0, day*int64(24*time.Hour)).UTC()
			list = append(list, u)
			return err
		})
	})
	return list, err
}
