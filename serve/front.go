package serve

import (
	"errors"
	"net/http"

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
		return h.daemon.Assistant(a)
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
