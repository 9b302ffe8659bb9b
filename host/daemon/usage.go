package daemon

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/runtime/budget"
)

// metered is the log of a worker. It adds up what the run has used, from the events that
// it reads before it goes on with the run and from those that it appends.
type metered struct {
	eventlog.EventLog

	mu    sync.Mutex
	meter *budget.Meter // nil until the run was read; guarded by mu
}

// Read implements [eventlog.EventLog].
func (m *metered) Read(ctx context.Context, runID string) ([]event.Event, error) {
	evs, err := m.EventLog.Read(ctx, runID)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && m.meter == nil {
		m.meter, _ = budget.Resume(budget.Limits{}, evs) // what cannot be read is the run's to report
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
func (m *metered) usage(stored *leased) (u queue.Usage) {
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

// UsageOf returns what tenants use. Defaults are the limits that nobody has set. Without a queue
// there are no days.
func UsageOf(ctx context.Context, log eventlog.Transactor, tenants *tenant.Store, q *queue.Queue, defaults tenant.Limits, f tenant.UsageFilter) (tenant.UsageList, error) {
	recorded := newVolumes(log)
	return usageOf(ctx, &recorded, tenants, q, defaults, f)
}

func usageOf(ctx context.Context, recorded *volumes, tenants *tenant.Store, q *queue.Queue, defaults tenant.Limits, f tenant.UsageFilter) (tenant.UsageList, error) {
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
		if one.Modules, one.ModuleBytes, err = tenants.HeldBytes(ctx, t.ID); err != nil {
			return doc, err
		}
		var days []queue.DayUsage
		if q != nil {
			if days, err = q.Usage(ctx, t.ID, f.Days); err != nil {
				return doc, err
			}
		}
		for _, d := range days {
			one.Days = append(one.Days, tenant.DayUsage{
				Day: d.Day.Format(time.DateOnly), Runs: d.Runs, Fuel: d.Fuel, Effects: d.Effects, EgressBytes: d.EgressBytes, RecordedBytes: d.RecordedBytes,
			})
		}
		if f.Tenant != "" {
			v, err := recorded.measure(ctx, t.ID, remeasure)
			if err != nil {
				return doc, err
			}
			one.Recorded = &tenant.Recorded{Bytes: v.total, Today: v.today}
		}
		doc.Items = append(doc.Items, one)
	}
	return doc, nil
}

// Usage returns what tenants use.
func (d *Daemon) Usage(ctx context.Context, f tenant.UsageFilter) (tenant.UsageList, error) {
	return usageOf(ctx, &d.volume, d.config.Tenants, d.config.Queue, d.config.Defaults, f)
}

// ownUsage shows a tenant what it uses.
func (d *Daemon) ownUsage(w http.ResponseWriter, r *request) error {
	f := tenant.UsageFilter{Tenant: r.tenant.ID, Limit: 1, Days: int(r.query.number("days", tenant.DefaultUsageDays, queue.UsageDays))}
	if r.query.err != nil {
		return r.query.err
	}
	doc, err := d.Usage(r.Context(), f)
	if err == nil {
		writeJSON(w, http.StatusOK, doc.Items[0])
	}
	return err
}

// listUsage shows the operator what tenants use.
func (d *Daemon) listUsage(w http.ResponseWriter, r *request) error {
	p := r.query
	f := tenant.UsageFilter{
		Tenant: p.text("tenant"), After: p.text("after"), Limit: int(p.number("limit", tenant.DefaultUsageTenants, tenant.MaxUsageTenants)),
		Days: int(p.number("days", tenant.DefaultUsageDays, queue.UsageDays)),
	}
	if f.Limit == 0 {
		p.fail("limit", "limit is 1 to %d", tenant.MaxUsageTenants)
	}
	if p.err != nil {
		return p.err
	}
	doc, err := d.Usage(r.Context(), f)
	if err == nil {
		writeJSON(w, http.StatusOK, doc)
	}
	return err
}
