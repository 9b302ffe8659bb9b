package serve

import (
	"cmp"
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

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// Options configure a [Host] beside its file.
type Options struct {
	// Development serves one tenant, "dev", to this machine. A missing master key is
	// created, and the policy of the file applies to the tenant as well.
	Development bool

	Version string       // of the program, for logs and metrics
	Logger  *slog.Logger // nil discards
}

// Host serves the tenants of a database: over HTTP, in a web view, and to assistants that
// speak the Model Context Protocol. Use [Open].
type Host struct {
	// Origin is the URL of the host for clients, as in http://127.0.0.1:8300.
	Origin string
	// Key is the API key of the tenant of [Options].Development.
	Key string

	file   *File
	found  resolved // of the file
	o      Options
	logger *slog.Logger

	db        *starling.DB
	log       store.Database
	tenants   *tenant.Store
	directory *daemon.Directory
	queue     *queue.Queue
	policy    atomic.Pointer[policy.Policy] // the operator's
	daemon    *daemon.Daemon
	listener  net.Listener
	sealing   *sealing // nil without

	closers []func() // in the order of opening
}

// SetupError is returned when a host cannot be opened as its file describes it.
type SetupError struct {
	Err     error // a [*config.Error] if it concerns a line of the file
	Hint    string
	Machine bool // the file is valid, but this machine cannot satisfy it
}

// Error returns the text of Err.
func (e *SetupError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *SetupError) Unwrap() error { return e.Err }

// RightsError is returned when the role on a database server lacks rights.
type RightsError struct {
	Role, Use string // Use is "serve" or "prune"
	Lacking   []string
}

// Error names the first missing rights.
func (e *RightsError) Error() string {
	if e.Use == "prune" {
		return fmt.Sprintf("serve: retention: the role %s may not remove runs: it lacks %s", e.Role, someOf(e.Lacking))
	}
	return fmt.Sprintf("serve: the role %s may not %s: it lacks %s", e.Role, e.Use, someOf(e.Lacking))
}

// Advice implements [hint.Hinted].
func (e *RightsError) Advice() string {
	use := "host"
	if e.Use == "prune" {
		use = "retention"
	}
	return "as the owner of the tables: " + grantCommand(e.Role, use)
}

// Open opens everything that a file describes, and listens at its address. The host must be
// closed. The error is a [*SetupError], a [*RightsError], a [*starling.OpenError] if the
// database cannot be opened, or an error of package tenant.
func Open(ctx context.Context, file *File, o Options) (*Host, error) {
	h := &Host{file: file, o: o, logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
	if err := h.open(ctx); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// Close closes everything in reverse order. Serve must have returned.
func (h *Host) Close() {
	for i := len(h.closers) - 1; i >= 0; i-- {
		h.closers[i]()
	}
	h.closers = nil
}

func (h *Host) onClose(f func()) { h.closers = append(h.closers, f) }

func (h *Host) open(ctx context.Context) error {
	found, all := h.file.resolve(ctx, h.o.Development)
	for _, one := range all {
		if one.Err != nil {
			return one.Err
		}
		for _, text := range one.Warn {
			h.logger.Warn(text, one.What, one.From)
		}
	}
	h.found = found
	h.policy.Store(found.policy)
	if err := h.openTenants(ctx); err != nil {
		return err
	}
	if err := h.listen(); err != nil { // before the daemon, which needs its path
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
	if err := h.checkRights(ctx); err != nil { // once all tables are there
		return err
	}
	return h.openDevelopment(ctx)
}

// openTenants opens the database, and the tenants in it with their master keys.
func (h *Host) openTenants(ctx context.Context) error {
	where, masters := h.file.Database, h.found.masters
	err := h.openLog(ctx, where)
	if err != nil {
		return err
	}
	if len(masters) == 0 { // of a host for development, whose database exists now
		key, err := h.newKey(ctx)
		if err != nil {
			return err
		}
		masters = []tenant.MasterKey{key}
	}
	if err := h.log.CreateTables(ctx, seal.Tables); err != nil {
		return err
	}
	h.tenants, err = tenant.Open(ctx, h.log, tenant.Options{Masters: masters})
	if errors.Is(err, tenant.ErrWrongMasterKey) && h.o.Development {
		return &SetupError{Err: err, Hint: fmt.Sprintf("restore the %s that belongs to %s, or serve another database with --db FILE", h.file.KeyFile, store.Name(where))}
	}
	if err != nil {
		return err
	}
	h.directory, err = daemon.NewDirectory(ctx, h.tenants, h.file.Limits, h.logger)
	if err == nil && h.directory.Len() == 0 {
		err = h.file.CheckEmpty()
	}
	return err
}

// openLog opens the database, and creates a missing file.
func (h *Host) openLog(ctx context.Context, where string) error {
	onServer := store.OnServer(where)
	_, err := os.Stat(where)
	made := errors.Is(err, fs.ErrNotExist) && !onServer
	if h.db, err = starling.Open(ctx, where, starling.Options{}); err == nil {
		h.onClose(func() { h.db.Close() })
		h.log, err = h.db.Log(ctx)
	}
	if dir := filepath.Dir(where); errors.Is(err, fs.ErrNotExist) && !onServer {
		hint := ""
		if strings.Contains(where, ":/") {
			hint = "the address of a server begins with postgres:// or postgresql://"
		}
		return h.file.wrong(fmt.Errorf("%s: no folder %s", where, dir), hint, "database")
	}
	if err != nil || h.o.Development || onServer {
		return err
	}
	if made {
		h.logger.Warn("the database was not there, so there is a new one now, without tenants and runs", "database", where)
	}
	if err := store.SetAside(where); err != nil { // so that prune has room when the disk is full
		h.logger.Warn("no spare file: prune cannot free a full disk", "error", err.Error())
	}
	return nil
}

// loadPolicy reads the operator's policy again.
func (h *Host) loadPolicy() error {
	p, warn, err := h.file.operatorPolicy(h.o.Development)
	if err != nil {
		return err
	}
	for _, text := range warn {
		h.logger.Warn(text, "policy", h.file.Policy)
	}
	h.policy.Store(p)
	return nil
}

// config returns the configuration of the daemon.
func (h *Host) config(ctx context.Context) (c daemon.Config, err error) {
	c = daemon.Config{Settings: h.file.Settings, Calls: h.file.callLimits(), MaxAttempts: h.file.Queue.Attempts, OpenMetrics: h.file.Metrics.Open}
	c.Check = artifact.Finder{Trust: h.found.trust}.Check
	c.Log, c.Tenants, c.Policy, c.TLS, c.Version, c.Logger = h.log, h.tenants, h.policy.Load, h.found.certificate.config(), h.o.Version, h.logger
	if at, ok := h.listener.Addr().(*net.TCPAddr); ok && h.o.Development && at.IP.IsLoopback() {
		for _, origin := range h.origins() {
			_, name, _ := strings.Cut(origin, "://")
			c.Hosts = append(c.Hosts, strings.ToLower(name))
		}
	}
	where := h.file.Database
	if !store.OnServer(where) {
		c.Disk = func() (guest.DiskRoom, error) { return DatabaseRoom(h.log, where) }
	}
	registry := observe.NewRegistry()
	c.Observe, c.Runs = observe.NewHTTPMetrics(registry), observe.NewMetrics(registry)
	observe.RegisterQueue(registry, h.queueState)
	observe.RegisterSpace(registry, h.spaceState)
	c.CPU = guest.NewScheduler(runtime.GOMAXPROCS(0))
	observe.RegisterCPU(registry, func() observe.CPUState { return observe.CPUState(c.CPU.Load()) })
	observe.RegisterBuild(registry, c.Version)
	if h.found.certificate != nil {
		observe.RegisterCertificate(registry, h.found.certificate.Expires)
	}
	if c.Retention.OlderThan > 0 {
		c.Retained = observe.NewRetention(registry)
	}
	if !h.file.Metrics.Off {
		c.Metrics = observe.MetricsHandler(registry)
	}
	if f, key := h.file.Seal, h.found.sealKey; key != nil {
		h.sealing = &sealing{
			h: h, sealer: seal.NewSealer(h.log, key), due: make(chan struct{}, 1), metrics: observe.NewSeal(registry),
			every: cmp.Or(f.Every, defaultSealEvery), runs: int64(cmp.Or(f.Runs, defaultSealRuns)),
		}
		c.Ended, c.Removed = h.sealing.runEnded, h.sealing.signSoon
	}
	c.MetricsKey, c.OperatorKey, c.Receipts = h.found.metricsKey, h.found.operatorKey, h.found.receipts
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
	if err := h.openAgents(ctx, &c); err != nil {
		return c, err
	}
	if !h.file.Inspector.Off {
		if c.Inspector, err = h.webView(); err != nil {
			return c, err
		}
	}
	c.MCP, err = h.mcp()
	return c, err
}

// openQueue opens the queue in the database. On a server, all hosts share it.
func (h *Host) openQueue(ctx context.Context) (err error) {
	q := h.file.Queue
	c := queue.Config{
		Host: q.Host, Workers: h.file.Workers, Lease: q.Lease, Grace: q.Grace, MaxWaiting: q.MaxWaiting,
		Limits: h.directory.Limits, Logger: h.logger, Version: h.o.Version,
		Ready: func(ctx context.Context) error { return h.daemon.Ready(ctx) }, // set before the queue starts
	}
	if c.Label = c.Host; c.Label == "" {
		c.Label = h.name()
	}
	if c.Host == "" && !store.OnServer(h.file.Database) {
		// Only one process can listen there, so the jobs of its predecessor need not wait for the
		// end of its lease.
		c.Host = h.file.Listen.Network + ":" + h.file.Listen.Address
	}
	h.queue, err = queue.Open(ctx, h.log, c)
	return err
}

// name returns the name of a host without queue.host: its machine and its address.
func (h *Host) name() string {
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

// openEngines starts the engines for modules: worker processes for untrusted ones, unless
// the file disables isolation.
func (h *Host) openEngines(ctx context.Context, c *daemon.Config) error {
	// As many calls at a time as runs, and some for modules being loaded. With fewer, a few
	// tenants with long calls would delay all others.
	calls := cmp.Or(h.file.Workers, queue.DefaultWorkers) + runtime.GOMAXPROCS(0)
	warn := func(text string) { h.logger.Warn(text) }
	engine, err := starling.NewEngine(ctx, starling.EngineOptions{Warn: warn})
	if err != nil {
		return err
	}
	h.onClose(func() { engine.Close() })
	if c.Inline = engine; h.file.Isolation == inline {
		return nil
	}
	processes, err := starling.NewEngine(ctx, starling.EngineOptions{Processes: true, MaxCalls: calls, Scheduler: c.CPU, Warn: warn})
	if err != nil {
		return err
	}
	h.onClose(func() { processes.Close() })
	c.Isolated = processes
	return nil
}

// openAgents opens the agents of the files.
func (h *Host) openAgents(ctx context.Context, c *daemon.Config) error {
	for _, one := range h.found.agents {
		file := one.file
		modules := map[canon.Hash][]byte{}
		finder := artifact.Finder{Trust: h.found.trust, Modules: func(context.Context) (eventlog.ModuleReader, error) { return h.log, nil }}
		loader, err := (&starling.ModuleLoader{Engine: c.Inline, Store: h.log, Stored: modules, Finder: finder}).For(file)
		if err != nil {
			return err
		}
		box, err := file.OpenTools(ctx, loader, os.Getenv)
		if err != nil {
			return err
		}
		h.onClose(func() { box.Close() })
		c.Agents = append(c.Agents, daemon.Agent{Name: file.Name, Agent: *file.Agent(one.model, box), Variables: file.Variables, Modules: modules})
	}
	return nil
}

// Tables returns the tables that a host keeps beside the log.
func Tables() []eventlog.TableSet { return append(tenant.Tables(), queue.Tables, seal.Tables) }

// checkRights refuses a role that could accept runs but not make them. The owner of the
// tables may do everything.
func (h *Host) checkRights(ctx context.Context) error {
	retention, use := h.file.Retention, "serve"
	server, ok := h.log.(*store.Server)
	if !ok && retention.Ahead > 0 {
		return h.file.wrong(errors.New("a file has no partitions"), "leave ahead out", "retention", "ahead")
	} else if !ok {
		return nil
	}
	needs := store.NeedsOf(Tables()...)
	role, lacking, err := server.Lacking(ctx, needs.Writer...)
	if err == nil && len(lacking) == 0 && retention.OlderThan > 0 {
		use = "prune"
		role, lacking, err = server.Lacking(ctx, needs.Retention...)
	}
	if err == nil && len(lacking) > 0 {
		err = &RightsError{role, use, lacking}
	}
	if err == nil && retention.Ahead > 0 {
		if err = server.MayDrop(ctx); err != nil {
			err = h.file.wrong(err, "as the owner of the tables: starling-host partitions DB", "retention", "ahead")
		}
	}
	return err
}

// Serve serves until ctx ends. On SIGHUP it reloads the master keys, the policy and the
// certificate; an invalid file changes nothing.
func (h *Host) Serve(ctx context.Context) error {
	go h.directory.Keep(ctx)
	if s := h.sealing; s != nil {
		defer func() { // for runs that ended during shutdown
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealTimeout)
			defer cancel()
			s.sign(last)
		}()
		go s.keep(ctx)
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			h.reload()
		}
	}()
	defer close(hangups)
	defer signal.Stop(hangups)
	return h.daemon.Serve(ctx, h.listener)
}

func (h *Host) reload() {
	reread := func(what, file string, load func() error) bool {
		if err := load(); err != nil {
			h.logger.Error(what+" not read; keeping the old one", "error", err.Error())
			return false
		}
		h.logger.Info(what+" read", "file", file)
		return true
	}
	if file := h.file.KeyFile; file != "" && reread("master key", file, h.loadMasters) {
		h.logger.Info("master keys in use", "ids", strings.Join(h.tenants.MasterKeys(), " "))
	}
	if file := h.file.Policy; file != "" {
		reread("policy", file, h.loadPolicy)
	}
	if h.found.certificate != nil && reread("certificate", h.file.TLS.Cert, h.found.certificate.Load) {
		for _, text := range h.found.certificate.warn() {
			h.logger.Warn(text, "certificate", h.file.TLS.Cert)
		}
	}
}

// loadMasters reads the master keys, which must decrypt the tenants' keys.
func (h *Host) loadMasters() error {
	keys, err := tenant.ReadMasterKeys(h.file.KeyFile)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return h.tenants.UseMasters(ctx, keys...)
}
