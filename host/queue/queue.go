package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrFull means that the queue holds as many jobs as it may. See [FullError].
	ErrFull = errors.New("queue: full")
	// ErrTenantFull means that the tenant has as many jobs waiting as it may. See
	// [FullError].
	ErrTenantFull = errors.New("queue: the tenant has too many jobs waiting")
	// ErrExists means that a job of the run is in the queue already.
	ErrExists = errors.New("queue: the run is in the queue already")
	// ErrNotFound means that no job of the run is in the queue: it is done, or
	// there never was one.
	ErrNotFound = errors.New("queue: the run is not in the queue")
	// ErrNotSleeping means that the job is waiting or running, so there is nothing to
	// bring forward.
	ErrNotSleeping = errors.New("queue: the run does not sleep")
	// ErrNoHost means that no process that works has that id or name.
	ErrNoHost = errors.New("queue: there is no such host")
	// ErrNoTables means that the database has no queue.
	ErrNoTables = errors.New("queue: the database has no queue")
	// ErrWorking means that Work runs already.
	ErrWorking = errors.New("queue: Work runs already")

	// ErrCancelled is the cause with which a handler's context ends when its job
	// is cancelled. The handler is to end the run.
	ErrCancelled = errors.New("queue: the job was cancelled")
	// ErrLost is the cause with which a handler's context ends when this process
	// has not renewed its lease in time. Whatever the handler returns is ignored.
	ErrLost = errors.New("queue: the lease was lost")
	// ErrStopping is the cause with which a handler's context ends when its job is to be
	// given back: Work has been told to stop and the grace period is over, or the tenant
	// is paused. An error that the handler returns then spends no attempt.
	ErrStopping = errors.New("queue: the job is given back")
)

// HostError is the error of a handler that could not do its part for a reason of its
// host's own: a key, a database, a disk. It spends no attempt. The job is handed out again
// after one second, then two, four, up to four minutes, here or on another host; and a
// host whose [Config].Ready fails after it claims nothing until that succeeds. Its text goes to
// the operator's log, so it has nothing that a tenant controls.
type HostError struct {
	Class string // such as "keys"; in lower case
	Err   error
}

// Error returns the text of Err.
func (e *HostError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *HostError) Unwrap() error { return e.Err }

// FullError says how long to wait before another attempt to enqueue. It is
// [ErrFull] or [ErrTenantFull].
type FullError struct {
	Reason error
	After  time.Duration // an estimate, from one second up to five minutes
}

// Error names the reason.
func (e *FullError) Error() string { return fmt.Sprintf("%v; try again in %v", e.Reason, e.After) }

// Unwrap returns the reason.
func (e *FullError) Unwrap() error { return e.Reason }

// DefaultMaxAttempts is what zero means in Job.MaxAttempts. With it a job fails
// for good after about six minutes.
const DefaultMaxAttempts = 5

// A process that dies takes all its jobs with it, and most often none of them is to
// blame. But one that is must not kill one process after the other for ever.
const (
	// MaxDeaths is how many processes may die while a job's run is under way. The first
	// death is not among them: until then it is not stored which runs begin.
	MaxDeaths = 5
	// MaxStranded is how many processes may die that have a job whose run has not begun.
	// They die of something else, or while they prepare it.
	MaxStranded = 1000
	// MaxHostFailures is how often a job may come back with a [HostError], which takes
	// days.
	MaxHostFailures = 1000
)

// Bounds of a job.
const (
	MaxTenantBytes  = 255
	MaxPayloadBytes = 1 << 20
)

// Job is one run, to be worked once.
type Job struct {
	RunID       string // at most eventlog.MaxRunIDBytes
	Tenant      string // whose share of the workers it takes; may be empty
	Priority    int    // among the jobs of the tenant, greater goes first
	MaxAttempts int    // zero means [DefaultMaxAttempts]
	Payload     []byte // what the handler needs to know; not in the log
}

