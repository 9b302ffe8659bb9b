package inspect

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/logview"
	"github.com/starling-host/starling/host/narrate"
	"github.com/starling-host/starling/host/tenant"
)

// usagePage is what tenants use, by day.
type usagePage struct {
	Tenants   []tenantUsage
	All, Next string // paths, or empty
}

type tenantUsage struct {
	ID, Path string // Path leads to more of the tenant, or is empty
	Facts    []fact
	Days     []dayUsage
}

type dayUsage struct{ Day, Runs, Fuel, Effects, Egress, Recorded string }

// overviewDays is how many days are shown of each tenant where several are shown.
const overviewDays = 7

// usage shows a tenant what it uses, and an operator what tenants use.
func (s *Server) usage(w http.ResponseWriter, r *http.Request, v logview.View) error {
	if v.Usage == nil {
		return eventlog.ErrRunNotFound
	}
	q := r.URL.Query()
	f := tenant.UsageFilter{Tenant: q.Get("tenant"), After: q.Get("after"), Limit: tenant.DefaultUsageTenants, Days: tenant.DefaultUsageDays}
	several := v.Operator != nil && f.Tenant == ""
	if several {
		f.Days = overviewDays
	}
	doc, err := v.Usage(r.Context(), f)
	if errors.Is(err, tenant.ErrNotFound) {
		return eventlog.ErrRunNotFound
	}
	if err != nil {
		return err
	}
	size := func(n int64) string { return narrate.Size(uint64(n)) }
	of := func(used, bound int64) string {
		if bound < 0 {
			return size(used) + ", no bound"
		}
		return size(used) + " of " + size(bound)
	}
	path := func(key, value string) string { return s.path("usage") + "?" + url.Values{key: {value}}.Encode() }
	p := usagePage{}
	if v.Operator != nil && !several {
		p.All = s.path("usage")
	}
	if doc.Next != "" {
		p.Next = path("after", doc.Next)
	}
	for _, one := range doc.Items {
		line := tenantUsage{ID: narrate.Printable(one.Tenant)}
		if several {
			line.Path = path("tenant", one.Tenant)
		}
		line.Facts = append(line.Facts, fact{"modules", narrate.Grouped(uint64(one.Modules)) + ", " + of(one.ModuleBytes, one.Limits.Modules)})
		if one.Recorded != nil {
			line.Facts = append(line.Facts, fact{"recorded since midnight", of(one.Recorded.Today, one.Limits.RecordedPerDay)}, fact{"in all", of(one.Recorded.Bytes, one.Limits.Recorded)})
		}
		for _, d := range one.Days {
			line.Days = append(line.Days, dayUsage{
				Day: d.Day, Runs: narrate.Grouped(uint64(d.Runs)), Fuel: narrate.Grouped(uint64(d.Fuel)), Effects: narrate.Grouped(uint64(d.Effects)),
				Egress: size(d.EgressBytes), Recorded: size(d.RecordedBytes),
			})
		}
		p.Tenants = append(p.Tenants, line)
	}
	s.render(w, r, http.StatusOK, "usage", "Usage", v, p)
	return nil
}
