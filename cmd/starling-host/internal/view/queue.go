package view

import (
	"cmp"
	"strconv"
	"time"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve/queue"
)

// Tenants prints how many jobs tenants have.
func Tenants(w *terminal.Printer, tenants []queue.Stats) {
	now := time.Now()
	rows := [][]string{}
	for _, t := range tenants {
		rows = append(rows, []string{t.Tenant, strconv.Itoa(t.Waiting), strconv.Itoa(t.Sleeping), strconv.Itoa(t.Running), at(w, t.Oldest, now), map[bool]string{true: "suspended"}[t.Paused]})
	}
	columns := terminal.Columns("TENANT", ">WAITING", ">SLEEPING", ">RUNNING", "OLDEST", "")
	columns[5].Leave = 1
	terminal.Table(w, rows, nil, columns...)
}

// Jobs prints jobs. A narrow terminal has the last error of one below it.
func Jobs(w *terminal.Printer, jobs []queue.Status) {
	terminal.Table(w, jobs, narrowError(w), jobColumns(w)...)
}

// jobColumns are the columns of jobs.
func jobColumns(w *terminal.Printer) []terminal.Column[queue.Status] {
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
	if !narrow(w) {
		columns = append(columns, terminal.Column[job]{Title: "LAST ERROR", Text: job.Why, Least: 24})
	}
	return columns
}

// narrowError returns the last error of a job, where it has no column.
func narrowError(w *terminal.Printer) func(queue.Status) string {
	return func(j queue.Status) string {
		if !narrow(w) {
			return ""
		}
		return display.Shorten(display.Printable(j.Why()), w.Width()-2)
	}
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

// Top is the output of "top -o json": what the hosts of a database do.
type Top struct {
	Hosts   []queue.Host    `json:"hosts"`
	Tenants []queue.Stats   `json:"tenants"`
	Jobs    []TopJob        `json:"jobs"`
	Started int             `json:"started"`
	Failed  int             `json:"failed"`
	Reasons []search.Reason `json:"reasons"`
}

// TopJob is a job with what it calls.
type TopJob struct {
	Tool string `json:"tool,omitempty"`
	Fuel uint64 `json:"fuel,omitempty"`
	queue.Status
}

// Print prints it for a screen, with what failed in a period.
func (doc Top) Print(w *terminal.Printer, period time.Duration) {
	w.Printf("%s; in the last %s %s started and %d failed\n\n", display.Time(time.Now()), display.Age(period), display.Plural(doc.Started, "run"), doc.Failed)
	for _, r := range doc.Reasons[:min(len(doc.Reasons), 3)] {
		w.Printf("%5d  %s\n", r.Runs, terminal.Bad.Of(reason(r, w.Width()-7)))
	}
	if len(doc.Reasons) > 0 {
		w.Printf("\n")
	}
	Hosts(w, doc.Hosts)
	w.Printf("\n")
	Tenants(w, doc.Tenants)
	w.Printf("\n")
	columns := []terminal.Column[TopJob]{{Title: "TOOL", Text: func(j TopJob) string { return j.Tool }, Least: 10}}
	for _, c := range jobColumns(w) {
		columns = append(columns, terminal.Column[TopJob]{Title: c.Title, Text: func(j TopJob) string { return c.Text(j.Status) }, Leave: c.Leave, Least: c.Least})
	}
	columns = append(columns, terminal.Column[TopJob]{Title: "FUEL", Right: true, Zero: "0", Leave: 2, Text: func(j TopJob) string { return display.Fuel(j.Fuel) }})
	terminal.Table(w, doc.Jobs, func(j TopJob) string { return narrowError(w)(j.Status) }, columns...)
}
