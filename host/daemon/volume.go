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

	mu     sync.Mutex
	of     map[string]*volume       // by tenant; guarded by mu, and so is what is in it
	asking map[string]chan struct{} // by tenant, while the log is asked; closed then; guarded by mu
}

func newVolumes(log eventlog.Transactor) volumes {
	return volumes{log: log, of: map[string]*volume{}, asking: map[string]chan struct{}{}}
}

// volume is what one tenant has recorded, in bytes.
type volume struct {
	day          time.Time // what today stands for, in UTC
	today, total int64
	asked        time.Time     // when the log had answered
	took         time.Duration // for that
}

const (
	// remeasure is how long an answer of the log is believed. To answer, it looks at
	// every event of the tenant.
	remeasure = 10 * time.Minute
	// recheck is how long one is believed by which a tenant has to be refused: room may
	// have been made meanwhile.
	recheck = 5 * time.Second
	// restBetween is how many times as long as an answer took it is believed at least, so
	// that the log has most of its time for other things.
	restBetween = 20
	// roomAfter is when to ask again who has to wait for somebody to remove runs.
	roomAfter = time.Minute
)

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
	of, err := v.measure(ctx, t.ID, remeasure)
	if err == nil && of.beyond(t.Limits) != nil {
		of, err = v.measure(ctx, t.ID, recheck)
	}
	if err != nil {
		return err
	}
	if p := of.beyond(t.Limits); p != nil {
		return p
	}
	return nil
}

// beyond says what of the limits is used up, or nothing.
func (of volume) beyond(l tenant.Limits) *Problem {
	switch {
	case l.Recorded >= 0 && of.total >= l.Recorded:
		return recordedLimit.because("the runs of the tenant take %d bytes, and may take %d", of.total, l.Recorded).
			hint("have old runs removed").retry(roomAfter)
	case l.RecordedPerDay >= 0 && of.today >= l.RecordedPerDay:
		return recordedLimit.because("the tenant has recorded %d bytes since midnight UTC, and may record %d", of.today, l.RecordedPerDay).
			retry(time.Until(startOfDay().Add(24 * time.Hour)))
	}
	return nil
}

func startOfDay() time.Time { return time.Now().UTC().Truncate(24 * time.Hour) }

// measure returns what a tenant has recorded, of which the log has answered no longer
// than age ago. One request of a tenant asks it, and the tenant's others wait for that.
// What is recorded meanwhile may be missed until it is asked again.
func (v *volumes) measure(ctx context.Context, id string, age time.Duration) (volume, error) {
	for {
		of, wait := v.known(id, age)
		switch {
		case of != nil:
			return *of, nil
		case wait == nil:
			return v.remember(ctx, id)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return volume{}, ctx.Err()
		}
	}
}

// known returns what is known of a tenant, if that is of today and not too old. Otherwise
// somebody else is asking the log, or the caller is to do it.
func (v *volumes) known(id string, age time.Duration) (*volume, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if of := v.of[id]; of != nil && of.day.Equal(startOfDay()) && time.Since(of.asked) <= max(age, restBetween*of.took) {
		it := *of
		return &it, nil
	}
	if wait := v.asking[id]; wait != nil {
		return nil, wait
	}
	v.asking[id] = make(chan struct{})
	return nil, nil
}

// remember asks the log for those that wait for it, too. If it fails, the next of them
// asks.
func (v *volumes) remember(ctx context.Context, id string) (volume, error) {
	of, err := v.ask(ctx, id)
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.asking[id])
	delete(v.asking, id)
	if err == nil {
		kept := of
		v.of[id] = &kept
	}
	return of, err
}

// ask asks the log. The table and its columns are those of spec/event.md, which
// every database has.
func (v *volumes) ask(ctx context.Context, id string) (of volume, err error) {
	const sql = `SELECT coalesce(sum(CASE WHEN ts >= $1 THEN length(payload) + $2 ELSE 0 END), 0), coalesce(sum(length(payload) + $2), 0)
	FROM eventlog_events WHERE run_id >= $3 AND run_id < $4`
	began := time.Now()
	of.day = startOfDay()
	err = v.log.View(ctx, func(q eventlog.Querier) error {
		args := []any{of.day.UnixNano(), int64(envelopeBytes), id + "/", id + "0"} // 0 follows the slash
		return q.Query(sql, args, func(r eventlog.Row) error { return r.Scan(&of.today, &of.total) })
	})
	if err != nil {
		return of, fmt.Errorf("daemon: measure what %s has recorded: %w", id, err)
	}
	of.asked, of.took = time.Now(), time.Since(began)
	return of, nil
}
