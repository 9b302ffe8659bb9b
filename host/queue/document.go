package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/host/narrate"
)

// The words for where a job stands.
const (
	StateWaiting    = "waiting"    // for its tenant to be next
	StateSleeping   = "sleeping"   // until a point in time
	StateRunning    = "running"    // on a host
	StateCancelling = "cancelling" // cancelled, and its run has not ended yet
)

// Standing is where a job stands, as documents and pages say it.
type Standing struct {
	State       string     `json:"state"`
	Attempt     int        `json:"attempt"` // that runs, or has run last; 0 before the first
	MaxAttempts int        `json:"max_attempts"`
	Until       string     `json:"until,omitempty"` // when it wakes, while it sleeps
	Since       string     `json:"since,omitempty"` // when it was handed out, while it runs
	LastError   *LastError `json:"last_error,omitempty"`
}

// LastError is why the last attempt came to nothing. The message may have text of the
// host's, or of a tenant's; it is for operators.
type LastError struct {
	Class   string `json:"class"`
	Message string `json:"message,omitempty"`
}

// Standing returns where the job stands, without the message of its last error.
func (s Status) Standing() Standing {
	doc := Standing{State: StateWaiting, Attempt: s.Attempt, MaxAttempts: s.MaxAttempts}
	switch {
	case s.Cancelled:
		doc.State = StateCancelling
	case s.State == Sleeping:
		doc.State, doc.Until = StateSleeping, timeText(s.Due)
	case s.State == Running:
		doc.State, doc.Since = StateRunning, timeText(s.Started)
	}
	if s.Class != "" {
		doc.LastError = &LastError{Class: s.Class}
	}
	return doc
}

// JobDocument is a job as operators see it.
type JobDocument struct {
	Tenant string `json:"tenant"`
	RunID  string `json:"run_id"` // in the log
	Standing
	Host         string `json:"host,omitempty"` // while it runs
	EnqueuedAt   string `json:"enqueued_at"`
	Priority     int    `json:"priority,omitempty"`
	Snoozes      int    `json:"snoozes,omitempty"`
	HostFailures int    `json:"host_failures,omitempty"` // attempts that failed for a reason of a host's own
	Deaths       int    `json:"deaths,omitempty"`        // processes that died while they had it
}

// Document returns the job as operators see it.
func (s Status) Document() JobDocument {
	doc := JobDocument{
		Tenant: s.Tenant, RunID: s.RunID, Standing: s.Standing(), Host: s.Host, EnqueuedAt: timeText(s.Enqueued), Priority: s.Priority,
		Snoozes: s.Snoozes, HostFailures: s.HostFailures, Deaths: s.Deaths + s.Stranded,
	}
	if doc.LastError != nil {
		doc.LastError.Message = s.Failure
	}
	return doc
}

// Attempts says which attempt it is, of how many.
func (s Standing) Attempts() string { return fmt.Sprintf("%d of %d", s.Attempt, s.MaxAttempts) }

// Why says in one line why the last attempt came to nothing, or nothing. The text is not
// escaped.
func (s Standing) Why() string {
	if s.LastError == nil {
		return ""
	}
	return strings.TrimSuffix(s.LastError.Class+": "+narrate.OneLine(s.LastError.Message), ": ")
}

// At is the time until which the job sleeps, or since which it waits or runs.
func (d JobDocument) At() time.Time {
	at, _ := time.Parse(time.RFC3339Nano, cmp.Or(d.Until, d.Since, d.EnqueuedAt))
	return at
}

// Sentence says in one line where the job stands. The text is not escaped.
func (d JobDocument) Sentence() string {
	line := d.State
	if d.Host != "" {
		line += " on " + d.Host
	}
	if d.Until != "" {
		line += " until " + d.At().UTC().Format(millis)
	} else if d.Since != "" {
		line += " since " + d.At().UTC().Format(millis)
	}
	line += ", attempt " + d.Attempts()
	if why := d.Why(); why != "" {
		line += ", last error " + why
	}
	return line
}

