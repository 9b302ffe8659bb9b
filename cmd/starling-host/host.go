package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/sqlitelog"
	"github.com/starling-host/starling/host/agentfile"
	"github.com/starling-host/starling/host/daemon"
	"github.com/starling-host/starling/host/disk"
	"github.com/starling-host/starling/host/front"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/hostfile"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/worker"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/observe"
)

// host is everything that "serve" opens.
type host struct {
	app    *app
	file   *hostfile.File
	dev    bool
	logger *slog.Logger
	origin string // where it can be reached

	log       database
	tenants   *tenant.Store
	directory *daemon.Directory
	queue     *queue.Queue
	policy    atomic.Pointer[policy.Policy] // the operator's
	daemon    *daemon.Daemon
	listener  net.Listener
	tls       *serverCertificate // nil without

	closers []func() // in the order of opening
}

// close releases whatever was opened, the last first.
func (h *host) close() {
	for i := len(h.closers) - 1; i >= 0; i-- {
		h.closers[i]()
	}
}

func (h *host) onClose(f func()) { h.closers = append(h.closers, f) }

// open opens everything. What it has opened when it fails is to be closed.
func (h *host) open(ctx context.Context) error {
	if err := h.loadPolicy(); err != nil {
		return err
	}
	if err := h.openTenants(ctx); err != nil {
		return err
	}
	if err := h.listen(); err != nil { // before the daemon, which tells browsers where it is
		return err
	}
	config, err := h.config(ctx)
	if err != nil {
		return err
	}
	if h.daemon, err = daemon.New(ctx, config); err != nil {
		return err
	}
	h.onClose(h.daemon.Close)
	return h.checkRights(ctx) // once all tables are there
}

// wrong is an error about what a key of the file says, where it stands there.
func (h *host) wrong(err error, hint string, keys ...string) error {
	if at := h.file.At(keys...); at != nil {
		return explainFile(at.Errorf(hint, "%s", plainError(err)))
	}
	return &failure{code: exitUsage, message: plainError(err), hint: hint}
}

// openTenants opens the database and what is known of tenants.
func (h *host) openTenants(ctx context.Context) error {
	masters, err := h.openLog(ctx)
	if err != nil {
		return err
	}
	if h.tenants, err = tenant.Open(ctx, h.log, tenant.Options{Masters: masters}); err != nil {
		return h.otherKey(err)
	}
	h.directory, err = daemon.NewDirectory(ctx, h.tenants, h.file.Limits, h.logger)
	if err == nil && h.directory.Len() == 0 && !h.file.Listen.Local() {
		err = &failure{code: exitUsage, message: fmt.Sprintf("%s can be reached from elsewhere, and there is no tenant yet", h.file.Listen),
			hint: "starling-host tenant create --help"}
	}
	return err
}

// openLog opens the database and returns its master keys. For development a key that
// is not there is made, once there is a database for it.
func (h *host) openLog(ctx context.Context) ([]tenant.MasterKey, error) {
	keys, err := tenant.ReadMasterKeys(h.file.KeyFile)
	missing := errors.Is(err, fs.ErrNotExist) && h.dev
	if err != nil && !missing {
		return nil, h.wrong(err, "", "key_file")
	}
	made := isNew(h.file.Database) && !h.dev
	if h.log, err = openForRuns(ctx, h.file.Database); err != nil {
		if f := explain(err); f.code == exitUsage { // not what a disk or a server does
			err = h.wrong(f, f.hint, "database")
		}
		return nil, err
	}
	h.onClose(func() { h.log.Close() })
	if made {
		h.logger.Warn("the database was not there, so there is a new one now, without tenants and runs", "database", h.file.Database)
	}
	h.setAside()
	if missing {
		key, err := h.newKey(ctx)
		return []tenant.MasterKey{key}, err
	}
	return keys, nil
}

// setAside keeps room on the disk for whoever prunes the database when it is full.
func (h *host) setAside() {
	if h.dev || onServer(h.file.Database) {
		return
	}
	if err := sqlitelog.SetAside(h.file.Database); err != nil {
		h.logger.Warn("no room is set aside, so prune cannot relieve a full disk", "error", err.Error())
	}
}

// loadPolicy reads the operator's policy.
func (h *host) loadPolicy() error {
	if h.file.Policy == "" {
		return nil
	}
	p, err := policy.Load(h.file.Policy)
	if err != nil {
		return explainFile(err)
	}
	h.policy.Store(p)
	return nil
}

// listen takes the address.
func (h *host) listen() error {
	at := h.file.Listen
	listener, err := at.Listen()
	if err != nil {
		return h.wrong(err, "name another address to listen at", "listen")
	}
	h.onClose(func() { listener.Close() })
	h.listener, h.origin = listener, "http://"+listener.Addr().String()
	if at.Network == "unix" {
		h.origin = at.String()
		return nil
	}
	if h.file.TLS == (hostfile.TLS{}) {
		return nil
	}
	h.tls = &serverCertificate{files: h.file.TLS}
	if err := h.tls.load(); err != nil {
		return h.wrong(err, "", "tls")
	}
	h.warnExpired()
	h.origin = "https://" + listener.Addr().String()
	return nil
}

