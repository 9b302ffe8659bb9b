package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/serve/tenant"
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
	ErrNoHost = errors.New("queue: unknown host")
	// ErrNoTables means that the database has no queue.
	ErrNoTables = errors.New("queue: the database has no queue")
	// ErrWorking means that Work runs already.
	ErrWorking = errors.New("queue: Work runs already")

	// ErrCancelled is the cause of the end of a handler's context when its job is cancelled. The
	// handler must end the run.
	ErrCancelled = errors.New("queue: the job was cancelled")
	// ErrLost is the cause of the end of a handler's context when this process has not renewed its
	// lease in time. The handler's result is ignored.
	ErrLost = errors.New("queue: the lease was lost")
	// ErrStopping is the cause of the end of a handler's context when its job must be given back:
	// Work is stopping and the grace period is over, or the tenant is paused. An error of the
	// handler then spends no attempt.
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

// FullError carries how long to wait before trying to enqueue again. It is
// [ErrFull] or [ErrTenantFull].
type FullError struct {
	Reason error
	After  time.Duration // an estimate, from one second up to five minutes
}

// Error names the reason.
func (e *FullError) Error() string { return fmt.Sprintf("%v; try again in %v", e.Reason, e.After) }

// Unwrap returns the reason.
func (e *FullError) Unwrap() error { return e.Reason }

// DefaultMaxAttempts is the default of Job.MaxAttempts. With it a job fails for
// good after about six minutes.
const DefaultMaxAttempts = 5

// A process that dies takes all its jobs with it, and usually none of them caused it. But a job
// that did must not kill one process after the other for ever.
const (
	// MaxDeaths is how many processes may die while a job's run is under way. The first
	// death does not count: until then, the start of a run is not stored.
	MaxDeaths = 5
	// MaxStranded is how many processes may die that hold a job whose run has not begun.
	// They die of something else, or while they prepare the run.
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
	Payload     []byte // the handler's input; not in the log
}

// Check returns the first error in the job, or nil.
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

	// Deaths counts the processes that died after the run had begun there, and
	// Stranded the processes known to have died before. See Begin.
	Deaths, Stranded int

	// Epoch is the epoch under which the handler appends: see eventlog.Store.
	Epoch uint64

	// Cancelled means that the job was cancelled before it was handed out. The
	// handler must end the run, and do nothing else.
	Cancelled bool

	// Exhausted means that MaxAttempts are spent, or that [MaxDeaths], [MaxStranded] or
	// [MaxHostFailures] are reached. The handler must end the run, and do nothing else. Failure has
	// the reason.
	Exhausted bool

	// Failure is the error of the last failed attempt, and Class its class: that of a [HostError],
	// "snooze", "panic", or "internal" for any other. Both are empty if no attempt failed, and
	// after an attempt during which the process died.
	Class, Failure string

	// The handler must call Begin when the run has nothing left to wait for, before it
	// does anything that could kill this process. If the job is a suspect, Begin
	// returns once the start of the run is durable; otherwise at once. If it returns an
	// error, the run must not begin.
	Begin func(ctx context.Context) error

	// The handler calls Used with the total usage of the run. It is added to the tenant's
	// day in the transaction that ends the job.
	Used func(tenant.DayUsage)
}

// Suspect reports whether a process has died that had the job.
func (l Lease) Suspect() bool { return l.Deaths+l.Stranded > 0 }

// Handler works a job. The context ends with cause [ErrCancelled], [ErrLost] or
// [ErrStopping]. The package comment describes what each error means; a panic is
// an error like any other.
type Handler func(ctx context.Context, l Lease) error

// State is the word for where a job stands.
type State string

// The states of a job.
const (
	Waiting    State = "waiting"    // for its tenant to be next
	Sleeping   State = "sleeping"   // until a point in time
	Running    State = "running"    // on a host
	Cancelling State = "cancelling" // cancelled, and its run has not ended yet
)

// Progress is the state of a job, its attempts and its last failure, as documents and pages
// show it.
type Progress struct {
	State       State      `json:"state"`
	Attempt     int        `json:"attempt"` // that runs, or ran last; 0 before the first
	MaxAttempts int        `json:"max_attempts"`
	Until       time.Time  `json:"until,omitzero"` // when it wakes, while it sleeps
	Since       time.Time  `json:"since,omitzero"` // when it was handed out, while it runs
	LastError   *LastError `json:"last_error,omitempty"`
}

// LastError is why the last attempt came to nothing: [Lease].Class and Failure. The message
// may have text of the host's, or of a tenant's; it is for operators.
type LastError struct {
	Class   string `json:"class"`
	Message string `json:"message,omitempty"`
}

// Status is a job as operators see it.
type Status struct {
	Tenant string `json:"tenant"`
	RunID  string `json:"run_id"` // in the log
	Progress
	Host         string    `json:"host,omitempty"` // the name of its host, while it runs
	Enqueued     time.Time `json:"enqueued_at"`
	Priority     int       `json:"priority,omitempty"`
	Snoozes      int       `json:"snoozes,omitempty"`
	HostFailures int       `json:"host_failures,omitempty"` // attempts that failed for a reason of a host's own
	Deaths       int       `json:"deaths,omitempty"`        // processes that died while they had it

	Number   int64  `json:"-"` // in the order in which jobs were enqueued
	Position int    `json:"-"` // jobs of the tenant that are before it, while it is ready
	Epoch    uint64 `json:"-"` // see [Lease]
}

