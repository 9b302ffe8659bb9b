package daemon

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// metered is the log of a worker. It adds up the use by the run, from the events that it reads
// before the run continues and from the events that it appends.
type metered struct {
	eventlog.EventLog

	mu    sync.Mutex
	meter *agent.BudgetMeter // nil until the run was read; guarded by mu
}

// Read implements [eventlog.EventLog].
func (m *metered) Read(ctx context.Context, runID string) ([]event.Event, error) {
	evs, err := m.EventLog.Read(ctx, runID)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.meter == nil {
		m.meter, _ = agent.ResumeBudget(agent.Budget{}, evs) // what cannot be read is the run's to report
	}
	return evs, err
}

// Append implements [eventlog.EventLog].
func (m *metered) Append(ctx context.Context, runID string, ev event.Event) error {
	err := m.EventLog.Append(ctx, runID, ev)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.meter != nil {
		_ = m.meter.Add(ev)
	}
	return err
}

// Unwrap returns the log below.
func (m *metered) Unwrap() eventlog.EventLog { return m.EventLog }

// usage returns what the run has used until now.
func (m *metered) usage(stored *leased) (u tenant.DayUsage) {
	stored.mu.Lock()
	u.RecordedBytes = int64(stored.bytes)
	stored.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.meter != nil {
		spent := m.meter.Spent()
		u.Fuel, u.Effects, u.EgressBytes = int64(min(spent.Fuel, math.MaxInt64)), int64(spent.Effects), int64(spent.EgressBytes)
	}
	return u
}

// UsageOf returns the usage of tenants. defaults are the limits of tenants without their own.
// Without a queue the result has no days.
func UsageOf(ctx context.Context, log Log, tenants *tenant.Store, q *queue.Queue, defaults tenant.Limits, f tenant.UsageFilter) (tenant.UsageList, error) {
	return newVolumes(log, q).usage(ctx, tenants, defaults, f)
}

func (v *volumes) usage(ctx context.Context, tenants *tenant.Store, defaults tenant.Limits, f tenant.UsageFilter) (tenant.UsageList, error) {
	doc := tenant.UsageList{Items: []tenant.Usage{}}
	var list []tenant.Tenant
	var err error
	if f.Tenant != "" {
		list = make([]tenant.Tenant, 1)
		list[0], err = tenants.Tenant(ctx, f.Tenant)
	} else {
		list, err = tenants.Tenants(ctx)
		list = slices.DeleteFunc(list, func(t tenant.Tenant) bool { return t.ID <= f.After })
		slices.SortFunc(list, func(a, b tenant.Tenant) int { return strings.Compare(a.ID, b.ID) })
	}
	if err != nil {
		return doc, err
	}
	if len(list) > f.Limit {
		list = list[:f.Limit]
		doc.Next = list[f.Limit-1].ID
	}
	for _, t := range list {
		one := tenant.Usage{Tenant: t.ID, Limits: t.Limits.Or(defaults), Days: []tenant.DayUsage{}}
		modules, err := eventlog.CountModules(ctx, v.log, t.ID)
		if err != nil {
			return doc, err
		}
		one.Modules, one.ModuleBytes = int64(modules.Modules), modules.Bytes
		if v.queue != nil {
			days, err := v.queue.Usage(ctx, t.ID, f.Days)
			if err != nil {
				return doc, err
			}
			one.Days = append(one.Days, days...)
		}
		if f.Tenant != "" {
			of, err := v.measure(ctx, t.ID)
			if err != nil {
				return doc, err
			}
			one.Recorded = &tenant.Recorded{Bytes: of.total, Today: of.today, Held: of.held}
		}
		doc.Items = append(doc.Items, one)
	}
	return doc, nil
}

// Usage returns what tenants use.
func (d *Daemon) Usage(ctx context.Context, f tenant.UsageFilter) (tenant.UsageList, error) {
	doc, err := d.volume.usage(ctx, d.config.Tenants, d.config.Limits, f)
	for i, one := range doc.Items {
		now := &tenant.InFlight{Bytes: d.host.Memory.Held(one.Tenant)}
		now.Slots, now.Waiting = d.host.CPU.Use(one.Tenant)
		doc.Items[i].InFlight = now
	}
	return doc, err
}

// ownUsage returns a tenant's own usage.
func (d *Daemon) ownUsage(r *request) (tenant.Usage, error) {
	f := tenant.UsageFilter{Tenant: r.tenant.ID, Limit: 1, Days: int(r.query.number("days", tenant.DefaultUsageDays, queue.UsageDays))}
	if r.query.err != nil {
		return tenant.Usage{}, r.query.err
	}
	doc, err := d.Usage(r.Context(), f)
	if err != nil {
		return tenant.Usage{}, err
	}
	return doc.Items[0], nil
}

// listUsage shows the operator what tenants use.
func (d *Daemon) listUsage(r *request) (tenant.UsageList, error) {
	p := r.query
	f := tenant.UsageFilter{
		Tenant: p.text("tenant"), After: p.text("after"), Limit: p.limit(tenant.DefaultUsageTenants, tenant.MaxUsageTenants),
		Days: int(p.number("days", tenant.DefaultUsageDays, queue.UsageDays)),
	}
	if p.err != nil {
		return tenant.UsageList{}, p.err
	}
	return d.Usage(r.Context(), f)
}

