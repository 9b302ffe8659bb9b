// Package front puts the web view and the MCP server before a daemon: each shows to
// a tenant what is the tenant's, and calls go the way of all requests for work.
package front

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/starling-host/starling/host/daemon"
	"github.com/starling-host/starling/host/inspect"
	"github.com/starling-host/starling/host/logview"
	"github.com/starling-host/starling/host/mcpsrv"
	"github.com/starling-host/starling/runtime/provider"
)

// InspectorPrefix is the path that the web view is mounted under.
const InspectorPrefix = "/inspect"

// Config is what both have in common. Daemon is required.
type Config struct {
	// Daemon returns the daemon. It is asked when there is a request, since a daemon
	// is made of what is mounted in it.
	Daemon func() *daemon.Daemon

	Origins []string // under which browsers reach the daemon; empty accepts every host
	Version string   // of the program
	Logger  *slog.Logger
}

// Inspector returns the web view. Tenants sign in with their keys, and see their runs; an
// operator signs in with the operator's, and sees and steers the queue.
func Inspector(c Config) (http.Handler, error) {
	return inspect.New(inspect.Config{Scope: c.inspectorScope, Prefix: InspectorPrefix, Origins: c.Origins, Logger: c.Logger})
}

func (c Config) inspectorScope(r *http.Request) (logview.View, error) {
	if c.Daemon().AuthenticateOperator(r) == nil {
		return c.Daemon().OperatorView(), nil
	}
	a, err := c.Daemon().Authenticate(r)
	if _, refused := errors.AsType[*daemon.Problem](err); refused {
		return logview.View{}, inspect.ErrSignIn
	}
	if err != nil {
		return logview.View{}, err
	}
	return c.Daemon().View(a)
}

// MCP returns the MCP server, for requests that the daemon has let in.
func MCP(c Config) (http.Handler, error) {
	return mcpsrv.NewHandler(mcpsrv.Config{
		Scope: c.mcpScope, Origins: c.Origins, Options: mcpsrv.Options{Version: c.Version, Logger: c.Logger},
	})
}

func (c Config) mcpScope(r *http.Request) (mcpsrv.View, error) {
	a, ok := daemon.AccountOf(r.Context())
	if !ok {
		return mcpsrv.View{}, mcpsrv.ErrUnauthorized
	}
	log, err := c.Daemon().View(a)
	return mcpsrv.View{Log: &log, Tools: tools{c.Daemon(), a}, Owner: a.ID}, err
}

// tools are those of a tenant.
type tools struct {
	daemon  *daemon.Daemon
	account daemon.Account
}

// List implements [mcpsrv.Tools].
func (t tools) List(context.Context) ([]mcpsrv.Tool, error) {
	var list []mcpsrv.Tool
	for _, d := range t.account.Tools() {
		list = append(list, mcpsrv.Tool{
			Name: d.Name, Description: d.Description, InputSchema: provider.ObjectSchema(json.RawMessage(d.InputSchema)), OutputSchema: json.RawMessage(d.OutputSchema),
			Idempotent: d.Idempotent, Closed: !t.daemon.Reaches(t.account, d.Name),
		})
	}
	return list, nil
}

// Call implements [mcpsrv.Tools].
func (t tools) Call(ctx context.Context, c mcpsrv.Call) (mcpsrv.Result, error) {
	out, err := t.daemon.Call(ctx, t.account, c.Name, c.Arguments, c.Ticket)
	if p, ok := errors.AsType[*daemon.Problem](err); ok {
		err = fmt.Errorf("%w: %s", reasonOf(p), cmp.Or(strings.Join(p.Problems, "; "), p.Detail, p.Title))
	}
	return mcpsrv.Result{RunID: out.RunID, Output: out.Output, Error: out.Error}, err
}

// Cancel implements [mcpsrv.Tools].
func (t tools) Cancel(ctx context.Context, ticket string) error {
	return t.daemon.CancelCall(ctx, t.account, ticket)
}

// reasonOf returns what a problem is to an MCP client.
func reasonOf(p *daemon.Problem) error {
	switch p.Status {
	case http.StatusNotFound:
		return mcpsrv.ErrNoTool
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return mcpsrv.ErrBusy
	case http.StatusGone, http.StatusUnauthorized:
		return mcpsrv.ErrLost
	case http.StatusInternalServerError:
		return errors.New("the host has failed")
	}
	return mcpsrv.ErrArguments
}
