package daemon

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// Daemon is the host over HTTP. Use [New]. It answers requests and works on runs;
// a process may do the one without the other.
type Daemon struct {
	config Config
	logger *slog.Logger
	agents map[string]*Agent
	mux    *http.ServeMux

	modules   *guest.Cache[moduleKey]
	recorded  *guest.RecordedModules
	requests  rates // by the second
	uploads   rates // by the hour
	host      share.Host
	streams   *guest.Scheduler // of requests that follow runs or wait for them
	compiles  *guest.Scheduler // a quarter of the processors, one module of each tenant
	replays   *guest.Scheduler
	validKeys recent[[sha256.Size]byte, struct{}] // the digests of keys that were valid
	volume    *volumes
	disk      diskSpace
	outbound  connectionLimits
	accounts  share.Cache[string, *snapshot] // by tenant

	serving context.Context // ends when the daemon shuts down
	stop    context.CancelFunc
	taking  context.Context // ends when it stops taking work, at the latest with the daemon
	refuse  context.CancelFunc
	probed  atomic.Bool // it was asked whether it is ready
	failing failing     // of the checks of readiness
	writes  writes

	loads      sync.WaitGroup // of modules, which outlast their requests
	answerTime time.Duration  // [answerTime]
}

// New returns a daemon.
func New(ctx context.Context, c Config) (*Daemon, error) {
	c = c.complete()
	d := &Daemon{
		config: c, logger: c.Logger, agents: map[string]*Agent{},
		recorded: guest.NewRecorded(c.Isolated, c.Log, nil, agentfile.Offline),
		host:     share.Host{CPU: c.CPU, Memory: guest.NewPool(share.Memory), Log: c.Log},
		streams:  guest.NewScheduler(math.MaxInt),
		compiles: guest.NewScheduler(runtime.GOMAXPROCS(0)/4, 1),
		replays:  guest.NewScheduler(c.Requests.Replays),
		volume:   newVolumes(c.Log, c.Queue),
		disk:     diskSpace{of: c.Disk, keep: c.Space.KeepFree},
		accounts: share.Cache[string, *snapshot]{Most: maxCached, For: cachedFor},
		failing:  failing{since: map[string]time.Time{}},

		answerTime: answerTime,
	}
	d.modules = guest.NewCache(guest.CacheLimits{Modules: c.Requests.Loaded, Bytes: c.MaxIdleModuleBytes}, d.load)
	for i := range c.Agents {
		name := c.Agents[i].Name
		if name == "" || d.agents[name] != nil {
			return nil, fmt.Errorf("daemon: two agents, or none, are called %q", name)
		}
		d.agents[name] = &c.Agents[i]
		of := &c.Agents[i].Agent // its model and its tools have labels before a call of them succeeds
		d.config.Runs.KnowModels(of.Config.Model)
		for _, t := range of.Tools {
			d.config.Runs.KnowTools(t.Name())
		}
	}
	d.serving, d.stop = context.WithCancel(context.Background())
	d.taking, d.refuse = context.WithCancel(d.serving)
	d.mux = d.newMux()
	return d, nil
}

// maxHeader bounds the headers of a request, in bytes. Go adds 4 KiB of its own.
const maxHeader = 16 << 10

// Serve answers requests and works on runs until ctx ends. Then it takes no more
// work, tells so for [Settings].Drain, lets requests and runs finish within the grace
// periods, hands back the runs that do not, and returns. Nothing that was
// acknowledged is lost.
func (d *Daemon) Serve(ctx context.Context, l net.Listener) error {
	conns := newConnections(d.config.Connections.Max, d.logger)
	server := &http.Server{
		Handler: d, MaxHeaderBytes: maxHeader, ConnContext: conns.context, ConnState: conns.state,
		ReadHeaderTimeout: d.config.HeaderTime, IdleTimeout: d.config.Connections.Idle,
		ErrorLog: slog.NewLogLogger(d.logger.Handler(), slog.LevelDebug),
	}
	working, halt := context.WithCancel(ctx)
	defer halt()
	var wg sync.WaitGroup
	var worked error
	wg.Go(func() {
		worked = d.Work(working)
		halt() // a daemon whose queue has failed stops answering
	})
	wg.Go(func() { d.upkeep(working) })
	wg.Go(func() { d.disk.watch(working, d.logger) })
	listening, closed := context.WithCancel(context.Background())
	wg.Go(func() {
		<-working.Done()
		d.logger.Info("stopping", "why", context.Cause(working))
		d.drain(listening)
		d.stop() // clients that follow a run connect again, to another host
		late, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		if server.Shutdown(late) != nil {
			server.Close()
		}
	})
	l = limitedListener{l, conns}
	if d.config.TLS != nil { // net/http recognizes an encrypted connection by its type, and so does the web view for its cookies
		l = tls.NewListener(l, d.config.TLS)
	}
	err := server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	closed()
	halt()
	wg.Wait()
	d.logger.Info("stopped")
	return errors.Join(err, worked)
}

