package queue

import (
	"fmt"
	"log/slog"
	"time"
)

// What zero means in a [Config].
const (
	DefaultWorkers    = 64
	DefaultLease      = 30 * time.Second
	DefaultPoll       = time.Second
	DefaultGrace      = 10 * time.Second
	DefaultMaxWaiting = 100_000
)

// Config is how a queue works. The zero value is that of a single daemon whose
// tenants are equal.
type Config struct {
	// Host names this daemon among those on the database, the same each time that
	// it is started. Whoever begins to work under a name is taken for the successor
	// of the one before, which is taken to be dead: its jobs are ready at once.
	// Empty is a name that nobody else has; the jobs of a daemon that died are then
	// handed out again once its lease has ended.
	Host string

	// Workers bounds the handlers that run at once in this process. Default: 64.
	Workers int

	// Lease is the time after which a process that has not been heard of is taken
	// to be dead. It renews its lease at a third of that. Default: 30 s.
	Lease time.Duration

	// Poll is how often to look for what other processes have enqueued or
	// cancelled. What this process enqueues needs no looking. Default: 1 s.
	Poll time.Duration

	// Grace is how long Work lets handlers finish after its context has ended.
	// Their contexts then end with [ErrStopping], and it waits as long again.
	// Default: 10 s. Negative means no time at all.
	Grace time.Duration

	// MaxWaiting bounds the jobs of all tenants that are not running. Default:
	// 100,000.
	MaxWaiting int

	// Limits returns what a tenant may take. It is called inside transactions and
	// MUST answer from memory. Nil means no limits and equal weights.
	Limits func(tenant string) Limits

	// Logger is told of failures that the queue gets over, and of handlers that
	// panic. Nil means nobody.
	Logger *slog.Logger

	// Clock tells the time. Nil means the machine's, or the server's where processes
	// on many machines share the queue.
	Clock Clock
}

// Limits are what one tenant may take. The zero value limits nothing.
type Limits struct {
	Weight     float64 // turns in relation to other tenants; zero means one
	MaxRunning int     // jobs that run at once on all hosts; zero means any number
	MaxWaiting int     // jobs that are not running; zero means any number
	Paused     bool    // no job is handed out, except to end one that was cancelled
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

// Resolve returns the configuration with its defaults filled in, or what is
// wrong with it.
func (c Config) Resolve() (Config, error) {
	for _, f := range []struct {
		name string
		of   int64
	}{{"Workers", int64(c.Workers)}, {"Lease", int64(c.Lease)}, {"Poll", int64(c.Poll)}, {"MaxWaiting", int64(c.MaxWaiting)}} {
		if f.of < 0 {
			return c, fmt.Errorf("queue: Config.%s is %d, want 0 or more", f.name, f.of)
		}
	}
	orDefault(&c.Workers, DefaultWorkers)
	orDefault(&c.Lease, DefaultLease)
	orDefault(&c.Poll, DefaultPoll)
	orDefault(&c.Grace, DefaultGrace)
	orDefault(&c.MaxWaiting, DefaultMaxWaiting)
	if c.Limits == nil {
		c.Limits = func(string) Limits { return Limits{} }
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
