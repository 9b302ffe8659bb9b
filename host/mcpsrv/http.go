package mcpsrv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ErrUnauthorized is what Scope returns, or wraps, for a request without a
// credential that is valid.
var ErrUnauthorized = errors.New("mcpsrv: unauthorized")

// Config says what a handler serves.
type Config struct {
	// Scope returns what a request may look at and call. It is asked for every
	// request: there are no sessions whose ids could be taken for a credential.
	// Without a valid credential it returns [ErrUnauthorized]. Required.
	Scope func(*http.Request) (View, error)

	// Origins are those under which the server is reached, such as
	// "https://starling.example" or "http://127.0.0.1:8300". A request for another
	// host is refused. Empty accepts every host; then whoever mounts the handler
	// looks at it. What a page of another origin sends is refused in any case.
	Origins []string

	// Options are those of all servers.
	Options
}

// maxBody bounds a request, in bytes.
const maxBody = 4 << 20

// NewHandler returns the handler of the one path that the server is mounted under,
// which speaks streamable HTTP without sessions. It is an error if Scope is missing
// or an origin is not one.
func NewHandler(c Config) (http.Handler, error) {
	if c.Scope == nil {
		return nil, errors.New("mcpsrv: the scope is missing")
	}
	h := &handler{scope: c.Scope, options: c.normal(), pending: pending{of: map[pendingKey][]*context.CancelCauseFunc{}}}
	protection := http.NewCrossOriginProtection()
	for _, origin := range c.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || protection.AddTrustedOrigin(origin) != nil {
			return nil, fmt.Errorf("mcpsrv: %q is no origin such as http://127.0.0.1:8300", origin)
		}
		h.hosts = append(h.hosts, strings.ToLower(u.Host))
	}
	h.inner = mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxBody, PropagateRequestCancellation: true,
	})
	return protection.Handler(h), nil
}

type handler struct {
	scope   func(*http.Request) (View, error)
	options Options
	hosts   []string // lower case; empty accepts all
	inner   http.Handler
	pending pending
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if len(h.hosts) > 0 && !slices.Contains(h.hosts, strings.ToLower(r.Host)) {
		http.Error(w, "this server does not answer to that name: its operator can add it to the origins in host.yaml", http.StatusMisdirectedRequest)
		return
	}
	v, err := h.scope(r)
	var server *mcp.Server
	if err == nil {
		server, err = newServer(r.Context(), v, h.options)
	}
	switch {
	case errors.Is(err, ErrUnauthorized):
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "unauthorized", http.StatusUnauthorized)
	case err != nil:
		h.options.Logger.ErrorContext(r.Context(), "mcpsrv: request failed", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
	default:
		asked, refused := peeked(w, r)
		if refused != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(refused) // the client went away
			return
		}
		h.serve(w, r.WithContext(context.WithValue(r.Context(), serverKey{}, server)), v, asked)
	}
}

// serverKey is where the server of a request is, between the handler of this package
// and that of the SDK, which asks for it more than once.
type serverKey struct{}

func serverOf(r *http.Request) *mcp.Server {
	server, _ := r.Context().Value(serverKey{}).(*mcp.Server)
	return server
}