// volumes has the volume that tenants have recorded: the last answer of the log, and the events
// that this process has added since. Asking the log from time to time finds additions by other
// processes, and removals.
type volumes struct {
	log    Log
	queue  *queue.Queue     // or nil
	asking *guest.Scheduler // one question of each tenant at a time

	mu sync.Mutex
	of recent[string, *volume] // by tenant; mu guards the values
}

func newVolumes(log Log, q *queue.Queue) *volumes {
	return &volumes{log: log, queue: q, asking: guest.NewScheduler(math.MaxInt, 1)}
}

// volume is what one tenant has recorded, in bytes.
type volume struct {
	day          time.Time // what today stands for, in UTC
	today, total int64
	held         int64         // in the queue: most of it is going to be recorded as the runs begin
	asked        time.Time     // when the log had answered
	took         time.Duration // for that
}

const (
	// believed is how long an answer of the log is believed at least. It looks at the rows of
	// the tenant's runs.
	believed = 5 * time.Second
	// restBetween is how many times as long as an answer took it is believed at least, so
	// that the log has most of its time for other things.
	restBetween = 20
	// roomAfter is when to ask again after a refusal that ends when runs are removed.
	roomAfter = time.Minute
)

// add counts an event that was recorded, and what the queue holds from now on, or no more.
func (v *volumes) add(id string, bytes, held int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if of, known := v.of.find(id, nil); known { // otherwise the log will be asked
		of.today += int64(bytes)
		of.total += int64(bytes)
		of.held += int64(held)
	}
}

// overrun is how far runs accepted below a limit may exceed it. It is the size of one input, so
// that a run in progress at the limit can usually finish.
const overrun = queue.MaxPayloadBytes

// overdrawn returns the limit that a tenant has gone beyond by more than [overrun], or nil.
// Until measure was called for the tenant, nothing is known of it.
func (v *volumes) overdrawn(t tenant.Tenant) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	of, known := v.of.find(t.ID, nil)
	if !known {
		return nil
	}
	now := *of
	now.held = 0
	if !now.day.Equal(startOfDay()) {
		now.today = -1
	}
	beyond := now
	beyond.total, beyond.today = now.total-overrun, now.today-overrun
	if beyond.exceeded(t.Limits) == nil {
		return nil
	}
	return &neverError{now.exceeded(t.Limits).Detail}
}

// check refuses work of a tenant that has reached its limit of recorded volume, today or in all, or
// will reach it with its waiting runs.
func (v *volumes) check(ctx context.Context, t tenant.Tenant) error {
	of, err := v.measure(ctx, t.ID)
	if err != nil {
		return err
	}
	if p := of.exceeded(t.Limits); p != nil {
		return p
	}
	return nil
}

// exceeded returns the limit that is used up, or nil.
func (of volume) exceeded(l tenant.Limits) *Problem {
	switch {
	case l.Recorded >= 0 && of.total+of.held >= l.Recorded:
		return recordedLimit.because("the runs of the tenant take %d bytes%s; the limit is %d", of.total, of.waiting(), l.Recorded).
			hint("ask the operator to remove old runs").retry(roomAfter)
	case l.RecordedPerDay >= 0 && of.today+of.held >= l.RecordedPerDay:
		p := recordedLimit.because("the tenant has recorded %d bytes since midnight UTC%s; the limit is %d", of.today, of.waiting(), l.RecordedPerDay)
		if of.today < l.RecordedPerDay {
			return p.retry(roomAfter)
		}
		return p.retry(time.Until(startOfDay().Add(24 * time.Hour)))
	}
	return nil
}

// waiting describes the volume held by the queue.
func (of volume) waiting() string {
	if of.held == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more in runs that have not ended", of.held)
}

func startOfDay() time.Time { return time.Now().UTC().Truncate(24 * time.Hour) }

// measure returns a tenant's recorded volume. One request of a tenant asks
// the log, and the tenant's other requests wait for it; if it fails, the next one asks. Volume
// recorded in the meantime may be missed until the log is asked again.
func (v *volumes) measure(ctx context.Context, id string) (volume, error) {
	slot, err := v.asking.Acquire(guest.WithClaim(ctx, guest.Claim{Tenant: id}))
	if err != nil {
		return volume{}, err
	}
	defer slot.Release()
	v.mu.Lock()
	last, _ := v.of.find(id, func() *volume { return &volume{} })
	if last.day.Equal(startOfDay()) && time.Since(last.asked) <= max(believed, restBetween*last.took) {
		defer v.mu.Unlock()
		return *last, nil
	}
	v.mu.Unlock()
	of, err := v.ask(ctx, id)
	if err == nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		*last = of
	}
	return of, err
}

// ask asks the log.
func (v *volumes) ask(ctx context.Context, id string) (of volume, err error) {
	began := time.Now()
	of.day = startOfDay()
	of.total, of.today, err = v.log.Recorded(ctx, id, of.day, envelopeBytes)
	if err == nil && v.queue != nil {
		of.held, err = v.queue.HeldBytes(ctx, id)
	}
	if err != nil {
		return of, fmt.Errorf("daemon: measure what %s has recorded: %w", id, err)
	}
	of.asked, of.took = time.Now(), time.Since(began)
	return of, nil
}