// drain goes on answering for a while, as long as clients can connect. A load balancer that
// asks whether the host is ready learns that it is not, and sends requests elsewhere before
// they are refused. A host that was never asked does not wait.
func (d *Daemon) drain(listening context.Context) {
	d.refuse()
	if !d.probed.Load() {
		return
	}
	d.logger.Info("draining", "for", d.config.Drain)
	select {
	case <-time.After(d.config.Drain):
	case <-listening.Done():
	}
}

// takesWork returns the answer to new work once none is taken any more.
func (d *Daemon) takesWork() error {
	if d.taking.Err() == nil {
		return nil
	}
	return unavailable.because("the host is stopping").retry(retryElsewhere)
}

// retryElsewhere is when a request may be sent again that this host cannot serve: to
// another one, or to the next process.
const retryElsewhere = 5 * time.Second

// shutdownGrace is how long requests may take to be answered.
const shutdownGrace = 10 * time.Second

// Work works on runs until ctx ends. See [queue.Queue.Work].
func (d *Daemon) Work(ctx context.Context) error { return d.config.Queue.Work(ctx, d.work) }

// Close releases loaded modules. Serve and Work must have returned.
func (d *Daemon) Close() {
	d.stop()
	d.loads.Wait()
	d.modules.Close()
	d.recorded.Close()
}

// whileServing returns a context that ends with ctx and when the daemon shuts
// down.
func (d *Daemon) whileServing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	undo := context.AfterFunc(d.serving, cancel)
	return ctx, func() { undo(); cancel() }
}

var _ http.Handler = (*Daemon)(nil)

// Log is a daemon's event log.
type Log = eventlog.Database

// Agent is an agent that runs are made of.
type Agent struct {
	Name        string
	Description string

	// Agent has everything but a log. It is copied for each run.
	Agent agent.Agent

	// Variables are passed to its tools, before the variables of a run; a JSON object or nil.
	Variables []byte

	// Modules are the modules of its tools. The log may have removed one because no run used it;
	// then a run that needs it stores it again.
	Modules map[canon.Hash][]byte
}

// Settings are the numbers and times of a daemon, as a host.yaml has them. Zero means the
// default.
type Settings struct {
	// Limits are the limits of tenants without their own. Zero fields take the value of
	// tenant.DefaultLimits.
	Limits tenant.Limits `yaml:"limits"`

	// Drain is how long a daemon that ends continues to answer, if it was ever asked whether it is
	// ready. It reports that it is not ready, and refuses new work with 503. Zero means 5 s.
	Drain time.Duration `yaml:"drain"`

	Requests struct {
		Module  int64         `yaml:"module"`         // bytes of an upload: 16 MiB, which a Go program with net/http needs
		Modules int           `yaml:"modules"`        // of one tenant: 100
		Wait    time.Duration `yaml:"wait"`           // how long a request waits for its run to end: 60 s
		Streams int           `yaml:"streams"`        // requests of one tenant that wait for runs or follow them: 100
		Replays int           `yaml:"replays"`        // at a time, of all tenants, half of them for one tenant: 2
		Loaded  int           `yaml:"loaded_modules"` // that no call uses: 32
	} `yaml:"requests"`

	Connections struct {
		// Max bounds the connections of clients. Beyond it, a new connection replaces the oldest
		// one without a key, or one of the tenant with the most. A tenant may have half as many
		// requests in progress. Zero means 4096.
		Max     int           `yaml:"max"`
		Request time.Duration `yaml:"request"` // how long the body of a module may take, from when the daemon begins to read it: 60 s
		Idle    time.Duration `yaml:"idle"`    // how long a connection may be idle: 2 minutes
	} `yaml:"connections"`

	Retention struct {
		OlderThan time.Duration `yaml:"older_than"` // runs that have ended and began longer ago are removed; zero keeps all
		Every     time.Duration `yaml:"every"`      // how often: each hour
		ArchiveTo string        `yaml:"archive_to"` // a folder for archives of what is removed; empty for none
		// Ahead is how many months ahead the daemon makes partitions. It then drops whole partitions,
		// and removes no single runs. Zero leaves the partitions of a server alone.
		Ahead int `yaml:"ahead"`
	} `yaml:"retention"`

	Space struct {
		// KeepFree is how many bytes of the disk stay free: below, the daemon refuses
		// modules, and below half of it runs, so that accepted runs can be finished. Zero
		// means a sixteenth of the disk, at least 64 MiB and at most 512 MiB.
		KeepFree int64 `yaml:"keep_free"`
		Modules  int64 `yaml:"modules"` // bytes of the modules of all tenants together; zero sets no bound
	} `yaml:"space"`
}

