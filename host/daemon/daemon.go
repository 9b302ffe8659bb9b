package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/starling-host/starling/host/recorded"
	"github.com/starling-host/starling/host/shelf"
	"github.com/starling-host/starling/runtime/agent"
)

// Daemon is the host over HTTP. Use [New]. It answers requests and works on runs;
// a process may do the one without the other.
type Daemon struct {
	config Config
	logger *slog.Logger
	agents map[string]*Agent
	mux    *http.ServeMux

	modules  *shelf.Shelf[moduleKey]
	recorded *recorded.Modules
	requests rates // by the second
	uploads  rates // by the hour
	streams  seats
	compiles *compiling
	replays  *replaying
	volume   volumes
	disk     diskSpace
	doors    *doors
	accounts *accounts

	serving context.Context // ends when the daemon shuts down
	stop    context.CancelFunc
	taking  context.Context // ends when it takes no more work, which is no later
	refuse  context.CancelFunc
	probed  atomic.Bool // somebody has asked whether it is ready
	failing failing     // of what it was asked then
}

// New returns a daemon.
func New(ctx context.Context, c Config) (*Daemon, error) {
	c = c.complete()
	if err := c.validate(); err != nil {
		return nil, err
	}
	d := &Daemon{
		config: c, logger: c.Logger, agents: map[string]*Agent{},
		modules:  shelf.New[moduleKey](shelf.Limits{Modules: c.MaxIdleModules, Bytes: c.MaxIdleModuleBytes}),
		recorded: recorded.New(c.Isolated, c.Log, nil),
		requests: rates{limiters: map[string]*rate.Limiter{}},
		uploads:  rates{limiters: map[string]*rate.Limiter{}},
		streams:  seats{taken: map[string]int{}},
		compiles: newCompiling(),
		replays:  newReplaying(c.MaxReplays),
		volume:   newVolumes(c.Log),
		disk:     diskSpace{of: c.Disk, keep: c.KeepFree},
		doors:    newDoors(),
		accounts: newAccounts(maxKnown, knownFor),
		failing:  failing{since: map[string]time.Time{}},
	}
	for i := range c.Agents {
		d.agents[c.Agents[i].Name] = &c.Agents[i]
		d.announce(&c.Agents[i].Agent)
	}
	d.serving, d.stop = context.WithCancel(context.Background())
	d.taking, d.refuse = context.WithCancel(d.serving)
	d.mux = d.newMux()
	return d, nil
}

// announce has the model and the tools of an agent counted under their own names, also as
// long as no call of them has succeeded.
func (d *Daemon) announce(a *agent.Agent) {
	d.config.Runs.KnowModels(a.Config.Model)
	for _, t := range a.Tools {
		d.config.Runs.KnowTools(t.Name())
	}
}

// maxHeader bounds the headers of a request, in bytes, before anybody knows whose it
// is. Go adds 4 KiB of its own.
const maxHeader = 16 << 10

// Serve answers requests and works on runs until ctx ends. Then it takes no more
// work, tells so for [Config.Drain], lets requests and runs finish within the grace
// periods, hands back the runs that do not, and returns. Nothing that was
// acknowledged is lost.
func (d *Daemon) Serve(ctx context.Context, l net.Listener) error {
	conns := newConnections(d.config.MaxConnections, d.logger)
	server := &http.Server{
		Handler: d, MaxHeaderBytes: maxHeader, ConnContext: conns.context, ConnState: conns.state,
		ReadHeaderTimeout: d.config.HeaderTime, IdleTimeout: d.config.IdleTime,
		ErrorLog: slog.NewLogLogger(d.logger.Handler(), slog.LevelDebug),
	}
	working, halt := context.WithCancel(ctx)
	defer halt()
	var wg sync.WaitGroup
	var worked error
	wg.Go(func() {
		worked = d.Work(working)
		halt() // a daemon whose queue has failed answers no more
	})
	wg.Go(func() { d.upkeep(working) })
	wg.Go(func() { d.disk.watch(working, d.logger) })
	listening, closed := context.WithCancel(context.Background())
	wg.Go(func() {
		<-working.Done()
		d.logger.Info("stopping", "why", context.Cause(working))
		d.drain(listening)
		d.shutdown(server)
	})
	err := server.Serve(d.secured(limitedListener{l, conns}))
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	closed()
	halt()
	wg.Wait()
	d.logger.Info("stopped")
	return errors.Join(err, worked)
}

// secured encrypts what is said on the connections of a listener, if that is asked
// for. It is the outermost: net/http knows an encrypted connection by its type, and
// the web view its cookies by that.
func (d *Daemon) secured(l net.Listener) net.Listener {
	if d.config.TLS == nil {
		return l
	}
	return tls.NewListener(l, d.config.TLS)
}

// drain goes on answering, for a while or as long as somebody can connect: who asks
// whether the host is ready learns that it is not, and sends requests elsewhere
// before they are refused. If nobody has ever asked, nobody would learn it.
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
	return unavailable.because("the host is about to end").retry(retryElsewhere)
}

// retryElsewhere is when a request may be sent again that this host cannot serve: to
// another one, or to the next process.
const retryElsewhere = 5 * time.Second

// shutdownGrace is how long requests may take to be answered.
const shutdownGrace = 10 * time.Second

func (d *Daemon) shutdown(server *http.Server) {
	d.stop() // whoever follows a run is sent away, and comes back elsewhere
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

// Work works on runs until ctx ends. See [queue.Queue.Work].
func (d *Daemon) Work(ctx context.Context) error { return d.config.Queue.Work(ctx, d.work) }

// Close releases loaded modules. Serve and Work must have returned.
func (d *Daemon) Close() {
	d.stop()
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
