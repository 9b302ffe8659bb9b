package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
	"github.com/starling-host/starling/serve/internal/web"
)

// inspectorPrefix is the path of the web view.
const inspectorPrefix = "/inspect"

// webView returns the web view. Tenants sign in with their keys and see their runs; the
// operator signs in with the operator's key, and sees and controls the queue.
func (h *Host) webView() (http.Handler, error) {
	scope := func(r *http.Request) (eventview.View, error) {
		if h.daemon.AuthenticateOperator(r) == nil {
			return h.daemon.OperatorView(), nil
		}
		a, err := h.daemon.Authenticate(r)
		if p, refused := errors.AsType[*daemon.Problem](err); refused && p.Status == http.StatusUnauthorized {
			return eventview.View{}, inspect.ErrSignIn
		}
		if err != nil {
			return eventview.View{}, err
		}
		return h.daemon.View(a)
	}
	return inspect.New(inspect.Config{Scope: scope, Prefix: inspectorPrefix, Origins: h.origins(), Logger: h.logger})
}

// mcp returns the MCP server, for requests that the daemon has authenticated. Each tenant
// sees its own runs and calls its own tools.
func (h *Host) mcp() (http.Handler, error) {
	scope := func(r *http.Request) (mcpsrv.View, error) {
		a, ok := daemon.AccountOf(r.Context())
		if !ok {
			return mcpsrv.View{}, mcpsrv.ErrUnauthorized
		}
		log, err := h.daemon.View(a)
		return mcpsrv.View{Log: &log, Tools: tools{h.daemon, a}, Owner: a.ID}, err
	}
	return mcpsrv.NewHandler(mcpsrv.Config{Scope: scope, Origins: h.origins(), Options: mcpsrv.Options{Version: h.o.Version, Logger: h.logger}})
}

// origins returns the URLs under which browsers reach the host; empty accepts every host
// name.
func (h *Host) origins() []string {
	if len(h.file.Origins) == 0 && h.file.Listen.Network == "tcp" {
		return web.OriginsOf(h.Origin, h.listener.Addr())
	}
	return h.file.Origins
}

// tools are the tools of a tenant.
type tools struct {
	daemon  *daemon.Daemon
	account daemon.Account
}

// List implements [mcpsrv.Tools].
func (t tools) List(context.Context) ([]mcpsrv.Tool, error) {
	return lists.Map(t.account.Tools(), func(d abi.ToolDescription) mcpsrv.Tool { return mcpsrv.ToolOf(d, !t.account.Reaches(d.Name)) }), nil
}

// Call implements [mcpsrv.Tools].
func (t tools) Call(ctx context.Context, c mcpsrv.Call) (mcpsrv.Result, error) {
	out, err := t.daemon.Call(ctx, t.account, c.Name, c.Arguments, c.Ticket)
	return endOf(out), refused(err)
}

// endOf returns the end of a run, if it has ended.
func endOf(out daemon.Outcome) mcpsrv.Result {
	r := mcpsrv.Result{RunID: out.RunID, Output: out.Result, Receipt: out.Receipt}
	if out.Error != nil {
		r.Error = out.Error.Message
	}
	return r
}

// Begin implements [mcpsrv.Lasting].
func (t tools) Begin(ctx context.Context, c mcpsrv.Call) (string, error) {
	id, err := t.daemon.Begin(ctx, t.account, c.Name, c.Arguments, "", false)
	return id, refused(err)
}

// Outcome implements [mcpsrv.Lasting].
func (t tools) Outcome(ctx context.Context, runID string, most time.Duration) (mcpsrv.Outcome, error) {
	out, err := t.daemon.Outcome(ctx, t.account, runID, most)
	if p, ok := errors.AsType[*daemon.Problem](err); ok && (p.Status == http.StatusNotFound || p.Status == http.StatusGone) {
		err = mcpsrv.ErrNoTask
	}
	return mcpsrv.Outcome{Document: out.Document, End: endOf(out)}, refused(err)
}

// Recent implements [mcpsrv.Lasting].
func (t tools) Recent(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	view, err := t.daemon.View(t.account)
	if err != nil {
		return eventlog.RunPage{}, err
	}
	return view.Runs(ctx, o)
}

// Stop implements [mcpsrv.Lasting].
func (t tools) Stop(ctx context.Context, runID string) error {
	return t.daemon.Stop(ctx, t.account, runID)
}

// Cancel implements [mcpsrv.Tools].
func (t tools) Cancel(ctx context.Context, ticket string) error {
	return t.daemon.CancelCall(ctx, t.account, ticket)
}

// refused returns the error to an MCP client for one of the daemon.
func refused(err error) error {
	p, ok := errors.AsType[*daemon.Problem](err)
	if !ok {
		return err
	}
	reason := mcpsrv.ErrRefused
	switch p.Status {
	case http.StatusNotFound:
		reason = mcpsrv.ErrNoTool
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		reason = mcpsrv.ErrBusy
	case http.StatusGone, http.StatusUnauthorized:
		reason = mcpsrv.ErrLost
	case http.StatusInternalServerError:
		reason = errors.New("the host has failed")
	}
	return fmt.Errorf("%w: %s", reason, cmp.Or(p.Detail, p.Title))
}
