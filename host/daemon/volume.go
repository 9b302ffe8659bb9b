package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/tenant"
)

// volumes know what tenants have recorded: what the log said when it was asked, and
// what this process has added since. The log is asked now and then, which finds
// what others have added, and what was removed.
type volumes struct {
	log eventlog.Transactor

	mu sync.Mutex
	of map[string]*volume // by tenant; guarded by mu, and so is what is in it
}

// volume is what one tenant has recorded, in bytes.
type volume struct {
	day          time.Time // what today stands for, in UTC
	today, total int64
	asked        time.Time // the log
}

// remeasure is how long an answer of the log is believed. To answer, it looks at
// every event of the tenant.
const remeasure = 10 * time.Minute

// add counts an event that was recorded.
func (v *volumes) add(id string, bytes int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if of := v.of[id]; of != nil { // otherwise the log will be asked
		of.today += int64(bytes)
		of.total += int64(bytes)
	}
}

// check refuses work of a tenant that has recorded as much as it may, today or in
// all. What is in progress goes on, and may take it beyond that by as much as the
// limits of its calls allow.
func (v *volumes) check(ctx context.Context, t tenant.Tenant) error {
	today, total, err := v.measure(ctx, t.ID)
	if err != nil {
		return err
	}
	l := t.Limits
	switch {
	case l.Recorded >= 0 && total >= l.Recorded:
		return recordedLimit.because("the runs of the tenant take %d bytes, and may take %d", total, l.Recorded).
			hint("have old runs removed")
	case l.RecordedPerDay >= 0 && today >= l.RecordedPerDay:
		return recordedLimit.because("the tenant has recorded %d bytes since midnight UTC, and may record %d", today, l.RecordedPerDay).
			retry(time.Until(startOfDay().Add(24 * time.Hour)))
	}
	return nil
}

func startOfDay() time.Time { return time.Now().UTC().Truncate(24 * time.Hour) }

// measure returns what a tenant has recorded. While the log is asked nobody waits,
// and what is recorded meanwhile may be missed until it is asked again.
func (v *volumes) measure(ctx context.Context, id string) (today, total int64, err error) {
	day := startOfDay()
	of, ok := v.known(id, day)
	if !ok {
		if of, err = v.ask(ctx, id, day); err != nil {
			return 0, 0, err
		}
		v.mu.Lock()
		v.of[id] = &of
		v.mu.Unlock()
	}
	return of.today, of.total, nil
}

// known returns what is known of a tenant, if that is of today and not too old.
func (v *volumes) known(id string, day time.Time) (volume, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	of := v.of[id]
	if of == nil || !of.day.Equal(day) || time.Since(of.asked) > remeasure {
		return volume{}, false
	}
	return *of, true
}

// ask asks the log. The table and its columns are those of spec/event.md, which
// every database has.
func (v *volumes) ask(ctx context.Context, id string, day time.Time) (of volume, err error) {
	const sql = `SELECT coalesce(sum(CASE WHEN ts >= $1 THEN length(payload) + $2 ELSE 0 END), 0), coalesce(sum(length(payload) + $2), 0)
	FROM eventlog_events WHERE run_id >= $3 AND run_id < $4`
	of = volume{day: day, asked: time.Now()}
	err = v.log.View(ctx, func(q eventlog.Querier) error {
		args := []any{day.UnixNano(), int64(envelopeBytes), id + "/", id + "0"} // 0 follows the slash
		return q.Query(sql, args, func(r eventlog.Row) error { return r.Scan(&of.today, &of.total) })
	})
	if err != nil {
		return of, fmt.Errorf("daemon: measure what %s has recorded: %w", id, err)
	}
	return of, nil
}