// warnExpired says that clients will not accept the certificate.
func (h *host) warnExpired() {
	if end := h.tls.expires(); time.Now().After(end) {
		h.logger.Warn("the certificate has expired: clients refuse it", "cert", h.file.TLS.Cert, "expired", end)
	}
}

// config returns what the daemon is made of.
func (h *host) config(ctx context.Context) (daemon.Config, error) {
	c := settings(h.file)
	c.Log, c.Tenants, c.Policy, c.TLS, c.Version, c.Logger = h.log, h.tenants, h.policy.Load, h.tls.config(), programVersion(), h.logger
	h.measure(&c)
	if !onServer(h.file.Database) {
		c.Disk = func() (disk.Room, error) { return databaseRoom(h.log, h.file.Database) }
	}
	var err error
	c.OpenMetrics = h.file.Metrics.Open
	if c.MetricsKey, err = h.keyIn("metrics", h.file.Metrics.KeyEnv); err != nil {
		return c, err
	}
	if c.OperatorKey, err = h.keyIn("operator", h.file.Operator.KeyEnv); err != nil {
		return c, err
	}
	if c.Tracer, err = h.openTraces(ctx); err != nil {
		return c, err
	}
	if err := h.openQueue(ctx); err != nil {
		return c, err
	}
	c.Queue, c.Directory = h.queue, h.directory
	if err := h.openEngines(ctx, &c); err != nil {
		return c, err
	}
	c.Held = map[chain.Hash]int64{}
	if c.Agents, err = h.openAgents(ctx, c.Inline, c.Held); err != nil {
		return c, err
	}
	return c, h.mount(&c)
}

// measure has requests and runs measured, the queue, and what there is to know of the
// host beside its work.
func (h *host) measure(c *daemon.Config) {
	registry := observe.NewRegistry()
	c.Observe, c.Runs = observe.NewHTTPMetrics(registry), observe.NewMetrics(registry)
	observe.RegisterQueue(registry, h.queueState)
	observe.RegisterSpace(registry, h.spaceState)
	observe.RegisterBuild(registry, c.Version)
	if h.tls != nil {
		observe.RegisterCertificate(registry, h.tls.expires)
	}
	if c.Retention > 0 {
		c.Retained = observe.NewRetention(registry)
	}
	if !h.file.Metrics.Off {
		c.Metrics = observe.MetricsHandler(registry)
	}
}

// settings are the numbers and times of a daemon that its file has.
func settings(f *hostfile.File) daemon.Config {
	r := f.Requests
	return daemon.Config{
		Defaults: f.Limits, Retention: f.Retention.OlderThan, RetentionEvery: f.Retention.Every,
		KeepFree: f.Space.KeepFree, MaxModuleBytes: f.Space.Modules,
		MaxModule: r.Module, MaxModules: r.Modules, MaxWait: r.Wait, MaxStreams: r.Streams, MaxReplays: r.Replays, MaxIdleModules: r.Loaded,
		MaxConnections: f.Connections.Max, RequestTime: f.Connections.Request, IdleTime: f.Connections.Idle,
		MaxAttempts: f.Queue.Attempts, Drain: f.Drain,
	}
}

// openQueue opens the queue in the database of the events, which on a server all hosts
// share.
func (h *host) openQueue(ctx context.Context) (err error) {
	q := h.file.Queue
	c := queue.Config{
		Host: q.Host, Workers: h.file.Workers, Lease: q.Lease, Grace: q.Grace, MaxWaiting: q.MaxWaiting,
		Limits: h.directory.Limits, Logger: h.logger, Version: programVersion(),
		Ready: func(ctx context.Context) error { return h.daemon.Ready(ctx) }, // which is there before it works
	}
	if c.Label = c.Host; c.Label == "" {
		c.Label = h.name()
	}
	if c.Host == "" && !onServer(h.file.Database) { // of all that share a file one alone can listen there, and its jobs need not wait for a lease to end
		c.Host = h.file.Listen.Network + ":" + h.file.Listen.Address
	}
	h.queue, err = queue.Open(ctx, h.log, c)
	return err
}

// name is what a host is called that has no queue.host: its machine, and where it listens
// there.
func (h *host) name() string {
	machine, err := os.Hostname()
	if err != nil {
		machine = "host"
	}
	at := h.listener.Addr()
	if tcp, ok := at.(*net.TCPAddr); ok {
		return fmt.Sprintf("%s:%d", machine, tcp.Port)
	}
	return machine + ":" + filepath.Base(at.String())
}

func (h *host) queueState(ctx context.Context) (observe.QueueState, error) {
	s, err := h.queue.Stats(ctx)
	if err != nil {
		return observe.QueueState{}, err
	}
	state := observe.QueueState{Ready: s.Ready, Sleeping: s.Sleeping, Running: s.Running, Oldest: s.Oldest, Hosts: map[string]int{}}
	hosts, err := h.queue.Hosts(ctx)
	for _, one := range hosts {
		state.Hosts[one.Document().State]++
	}
	return state, err
}

