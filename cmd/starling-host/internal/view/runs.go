package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/search"
	"github.com/starling-host/starling/internal/terminal"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/queue"
)

// Runs is the output of "runs -o json".
type Runs struct {
	Runs    []Run           `json:"runs"`
	Totals  eventlog.Totals `json:"totals"`
	Reasons []search.Reason `json:"reasons,omitempty"`
	Total   int             `json:"total"`
	Limit   int             `json:"limit"`
	Offset  int             `json:"offset"`
	More    bool            `json:"more,omitempty"`
	Partly  int             `json:"partly,omitempty"`
}

// Run is a run in a list, with its job if it is open.
type Run struct {
	search.Run
	Job *serve.JobDocument `json:"job,omitempty"`
}

// Print prints the runs as a table, their totals, and what the failed ones failed for.
func (doc Runs) Print(w *terminal.Printer, now time.Time) {
	if t := doc.Totals; len(doc.Runs) > 0 {
		terminal.Table(w, doc.Runs, func(r Run) string {
			if silent := r.Silent(now); r.Job == nil && r.Status == eventlog.StatusOpen && silent >= minSilence {
				return "silent for " + display.Age(silent)
			} else if r.Job != nil {
				return r.Job.String()
			}
			return ""
		}, runsColumns(w, doc.Runs, now)...)
		model := ""
		if tokens(t.InputTokens, t.OutputTokens) > 0 || t.CostUSD != 0 {
			model = fmt.Sprintf(", %s tokens in, %s out, $%s", display.Digits(tokens(t.InputTokens, 0)), display.Digits(tokens(t.OutputTokens, 0)), display.Dollars(t.CostUSD))
		}
		listed := map[bool]string{true: " listed"}[doc.Total > len(doc.Runs)]
		w.Printf("%s%s: %s, %s%s\n", display.Plural(len(doc.Runs), "run"), listed, display.Plural(t.Events, "event"), display.Plural(t.ToolCalls, "call"), model)
	}
	failed := 0
	for _, r := range doc.Reasons {
		failed += r.Runs
	}
	if failed > 1 {
		of := map[bool]string{true: " of " + display.Counted(doc.Total, eventlog.MaxCounted, "run")}[doc.Total > max(failed, len(doc.Runs))]
		w.Printf("\n%d%s failed:\n", failed, of)
		for _, r := range doc.Reasons[:min(len(doc.Reasons), maxReasons)] {
			when, to := display.Period(r.First, r.Last, now)
			if to != "" {
				when += " to " + to
			}
			why, room := strings.TrimPrefix(r.Tool+": "+r.Text, ": "), max(w.Width()-10-len(when), 0) // none unless it is a terminal
			w.Printf("%5d  %s   %s\n", r.Runs, terminal.Bad.Of(display.Shorten(display.Printable(why), cmp.Or(room, maxReason))), when)
		}
	}
}

// runsColumns are the columns of a page of runs.
func runsColumns(w *terminal.Printer, runs []Run, now time.Time) []terminal.Column[Run] {
	started := terminal.Column[Run]{Title: "STARTED", Text: func(r Run) string { return r.StartedAt.Format(time.RFC3339) }}
	if narrow(w) {
		started = terminal.Column[Run]{Title: "AGE", Text: func(r Run) string { return display.Age(now.Sub(r.StartedAt)) }}
	}
	agents := slices.ContainsFunc(runs, func(r Run) bool { return r.Tool == "" })
	what := terminal.Column[Run]{Title: "ARGUMENTS", Leave: 3, Least: 16, Zero: "{}", Text: func(r Run) string {
		switch {
		case r.Encrypted:
			return "(encrypted)"
		case r.Tool != "" && agents && narrow(w): // in one column, so that errors have room
			return r.Tool + " " + cmp.Or(r.Arguments, "{}")
		case r.Tool != "":
			return cmp.Or(r.Arguments, "{}")
		}
		return r.Goal
	}}
	if agents {
		what.Title, what.Leave = "GOAL", 0
	}
	count := func(title string, leave int, of func(r Run) string) terminal.Column[Run] {
		return terminal.Column[Run]{Title: title, Text: of, Right: true, Zero: "0", Leave: leave}
	}
	return []terminal.Column[Run]{
		{Title: "RUN", Text: func(r Run) string { return r.RunID }},
		started,
		{Title: "STATUS", Text: func(r Run) string { return r.Status }},
		count("EVENTS", 11, func(r Run) string { return strconv.FormatUint(r.LastSeq, 10) }),
		count("CALLS", 8, func(r Run) string { return strconv.Itoa(r.ToolCallCount) }),
		count("4XX", 6, func(r Run) string { return strconv.Itoa(r.Status4xx) }),
		count("5XX", 5, func(r Run) string { return strconv.Itoa(r.Status5xx) }),
		count("TOKENS", 10, func(r Run) string { return display.Digits(tokens(r.InputTokens, r.OutputTokens)) }),
		{Title: "COST", Text: func(r Run) string { return "$" + display.Dollars(r.CostUSD) }, Right: true, Zero: "$0.00", Leave: 9},
		count("FUEL", 7, func(r Run) string { return display.Fuel(r.Meter.Fuel) }),
		{Title: "DURATION", Text: func(r Run) string { return runDuration(r.RunSummary) }, Right: true, Leave: 4},
		{Title: "TOOL", Text: func(r Run) string { return map[bool]string{false: r.Tool}[agents && narrow(w)] }, Leave: 1, Least: 12},
		what,
		{Title: "ERROR", Text: func(r Run) string { return r.Reason }, Leave: 2, Least: 16},
	}
}

// maxReason is how many characters of an error are shown on a line of a file, and maxReasons how
// many errors are counted.
const (
	maxReason  = 160
	maxReasons = 15
)

// minSilence is how long an open run is silent before its listing says so.
const minSilence = 30 * time.Second

func runDuration(run eventlog.RunSummary) string {
	if !run.TerminalKind.Terminal() {
		return "-"
	}
	return display.Duration(time.Duration(run.DurationMs) * time.Millisecond)
}

// tokens adds up counts of tokens. A log may claim anything.
func tokens(in, out int64) uint64 { return uint64(max(in, 0)) + uint64(max(out, 0)) }

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