// Config is what a daemon is made of. Log, Tenants, Queue and Inline are required.
type Config struct {
	Settings

	Log     Log
	Tenants *tenant.Store
	Queue   *queue.Queue

	// Directory informs the queue about tenants. The daemon updates it with tenants that make
	// requests, so that changed limits apply at once. It may be nil.
	Directory *Directory

	// Policy returns the current policy of the operator. The policy of a tenant cannot allow more.
	// If it is nil or returns nil, no request is allowed.
	Policy func() *policy.Policy

	// Check refuses an upload that lacks a signature, with an [*artifact.Error]. Nil accepts all.
	Check func(name string, wasm, signature []byte) error

	// Agents can be asked for by name.
	Agents []Agent

	// Inline executes modules that are trusted. Isolated executes all others; nil
	// leaves them to Inline, which is for tests and for hosts whose only tenant is
	// their operator.
	Inline, Isolated guest.Observable

	// CPU has the slots in which requests compute, shared with Isolated. Nil means one for each
	// processor.
	CPU *guest.Scheduler

	// OperatorKey is required by the routes below /api/v1/operator, which show and control all
	// tenants. MetricsKey opens only /metrics, which OperatorKey opens too. An empty key matches no
	// request.
	OperatorKey, MetricsKey string

	// Hosts are the names and ports under which clients reach a host that is for this machine
	// alone, in lower case. Requests for others are refused on every route. Nil accepts all.
	Hosts []string

	// OpenMetrics opens /metrics without a key. It is for hosts that only their operator can
	// reach, also through a proxy.
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

	// Receipts signs receipts of the calls of tenants. Nil signs none.
	Receipts *receipt.Issuer

	// Calls are the limits of each call of a tenant's tool, which policies lower. The zero
	// value stands for sandbox.DefaultLimits.
	Calls sandbox.Limits

	// Retained measures the removal of old runs. Nil measures nothing.
	Retained *observe.Retention

	// Ended, unless it is nil, is called after each run that this daemon has ended.
	Ended func()

	// Removed, unless it is nil, is called after old runs were removed.
	Removed func()

	// Disk returns the room on the disk of the database. Nil is not known.
	Disk func() (guest.DiskRoom, error)

	// Heartbeat is the interval at which a stream without events sends a sign of life. Zero means
	// 15 s.
	Heartbeat time.Duration

	// MaxIdleModuleBytes bounds the loaded modules that no call uses, see
	// [guest.Module.Size]. Zero means 128 MiB.
	MaxIdleModuleBytes int

	// MaxAttempts bounds how often a run is taken up that the host could not go on
	// with. Zero means 5.
	MaxAttempts int

	// HeaderTime bounds how long the headers of a request may take to arrive, and then
	// again its body, and how long a client without a key may take to read the answer.
	// Zero means 5 s.
	HeaderTime time.Duration

	// TLS encrypts the connections of clients. Nil leaves them in the clear.
	TLS *tls.Config

	// Version is that of the program, for the record.
	Version string

	// Logger receives failures. Nil discards them.
	Logger *slog.Logger
}

func (c Config) complete() Config {
	c.Requests.Module = cmp.Or(c.Requests.Module, 16<<20)
	c.Requests.Modules = cmp.Or(c.Requests.Modules, 100)
	c.Requests.Wait = cmp.Or(c.Requests.Wait, time.Minute)
	c.Heartbeat = cmp.Or(c.Heartbeat, 15*time.Second)
	c.Requests.Streams = cmp.Or(c.Requests.Streams, 100)
	c.Requests.Replays = cmp.Or(c.Requests.Replays, 2)
	c.Requests.Loaded = cmp.Or(c.Requests.Loaded, 32)
	c.MaxIdleModuleBytes = cmp.Or(c.MaxIdleModuleBytes, 128<<20)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 5)
	c.Retention.Every = cmp.Or(c.Retention.Every, time.Hour)
	c.HeaderTime = cmp.Or(c.HeaderTime, 5*time.Second)
	c.Connections.Request = cmp.Or(c.Connections.Request, time.Minute)
	c.Connections.Idle = cmp.Or(c.Connections.Idle, 2*time.Minute)
	c.Drain = cmp.Or(c.Drain, 5*time.Second)
	c.Connections.Max = cmp.Or(c.Connections.Max, 4096)
	c.Limits = c.Limits.Or(tenant.DefaultLimits())
	if c.Calls == (sandbox.Limits{}) {
		c.Calls = sandbox.DefaultLimits()
	}
	if c.CPU == nil {
		c.CPU = guest.NewScheduler(runtime.GOMAXPROCS(0))
	}
	if c.Isolated == nil {
		c.Isolated = c.Inline
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}