// openEngines starts what executes modules: processes for those that nobody
// vouches for, unless the file says otherwise.
func (h *host) openEngines(ctx context.Context, c *daemon.Config) error {
	if err := h.probeWorkers(); err != nil {
		return err
	}
	for isolation, to := range map[string]*guest.Engine{isolationInline: &c.Inline, isolationProcess: &c.Isolated} {
		if h.file.Inline && isolation == isolationProcess {
			continue
		}
		engine, err := newRunEngine(ctx, isolation, worker.Config{MaxCalls: h.calls()})
		if err != nil {
			return err
		}
		h.onClose(func() { engine.close(context.Background()) })
		*to = engine
	}
	return nil
}

// probeWorkers makes sure that there can be processes, before anybody asks for a call in
// one, and says what does not lock them down here.
func (h *host) probeWorkers() error {
	if h.file.Inline {
		return nil
	}
	report, err := worker.Probe()
	if err != nil {
		return &failure{code: exitFailed, message: "no worker processes: " + plainError(err), hint: "starling-host doctor"}
	}
	for _, layer := range report.Layers {
		if !layer.On {
			h.logger.Warn("worker processes are confined without "+layer.Name, "why", layer.Why)
		}
	}
	return nil
}

// calls is how many calls the workers take at a time: as many as there are runs, and
// some modules that are loaded. With fewer a few tenants, whose calls take as long as
// they may, would keep all others waiting, whatever turns the queue gives them.
func (h *host) calls() int {
	runs := h.file.Workers
	if runs == 0 {
		runs = queue.DefaultWorkers
	}
	return runs + runtime.GOMAXPROCS(0)
}

// openAgents makes the agents of their files, and notes the modules of their tools.
func (h *host) openAgents(ctx context.Context, engine guest.Engine, modules map[chain.Hash]int64) (agents []daemon.Agent, err error) {
	for _, path := range h.file.Agents {
		file, err := agentfile.Load(path)
		if err != nil {
			return nil, explainFile(err)
		}
		model, err := file.Provider(ctx, os.Getenv)
		if err != nil {
			return nil, &failure{code: exitUsage, message: plainError(err)}
		}
		box, err := file.OpenTools(ctx, &moduleLoader{store: h.log, engine: &runEngine{engine, nil}, stored: modules}, os.Getenv)
		if err != nil {
			return nil, err
		}
		h.onClose(func() { box.Close() })
		a := agent.Agent{Provider: model, Tools: box.Tools, Config: file.Config(), Budget: file.Budget()}
		a.Config.Retries = box.Retries
		agents = append(agents, daemon.Agent{Name: file.Name, Agent: a, Variables: file.Variables})
	}
	return agents, nil
}

// mount adds the web view, unless it is off, and the MCP server.
func (h *host) mount(c *daemon.Config) (err error) {
	before := front.Config{Daemon: func() *daemon.Daemon { return h.daemon }, Origins: h.file.Origins, Version: programVersion(), Logger: h.logger}
	if len(before.Origins) == 0 && h.file.Listen.Network == "tcp" {
		before.Origins = originsOf(h.origin, h.listener.Addr())
	}
	if !h.file.Inspector.Off {
		if c.Inspector, err = front.Inspector(before); err != nil {
			return err
		}
	}
	c.MCP, err = front.MCP(before)
	return err
}

// serve serves until ctx ends.
func (h *host) serve(ctx context.Context) error {
	key, err := h.developer(ctx)
	if err != nil {
		return err
	}
	go h.directory.Keep(ctx)
	defer h.reloadOnHangup()()
	h.announce(key)
	return h.daemon.Serve(ctx, h.listener)
}

// reloadOnHangup has SIGHUP read the master keys, the policy and the certificate again.
func (h *host) reloadOnHangup() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for range signals {
			h.reload()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// reload reads what can change while the host serves. A file that is wrong changes
// nothing.
func (h *host) reload() {
	if h.file.KeyFile != "" && h.reread("master key", h.file.KeyFile, h.loadMasters) {
		h.logger.Info("master keys in use", "ids", strings.Join(h.tenants.MasterKeys(), " "))
	}
	if h.file.Policy != "" {
		h.reread("policy", h.file.Policy, h.loadPolicy)
	}
	if h.tls != nil && h.reread("certificate", h.file.TLS.Cert, h.tls.load) {
		h.warnExpired()
	}
}

// loadMasters reads the master keys. They have to open what the tenants have.
func (h *host) loadMasters() error {
	keys, err := tenant.ReadMasterKeys(h.file.KeyFile)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return h.tenants.UseMasters(ctx, keys...)
}

// reread reads one file again, and says so.
func (h *host) reread(what, file string, load func() error) bool {
	if err := load(); err != nil {
		h.logger.Error(what+" not read; the one before stays", "error", err.Error())
		return false
	}
	h.logger.Info(what+" read", "file", file)
	return true
}
