package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/host/disk"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/observe"
)

// Log is what a daemon needs of its event log: all of these are implemented by the
// logs in a database.
type Log interface {
	eventlog.EventLog
	eventlog.RunFinder
	eventlog.RunPageLister
	eventlog.RunPruner
	eventlog.ModuleStore
	eventlog.ModuleKeeper
	eventlog.Transactor
	eventlog.Fencer
}

// Agent is an agent that runs are made of.
type Agent struct {
	Name        string
	Description string

	// Agent has everything but a log. It is copied for each run.
	Agent agent.Agent

	// Variables are told to its tools, before those that come with a run; a JSON
	// object or nil.
	Variables []byte
}

// Config is what a daemon is made of. Log, Tenants, Queue and Inline are required.
type Config struct {
	Log     Log
	Tenants *tenant.Store
	Queue   *queue.Queue

	// Directory is what the queue asks about tenants. It is told of those that ask for
	// something, so that their limits hold from then on. Nil is told nothing.
	Directory *Directory

	// Policy returns the operator's policy as it is now. What it does not allow, no
	// policy of a tenant does. Nil, or returning nil, allows no request.
	Policy func() *policy.Policy

	// Agents can be asked for by name.
	Agents []Agent

	// Inline executes modules that are trusted. Isolated executes all others; nil
	// leaves them to Inline, which is for tests and for hosts whose only tenant is
	// their operator.
	Inline, Isolated guest.Engine

	// OperatorKey is what the routes below /api/v1/operator ask for, which show and steer
	// what is of all tenants. MetricsKey opens /metrics alone, and so does OperatorKey. An
	// empty key is no key.
	OperatorKey, MetricsKey string

	// OpenMetrics lets everybody read /metrics, whatever their key. It is for hosts that
	// nobody but their operator can reach, not even through something in front of them.
	OpenMetrics bool

	// Metrics answers /metrics, Inspector everything below /inspect/, and MCP /mcp.
	// Nil leaves the route out. Inspector lets its users in by itself, see
	// [Daemon.Authenticate]; requests to MCP have been let in, see [AccountOf].
	Metrics, Inspector, MCP http.Handler

	// Observe and Runs measure requests and runs. Nil measures nothing.
	Observe *observe.HTTPMetrics
	Runs    *observe.Metrics

	// Tracer makes the spans of tenants' requests and of their runs. Nil makes none.
	Tracer *observe.Tracer

	// Defaults are the limits of tenants as far as they have none of their own, and
	// tenant.DefaultLimits those that are zero here.
	Defaults tenant.Limits

	// Retention removes runs that have ended and began longer ago. Zero keeps all.
	// RetentionEvery is how often that is looked at; zero means an hour. Retained
	// measures it; nil measures nothing.
	Retention, RetentionEvery time.Duration
	Retained                  *observe.Retention

	// Held are the modules of the agents and their sizes. They stay in the log while the
	// daemon serves, and as long as there are runs that may name them.
	Held map[chain.Hash]int64

	// Disk returns the room on the disk of the database. Nil is not known.
	Disk func() (disk.Room, error)

	// KeepFree is how many bytes of the disk stay free: below, the daemon refuses
	// modules, and below half of it runs, so that those that were accepted can be
	// finished. Zero means a sixteenth of the disk, at least 64 MiB and at most 512 MiB.
	KeepFree int64

	// MaxModuleBytes bounds the modules of all tenants together, in bytes. Zero is no
	// bound.
	MaxModuleBytes int64

	// MaxModule bounds an upload in bytes. Zero means 16 MiB, which a Go program
	// with net/http needs.
	MaxModule int64

	// MaxModules bounds the modules of one tenant. Zero means 100.
	MaxModules int

	// MaxWait bounds how long a request waits for its run to end. Zero means 60 s.
	MaxWait time.Duration

	// Heartbeat is how often a stream without events says that it is there. Zero
	// means 15 s.
	Heartbeat time.Duration

	// MaxStreams bounds the requests of one tenant that wait for runs or follow
	// them. Zero means 100.
	MaxStreams int

	// MaxReplays bounds the replays at a time, of all tenants. One tenant has half of
	// them at most. Zero means 2.
	MaxReplays int

	// MaxIdleModules bounds the loaded modules that no call uses, and
	// MaxIdleModuleBytes how much they are together, see [guest.Module.Size]. Zero
	// means 32, and 128 MiB.
	MaxIdleModules     int
	MaxIdleModuleBytes int

	// MaxAttempts bounds how often a run is taken up that the host could not go on
	// with. Zero means 5.
	MaxAttempts int

	// HeaderTime bounds how long the headers of a request may take to arrive, and then
	// again its body, and how long a client without a key may take to read the answer.
	// RequestTime bounds the body of a module instead, from when the daemon begins to read
	// it. IdleTime is how long a connection may be idle. Zero means 5 s, 60 s and two
	// minutes.
	HeaderTime, RequestTime, IdleTime time.Duration

	// Drain is how long a daemon that ends goes on answering, if anybody has asked it
	// whether it is ready: that it is not, to them, and 503 to new work. Zero means
	// 5 s.
	Drain time.Duration

	// MaxConnections bounds the connections of clients. A further one replaces the oldest
	// of those without a key, or one of the tenant that has the most. A tenant may have
	// half as many requests in progress. Zero means 4096.
	MaxConnections int

	// TLS encrypts the connections of clients. Nil leaves them in the clear.
	TLS *tls.Config

	// Version is that of the program, for the record.
	Version string

	// Logger is told of failures. Nil discards.
	Logger *slog.Logger
}

func (c Config) complete() Config {
	orDefault(&c.MaxModule, 16<<20)
	orDefault(&c.MaxModules, 100)
	orDefault(&c.MaxWait, time.Minute)
	orDefault(&c.Heartbeat, 15*time.Second)
	orDefault(&c.MaxStreams, 100)
	orDefault(&c.MaxReplays, 2)
	orDefault(&c.MaxIdleModules, 32)
	orDefault(&c.MaxIdleModuleBytes, 128<<20)
	orDefault(&c.MaxAttempts, 5)
	orDefault(&c.RetentionEvery, time.Hour)
	orDefault(&c.HeaderTime, 5*time.Second)
	orDefault(&c.RequestTime, time.Minute)
	orDefault(&c.IdleTime, 2*time.Minute)
	orDefault(&c.Drain, 5*time.Second)
	orDefault(&c.MaxConnections, 4096)
	c.Defaults = c.Defaults.Or(tenant.DefaultLimits())
	if c.Isolated == nil {
		c.Isolated = c.Inline
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T int | int64 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

func (c Config) validate() error {
	switch {
	case c.Log == nil:
		return errors.New("daemon: Config.Log is nil")
	case c.Tenants == nil:
		return errors.New("daemon: Config.Tenants is nil")
	case c.Queue == nil:
		return errors.New("daemon: Config.Queue is nil")
	case c.Inline == nil:
		return errors.New("daemon: Config.Inline is nil")
	}
	seen := map[string]bool{}
	for _, a := range c.Agents {
		if a.Name == "" || seen[a.Name] {
			return fmt.Errorf("daemon: two agents, or none, are called %q", a.Name)
		}
		seen[a.Name] = true
	}
	return nil
}