// Stats counts jobs: of a tenant, or of all.
type Stats struct {
	Tenant   string    `json:"tenant"`
	Waiting  int       `json:"waiting"`
	Sleeping int       `json:"sleeping"`
	Running  int       `json:"running"`
	Oldest   time.Time `json:"oldest"` // when the oldest of them was enqueued, or zero
	Paused   bool      `json:"paused,omitempty"`
	Tenants  int       `json:"-"` // that have ready jobs, in the Stats of all
}

// What zero means in a [Config].
const (
	DefaultWorkers    = 64
	DefaultLease      = 30 * time.Second
	DefaultPoll       = time.Second
	DefaultGrace      = 10 * time.Second
	DefaultMaxWaiting = 100_000
)

// Config configures a queue. The zero value suits a single process whose tenants are
// equal.
type Config struct {
	// Host names this process among those on the database, the same each time that it is
	// started. A process that begins to work under a name replaces the earlier one,
	// which counts as dead: its jobs are ready at once. Empty is a name that no other
	// process has; the jobs of a process that died are then handed out again once its
	// lease has ended.
	Host string

	// Label and Version are the name of this process and the version of its program, as
	// operators see them. An empty Label is Host.
	Label, Version string

	// Ready returns the reason why this process should claim no jobs now, or nil. It is
	// called before the first claim, after each [HostError], and every third of the lease.
	// A nil Ready means always ready.
	Ready func(context.Context) error

	// Existing makes [Open] return [ErrNoTables] if there is no queue, instead of creating one.
	Existing bool

	// Workers bounds the handlers that run at once in this process. Default: 64.
	Workers int

	// Lease is the time after which a process that has not renewed its lease counts as
	// dead. It renews it at a third of that. Default: 30 s.
	Lease time.Duration

	// Poll is how often to look for jobs that other processes have enqueued or cancelled.
	// On a server, signals announce them as well. A process needs no poll for the jobs
	// that it enqueues itself. Default: 1 s.
	Poll time.Duration

	// Grace is how long Work lets handlers finish after its context has ended. Their
	// contexts then end with [ErrStopping], and Work waits that long once more.
	// Default: 10 s. A negative Grace means no time at all.
	Grace time.Duration

	// MaxWaiting bounds the jobs of all tenants that are not running. Default: 100,000. A process counts
	// its own jobs, and once in Poll those of others.
	MaxWaiting int

	// Limits returns the limits of a tenant. It is called inside transactions and MUST
	// answer from memory. Nil means no limits and equal weights.
	Limits func(tenant string) Limits

	// Logger receives the failures that the queue recovers from, handlers that panic, each
	// job that comes back, and hosts that die. Nil discards.
	Logger *slog.Logger

	// Clock tells the time. Nil means the machine's, or the server's where processes on
	// many machines share the queue.
	Clock Clock

	swept  *atomic.Int64 // the day on which old usage was last removed
	number *int64        // of the last job that this process has enqueued; for the goroutine that makes transactions
}

// Limits are the limits of one tenant. The zero value limits nothing.
type Limits struct {
	Weight     float64 // its share in relation to other tenants; zero means one
	MaxRunning int     // jobs that run at once on all hosts; zero means any number
	MaxWaiting int     // jobs that are not running; zero means any number
	Paused     bool    // jobs are handed out only to end their runs, and running jobs are given back
}

// resolve checks the configuration and fills in its defaults.
func (c Config) resolve() (Config, error) {
	for _, f := range []struct {
		name string
		of   int64
	}{{"Workers", int64(c.Workers)}, {"Lease", int64(c.Lease)}, {"Poll", int64(c.Poll)}, {"MaxWaiting", int64(c.MaxWaiting)}} {
		if f.of < 0 {
			return c, fmt.Errorf("queue: Config.%s is %d, want 0 or more", f.name, f.of)
		}
	}
	c.swept, c.number = new(atomic.Int64), new(int64)
	c.Workers = cmp.Or(c.Workers, DefaultWorkers)
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.Poll = cmp.Or(c.Poll, DefaultPoll)
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, DefaultMaxWaiting)
	if c.Limits == nil {
		c.Limits = func(string) Limits { return Limits{} }
	}
	c.Label = cmp.Or(c.Label, c.Host)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Clock = cmp.Or[Clock](c.Clock, machineClock{})
	return c, nil
}

// Clock tells the time, and may be another one in tests.
type Clock interface {
	Now() time.Time
	// After returns a channel that gets the time once d has passed.
	After(d time.Duration) <-chan time.Time
}

type machineClock struct{}

func (machineClock) Now() time.Time                         { return time.Now() }
func (machineClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// serverClock returns the time of the database server. All processes must agree on whether a
// process is alive, but their own clocks can be set, and can differ by more than a lease. Between
// two answers of the server it adds this machine's monotonic clock, which cannot be set.
type serverClock struct {
	machineClock
	server eventlog.Shared
	last   atomic.Pointer[reading]
}

// reading is an answer of the server, and when it came.
type reading struct{ server, here time.Time }

// Now implements [Clock].
func (c *serverClock) Now() time.Time {
	r := c.last.Load()
	return r.server.Add(time.Since(r.here))
}

// ask takes the server to have looked in the middle of the time that its answer took.
func (c *serverClock) ask(ctx context.Context) error {
	asked := time.Now()
	server, err := c.server.Now(ctx)
	if err != nil {
		return fmt.Errorf("queue: the server's clock: %w", err)
	}
	c.last.Store(&reading{server, asked.Add(time.Since(asked) / 2)})
	return nil
}

// keep reads the server's time every so often until ctx ends. While the server does
// not answer, the last reading holds.
func (c *serverClock) keep(ctx context.Context, every time.Duration) {
	for range await.Every(ctx, every) {
		limited, cancel := context.WithTimeout(ctx, every)
		_ = c.ask(limited)
		cancel()
	}
}
