package inspect

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// queuePage is the queue of all tenants, and the hosts that work on it.
type queuePage struct {
	Hosts    []queue.Host
	Tabs     []link
	Tenants  []link
	Jobs     []queue.Status
	Next     string            // path, or empty
	Names    map[string]string // what runs call, by their ids
	Steers   bool              // there are buttons
	Opens    bool              // runs can be looked at
	Back     string            // path of this page
	Narrowed bool
}

func sentenceOf(job queue.Status) string {
	return display.Shorten(display.Printable(job.Sentence()), maxLine)
}

// whenOfJob is the time until which a job sleeps, or since which it waits or runs.
func whenOfJob(job queue.Status) moment {
	now := time.Now()
	m := newMoment(cmp.Or(job.Until, job.Since, job.Enqueued).UnixNano(), now)
	if job.Until.After(now) {
		m.Ago = "in " + strings.TrimSuffix(ago(job.Until.Sub(now)), " ago")
	}
	return m
}

// narrowings are the states that the page can be narrowed to; the first is all.
var narrowings = []queue.State{"", queue.Waiting, queue.Sleeping, queue.Running}

// queue shows the queue to an operator. For other users the page does not exist.
func (s *Server) queue(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	if v.Operator == nil {
		return eventlog.ErrRunNotFound
	}
	q := r.URL.Query()
	f := queue.Filter{Tenant: q.Get("tenant"), State: queue.State(q.Get("state")), Limit: perPage}
	f.After, _ = strconv.ParseInt(q.Get("after"), 10, 64)
	if !slices.Contains(narrowings, f.State) {
		return &status{http.StatusBadRequest, "Unknown state. Use waiting, sleeping or running."}
	}
	doc, err := v.Operator.Queue.Overview(r.Context(), f)
	if err != nil {
		return err
	}
	hosts, err := v.Operator.Queue.HostList(r.Context())
	if err != nil {
		return err
	}
	p := queuePage{
		Hosts: hosts.Items, Jobs: doc.Items, Steers: v.Operator.Steer != nil, Opens: v.Log != nil,
		Back: s.queuePath(q.Get("tenant"), q.Get("state"), f.After), Narrowed: f.Tenant != "" || f.State != "",
	}
	if doc.Next > 0 {
		p.Next = s.queuePath(f.Tenant, q.Get("state"), doc.Next)
	}
	if v.Operator.Names != nil {
		p.Names = v.Operator.Names(r.Context(), doc.Items)
	}
	all := link{Name: "all tenants", Path: s.queuePath("", q.Get("state"), 0), Current: f.Tenant == ""}
	p.Tenants = append(p.Tenants, all)
	counts := map[queue.State]int{}
	for _, t := range doc.Tenants {
		n := t.Waiting + t.Sleeping + t.Running
		name := display.Printable(t.Tenant)
		if t.Paused {
			name += " (suspended)"
		}
		p.Tenants = append(p.Tenants, link{name, s.queuePath(t.Tenant, q.Get("state"), 0), display.Digits(uint64(n)), f.Tenant == t.Tenant})
		for state, n := range map[queue.State]int{"": n, queue.Waiting: t.Waiting, queue.Sleeping: t.Sleeping, queue.Running: t.Running} {
			counts[state] += n
		}
	}
	for _, state := range narrowings {
		word := string(state)
		p.Tabs = append(p.Tabs, link{cmp.Or(word, "all"), s.queuePath(f.Tenant, word, 0), display.Digits(uint64(counts[state])), q.Get("state") == word})
	}
	return s.render(w, r, http.StatusOK, "queue", "Queue", v, p)
}

// queuePath is the address of a page of the queue.
func (s *Server) queuePath(tenant, state string, after int64) string {
	return address(s.path("queue"), url.Values{"tenant": {tenant}, "state": {state}, "after": {unless(0, after)}})
}

// steer carries out an operator's action, and shows the queue again.
func (s *Server) steer(w http.ResponseWriter, r *http.Request, v eventview.View) error {
	if v.Operator == nil || v.Operator.Steer == nil {
		return eventlog.ErrRunNotFound
	}
	ctx := context.WithoutCancel(r.Context()) // it is done even if the browser goes away
	switch err := v.Operator.Steer(ctx, r.PathValue("what"), r.PostFormValue("of")); {
	case errors.Is(err, queue.ErrNotFound):
		return &status{http.StatusConflict, "This run has ended and left the queue."}
	case errors.Is(err, queue.ErrNotSleeping):
		return &status{http.StatusConflict, "This run is no longer sleeping."}
	case errors.Is(err, queue.ErrNoHost):
		return &status{http.StatusConflict, "This host is no longer at work."}
	case err != nil:
		return err
	}
	http.Redirect(w, r, s.ours(r.PostFormValue("back")), http.StatusSeeOther)
	return nil
}

// usagePage is the tenants' usage, by day.
type usagePage struct {
	Tenants []tenant.Usage
	Several bool   // each has a page of its own
	Next    string // path, or empty
}

// overviewDays is how many days are shown of each tenant where several are shown.
const overviewDays = 7

// usage shows a tenant its own usage, and an operator every tenant's.
func (s *Server) usage(w http.ResponseWriter, r *http.Request, v eventview.View) error {
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
	p := usagePage{Tenants: doc.Items, Several: several}
	if doc.Next != "" {
		p.Next = address(s.path("usage"), url.Values{"after": {doc.Next}})
	}
	return s.render(w, r, http.StatusOK, "usage", "Usage", v, p)
}