// millis is how times are written for people.
const millis = "2006-01-02T15:04:05.000Z07:00"

// LoadDocument is how many jobs a tenant has.
type LoadDocument struct {
	Tenant   string `json:"tenant"`
	Waiting  int    `json:"waiting"`
	Sleeping int    `json:"sleeping"`
	Running  int    `json:"running"`
	Oldest   string `json:"oldest"` // when the oldest of them was enqueued
	Paused   bool   `json:"paused,omitempty"`
}

// Document returns the counts of a tenant.
func (s Stats) Document(tenant string) LoadDocument {
	return LoadDocument{Tenant: tenant, Waiting: s.Ready, Sleeping: s.Sleeping, Running: s.Running, Oldest: timeText(s.Oldest)}
}

// The words for what a host does.
const (
	HostWorking  = "working"
	HostDraining = "draining" // claims no jobs, and has some left
	HostDrained  = "drained"  // claims no jobs, and has none
	HostSilent   = "silent"   // its lease has ended, and no other host has noticed
	HostGone     = "gone"     // has died
)

// HostDocument is a process that works, or has died.
type HostDocument struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	State   string `json:"state"`
	Running int    `json:"running"`            // its jobs
	BeganAt string `json:"began_at,omitempty"` // to work
	SeenAt  string `json:"seen_at,omitempty"`  // when it last renewed its lease
	GoneAt  string `json:"gone_at,omitempty"`  // when it was found dead
}

// Document returns the host as operators see it.
func (h Host) Document() HostDocument {
	doc := HostDocument{
		ID: h.ID, Name: h.Name, Version: h.Version, State: HostWorking, Running: h.Running,
		BeganAt: timeText(h.Began), SeenAt: timeText(h.Seen), GoneAt: timeText(h.Gone),
	}
	switch {
	case !h.Gone.IsZero():
		doc.State = HostGone
	case h.Silent:
		doc.State = HostSilent
	case h.Draining && h.Running > 0:
		doc.State = HostDraining
	case h.Draining:
		doc.State = HostDrained
	}
	return doc
}

// Overview is a page of the queue as operators see it.
type Overview struct {
	Tenants []LoadDocument `json:"tenants"`        // that have jobs in the queue, by name
	Items   []JobDocument  `json:"items"`          // in the order in which they were enqueued
	Next    int64          `json:"next,omitempty"` // Filter.After of the next page
}

// HostList is the hosts that work on the queue, and those that have died.
type HostList struct {
	Items []HostDocument `json:"items"`
}

// States are the states that a listing can be narrowed to, by their words.
var States = map[string]State{StateWaiting: Ready, StateSleeping: Sleeping, StateRunning: Running}

// Overview returns a page of the queue as operators see it.
func (q *Queue) Overview(ctx context.Context, f Filter) (Overview, error) {
	doc := Overview{Tenants: []LoadDocument{}, Items: []JobDocument{}}
	loads, err := q.Loads(ctx)
	if err != nil {
		return doc, err
	}
	for tenant, load := range loads {
		if f.Tenant != "" && f.Tenant != tenant {
			continue
		}
		line := load.Document(tenant)
		line.Paused = q.cfg.Limits(tenant).Paused
		doc.Tenants = append(doc.Tenants, line)
	}
	slices.SortFunc(doc.Tenants, func(a, b LoadDocument) int { return strings.Compare(a.Tenant, b.Tenant) })
	limit := cmp.Or(f.Limit, defaultLimit)
	f.Limit = limit + 1
	jobs, err := q.List(ctx, f)
	if len(jobs) > limit {
		jobs = jobs[:limit]
		doc.Next = jobs[limit-1].Number
	}
	for _, job := range jobs {
		doc.Items = append(doc.Items, job.Document())
	}
	return doc, err
}

// HostList returns the hosts as operators see them.
func (q *Queue) HostList(ctx context.Context) (HostList, error) {
	list := HostList{Items: []HostDocument{}}
	hosts, err := q.Hosts(ctx)
	for _, h := range hosts {
		list.Items = append(list.Items, h.Document())
	}
	return list, err
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