// Check returns what is wrong with the job, or nil.
func (j Job) Check() error {
	switch {
	case j.RunID == "" || len(j.RunID) > eventlog.MaxRunIDBytes:
		return fmt.Errorf("queue: Job.RunID has %d bytes, want 1 to %d", len(j.RunID), eventlog.MaxRunIDBytes)
	case !plain(j.RunID) || !plain(j.Tenant):
		return fmt.Errorf("queue: Job.RunID %q or Job.Tenant %q is not UTF-8 or has a zero byte", j.RunID, j.Tenant)
	case len(j.Tenant) > MaxTenantBytes:
		return fmt.Errorf("queue: Job.Tenant has %d bytes, want at most %d", len(j.Tenant), MaxTenantBytes)
	case j.MaxAttempts < 0:
		return fmt.Errorf("queue: Job.MaxAttempts is %d, want 0 or more", j.MaxAttempts)
	case len(j.Payload) > MaxPayloadBytes:
		return fmt.Errorf("queue: Job.Payload has %d bytes, want at most %d", len(j.Payload), MaxPayloadBytes)
	}
	return nil
}

// plain reports whether every database takes the text.
func plain(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// Lease is a job that was handed out.
type Lease struct {
	Job

	// Attempt counts how often the job was handed out, this time included. Snoozes,
	// failures of the host and attempts during which the process died are not among them.
	Attempt      int
	Snoozes      int
	HostFailures int

	// Deaths counts the processes that died after the run had begun there, Stranded
	// those that died before, as far as that is known. See Begin.
	Deaths, Stranded int

	// Epoch is what the handler appends under: see eventlog.Fencer.
	Epoch uint64

	// Cancelled means that the job was cancelled before it was handed out. The
	// handler is to end the run, and nothing else.
	Cancelled bool

	// Exhausted means that MaxAttempts are spent, or that [MaxDeaths], [MaxStranded] or
	// [MaxHostFailures] are reached. The handler is to end the run, and nothing else. Failure says of
	// what.
	Exhausted bool

	// Failure is the error of the last attempt that came back, and Class its class: that of
	// a [HostError], "snooze", "panic", or "internal" for any other. Both are empty when
	// there was none, and after an attempt during which the process died.
	Class, Failure string

	// Begin is to be called when the run has nothing left to wait for, before it does
	// anything that this process could die of. If the job is a suspect, it returns when
	// it is durable that the run begins; otherwise at once. An error means that the run
	// must not begin. Begin is nil in a [Status].
	Begin func(ctx context.Context) error

	// Used is to be called by the handler with what the run has used in all. It is added to
	// the tenant's day in the transaction that ends the job. Used is nil in a [Status].
	Used func(Usage)
}

// Suspect reports whether a process has died that had the job.
func (l Lease) Suspect() bool { return l.Deaths+l.Stranded > 0 }

// Handler works a job. The context ends with cause [ErrCancelled], [ErrLost] or
// [ErrStopping]. What the error means is said in the package comment; a panic is
// an error like any other.
type Handler func(ctx context.Context, l Lease) error

// State is where a job is in its life.
type State int

// The states of a job. The numbers are stored.
const (
	Ready    State = iota // to be handed out when the tenant is next
	Sleeping              // to be ready at a point in time
	Running               // handed out
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Ready:
		return "ready"
	case Sleeping:
		return "sleeping"
	case Running:
		return "running"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// Status is where a job stands. It has no payload.
type Status struct {
	Lease
	State    State
	Number   int64     // in the order in which jobs were enqueued
	Position int       // jobs of the tenant that are before it, while it is ready
	Due      time.Time // when it will be ready, while it sleeps
	Host     string    // the name of its host, while it runs
	Started  time.Time // when it was handed out, while it runs
	Enqueued time.Time
}

// Stats counts jobs.
type Stats struct {
	Ready, Sleeping, Running int
	Oldest                   time.Time // when the oldest of all these was enqueued; zero when there is none
}
