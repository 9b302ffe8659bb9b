package serve

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
	"github.com/starling-host/starling/serve/internal/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// UsageOf returns the usage of tenants.
func UsageOf(ctx context.Context, log eventlog.Transactor, tenants *tenant.Store, q *Queue, defaults tenant.Limits, f tenant.UsageFilter) (tenant.UsageList, error) {
	return daemon.UsageOf(ctx, log, tenants, q, defaults, f)
}

// View is one reader's view of a log, Operator adds the actions of an operator, and an Executor
// executes runs again in the way of an Execution.
type (
	View      = eventview.View
	Operator  = eventview.Operator
	Execution = eventview.Execution
	Executor  = eventview.Executor
)

// LocalWebView is the web view of one database, without a daemon.
type (
	LocalWebView       = inspect.Server
	LocalWebViewConfig = inspect.Config
)

// NewLocalWebView returns the web view of one database.
func NewLocalWebView(c LocalWebViewConfig) (*LocalWebView, error) { return inspect.New(c) }

// OnlyView returns the scope that shows one view to clients with a token.
func OnlyView(v View, token string) func(*http.Request) (View, error) { return inspect.Only(v, token) }

// MCPView is an assistant's view of a log, configured by MCPOptions.
type (
	MCPView    = mcpsrv.View
	MCPOptions = mcpsrv.Options
)

// ServeMCPOver serves the assistants of one user over HTTP, at /mcp of a listener on this
// machine, until ctx ends. It then cancels calls in progress.
func ServeMCPOver(ctx context.Context, v MCPView, o MCPOptions, l net.Listener) error {
	return mcpsrv.ServeLocal(ctx, v, o, OriginsOf("http://"+l.Addr().String(), l.Addr()), l)
}

// ServeMCP serves one assistant over a pair of streams.
func ServeMCP(ctx context.Context, v MCPView, o MCPOptions, in io.Reader, out io.Writer) error {
	return mcpsrv.ServeStdio(ctx, v, o, in, out)
}

// The queue of runs in a database, with its jobs and hosts.
type (
	Queue       = queue.Queue
	QueueConfig = queue.Config
	QueueLimits = queue.Limits
	JobLease    = queue.Lease
	Overview    = queue.Overview
	JobProgress = queue.Progress
	JobFilter   = queue.Filter
	JobState    = queue.State
	JobStatus   = queue.Status
	QueueStats  = queue.Stats
	QueueHost   = queue.Host
	HostList    = queue.HostList
)

// OpenQueue opens the queue in the database of a log.
func OpenQueue(ctx context.Context, log eventlog.Transactor, c QueueConfig) (*Queue, error) {
	return queue.Open(ctx, log, c)
}

// Errors of a queue.
var (
	ErrNoQueue     = queue.ErrNoTables
	ErrNoHost      = queue.ErrNoHost
	ErrNoJob       = queue.ErrNotFound
	ErrNotSleeping = queue.ErrNotSleeping
)

// The defaults of a queue, and its words for states.
const (
	MaxDeaths = queue.MaxDeaths
	UsageDays = queue.UsageDays

	StateWaiting  = queue.Waiting
	StateSleeping = queue.Sleeping
	StateRunning  = queue.Running
	HostGone      = queue.HostGone
)
