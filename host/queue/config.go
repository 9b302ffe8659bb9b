package queue

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog"
)

// What zero means in a [Config].
const (
	DefaultWorkers    = 64
	DefaultLease      = 30 * time.Second
	DefaultPoll       = time.Second
	DefaultGrace      = 10 * time.Second
	DefaultMaxWaiting = 100_000
)

// Config is how a queue works. The zero value is that of a single process whose tenants
// are equal.
type Config struct {
	// Host names this process among those on the database, the same each time that it is
	// started. A process that begins to work under a name replaces the one before, which
	// is taken to be dead: its jobs are ready at once. Empty is a name that no other
	// process has; the jobs of a process that died are then handed out again once its
	// lease has ended.
	Host string

	// Label is what operators are shown as the name of this process, and Version as that
	// of its program. An empty Label is Host.
	Label, Version string

	// Ready says why this process should claim no jobs now, or nil. It is asked before the
	// first claim, after each [HostError], and at a third of the lease. Nil is always
	// ready.
	Ready func(context.Context) error

	// Existing has [Open] make no queue where there is none: that is [ErrNoTables]. Tables
	// of an older program are brought up to date; a log that is open for reading says
	// [eventlog.ErrReadOnly] then.
	Existing bool

	// Workers bounds the handlers that run at once in this process. Default: 64.
	Workers int

	// Lease is the time after which a process that has not renewed its lease is taken to
	// be dead. It renews it at a third of that. Default: 30 s.
	Lease time.Duration

	// Poll is how often to look for what other processes have enqueued or cancelled. On a
	// server they signal that as well. What this process enqueues needs no looking.
	// Default: 1 s.
	Poll time.Duration

	// Grace is how long Work lets handlers finish after its context has ended. Their
	// contexts then end with [ErrStopping], and it waits as long again. Default: 10 s.
	// Negative means no time at all.
	Grace time.Duration

	// MaxWaiting bounds the jobs of all tenants that are not running. Default: 100,000.
	MaxWaiting int

	// Limits returns what a tenant may take. It is called inside transactions and MUST
	// answer from memory. Nil means no limits and equal weights.
	Limits func(tenant string) Limits

	// Logger is told of failures that the queue gets over, of handlers that panic, of each
	// job that comes back, and of hosts that die.
	// Nil discards.
	Logger *slog.Logger

	// Clock tells the time. Nil means the machine's, or the server's where processes on
	// many machines share the queue.
	Clock Clock

	swept *atomic.Int64 // the day on which old usage was last removed
}

// Limits are what one tenant may take. The zero value limits nothing.
type Limits struct {
	Weight     float64 // its share in relation to other tenants; zero means one
	MaxRunning int     // jobs that run at once on all hosts; zero means any number
	MaxWaiting int     // jobs that are not running; zero means any number
	Paused     bool    // no job is handed out but to end its run, and those that run are given back
}

// resolve returns the configuration with its defaults filled in, or what is wrong with
// it.
func (c Config) resolve() (Config, error) {
	for _, f := range []struct {
		name string
		of   int64
	}{{"Workers", int64(c.Workers)}, {"Lease", int64(c.Lease)}, {"Poll", int64(c.Poll)}, {"MaxWaiting", int64(c.MaxWaiting)}} {
		if f.of < 0 {
			return c, fmt.Errorf("queue: Config.%s is %d, want 0 or more", f.name, f.of)
		}
	}
	c.swept = new(atomic.Int64)
	orDefault(&c.Workers, DefaultWorkers)
	orDefault(&c.Lease, DefaultLease)
	orDefault(&c.Poll, DefaultPoll)
	orDefault(&c.Grace, DefaultGrace)
	orDefault(&c.MaxWaiting, DefaultMaxWaiting)
	if c.Limits == nil {
		c.Limits = func(string) Limits { return Limits{} }
	}
	if c.Label == "" {
		c.Label = c.Host
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = machineClock{}
	}
	return c, nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
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

// serverClock tells the time of the database's server. All processes have to agree
// whether one of them is alive, and their own clocks may differ by more than a lease, or
// be set. Between two answers of the server this machine's monotonic clock goes on,
// which cannot be set.
type serverClock struct {
	machineClock
	server eventlog.Shared
	last   atomic.Pointer[reading]
}

// reading is what the server said, and when.
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

// keep asks again and again until ctx ends. While the server does not answer, what it
// said last holds.
func (c *serverClock) keep(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			limited, cancel := context.WithTimeout(ctx, every)
			_ = c.ask(limited)
			cancel()
		case <-ctx.Done():
			return
		}
	}
}
