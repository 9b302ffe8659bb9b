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
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// UsageOf returns the usage of tenants.
func UsageOf(ctx context.Context, log eventlog.Transactor, tenants *tenant.Store, q *queue.Queue, defaults tenant.Limits, f tenant.UsageFilter) (tenant.UsageList, error) {
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
