package view

import (
	"cmp"
	"strconv"
	"time"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve/queue"
)

// Tenants prints how many jobs tenants have.
func Tenants(w *terminal.Printer, tenants []queue.Stats) {
	now := time.Now()
	rows := lists.Map(tenants, func(t queue.Stats) []string {
		return []string{t.Tenant, strconv.Itoa(t.Waiting), strconv.Itoa(t.Sleeping), strconv.Itoa(t.Running), at(w, t.Oldest, now), map[bool]string{true: "suspended"}[t.Paused]}
	})
	columns := terminal.Columns("TENANT", ">WAITING", ">SLEEPING", ">RUNNING", "OLDEST", "")
	columns[5].Leave = 1
	terminal.Table(w, rows, nil, columns...)
}

// Jobs prints jobs. A narrow terminal has the last error of one below it.
func Jobs(w *terminal.Printer, jobs []queue.Status) {
	type job = queue.Status
	now := time.Now()
	columns := []terminal.Column[job]{
		{Title: "RUN", Text: func(j job) string { return j.RunID }},
		{Title: "STATE", Text: func(j job) string { return string(j.State) }},
		{Title: "ATTEMPT", Text: func(j job) string { return j.Attempts() }, Leave: 1},
		{Title: "WHEN", Text: func(j job) string {
			if !j.Until.IsZero() {
				return "until " + at(w, j.Until, now)
			}
			return "since " + at(w, cmp.Or(j.Since, j.Enqueued), now)
		}},
		{Title: "HOST", Text: func(j job) string { return j.Host }, Least: 8},
	}
	var below func(job) string
	if narrow(w) {
		below = func(j job) string { return display.Shorten(display.Printable(j.Why()), w.Width()-2) }
	} else {
		columns = append(columns, terminal.Column[job]{Title: "LAST ERROR", Text: job.Why, Least: 24})
	}
	terminal.Table(w, jobs, below, columns...)
}

// narrow reports whether it is a terminal without room for whole times: it shows how long ago things were.
func narrow(w *terminal.Printer) bool {
	return w.Terminal && w.Width() > 0 && w.Width() < 120
}

// at writes a time as tables have it: whole, or how far it is from now on a narrow terminal.
func at(w *terminal.Printer, t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case !narrow(w):
		return display.Time(t)
	case t.After(now):
		return "in " + display.Age(t.Sub(now))
	}
	return display.Age(now.Sub(t)) + " ago"
}

// Hosts prints hosts.
func Hosts(w *terminal.Printer, hosts []queue.Host) {
	now := time.Now()
	type host = queue.Host
	terminal.Table(w, hosts, nil,
		terminal.Column[host]{Title: "HOST", Text: func(h host) string { return h.Name }, Least: 8},
		terminal.Column[host]{Title: "STATE", Text: func(h host) string { return h.State }},
		terminal.Column[host]{Title: "RUNS", Right: true, Text: func(h host) string { return strconv.Itoa(h.Running) }},
		terminal.Column[host]{Title: "BEGAN", Text: func(h host) string { return at(w, h.Began, now) }, Leave: 1},
		terminal.Column[host]{Title: "SEEN", Text: func(h host) string { return at(w, h.Seen, now) }},
		terminal.Column[host]{Title: "ID", Text: func(h host) string { return h.ID }},
		terminal.Column[host]{Title: "VERSION", Text: func(h host) string { return h.Version }, Least: 8})
}
