package mcpsrv

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/internal/web"
)

// ErrUnauthorized is returned, or wrapped, by Scope for a request without a
// valid credential.
var ErrUnauthorized = errors.New("mcpsrv: unauthorized")

// Config configures a handler.
type Config struct {
	// Scope returns the runs and tools that a request may access. It is called for every request,
	// because no session id serves as a credential. Without a valid credential it returns
	// [ErrUnauthorized]. Required.
	Scope func(*http.Request) (View, error)

	// Origins are the origins under which the server is reached, such as
	// "https://starling.example" or "http://127.0.0.1:8300". A request for another
	// host is refused. Empty accepts every host; then the program around the handler
	// checks it. Requests from pages of other origins are refused in any case.
	Origins []string

	// Options are as for all servers.
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
	serverOf := func(r *http.Request) *mcp.Server {
		server, _ := r.Context().Value(serverKey{}).(*mcp.Server)
		return server
	}
	h.inner = mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxBody, PropagateRequestCancellation: true,
	})
	return guarded(h, c.Origins)
}

// guarded returns a handler that pages of other sites do not reach, see [web.Origins.Refuses].
func guarded(inner http.Handler, origins []string) (http.Handler, error) {
	own, err := web.ParseOrigins(origins)
	if err != nil {
		return nil, fmt.Errorf("mcpsrv: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		switch status := own.Refuses(r); status {
		case http.StatusMisdirectedRequest:
			http.Error(w, "this server does not answer to that name: the operator of a host can add it to the origins in host.yaml", status)
		case http.StatusForbidden:
			http.Error(w, "this request comes from a page of another origin", status)
		default:
			inner.ServeHTTP(w, r)
		}
	}), nil
}

type handler struct {
	scope   func(*http.Request) (View, error)
	options Options
	inner   http.Handler
	pending pending
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v, err := h.scope(r)
	var server *mcp.Server
	var asked *jsonrpc.Request
	if err == nil {
		asked, err = peeked(w, r)
	}
	if v = v.lasting(h.options.Logger); err == nil {
		server, _, err = newServer(r.Context(), v, h.options)
	}
	if err == nil && v.tasks != nil {
		v.tasks.serve(server)
	}
	switch {
	case errors.Is(err, ErrUnauthorized):
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "unauthorized", http.StatusUnauthorized)
	case r.Context().Err() != nil: // the client has gone
	case err != nil:
		h.options.Logger.ErrorContext(r.Context(), "mcpsrv: request failed", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
	default:
		h.serve(w, r.WithContext(context.WithValue(r.Context(), serverKey{}, server)), v, asked)
	}
}

// serverKey is the context key of a request's server, between the handler of this
// package and the SDK's, which asks for it more than once.
type serverKey struct{}

// sessionHeader distinguishes a client of the older protocol from others of the same owner, whose
// requests may have the same ids. It is random, the server keeps no list of them, and it gives no
// rights: those depend on the credential of each request.
const sessionHeader = "Mcp-Session-Id"

// The methods involved in cancelling.
const (
	methodInitialize = "initialize"
	methodCancelled  = "notifications/cancelled"
)

// errCancelled is the cause of the end of a request's context when the client has cancelled the
// request.
var errCancelled = errors.New("mcpsrv: cancelled by the client")

// peeked returns the message of a request, or nil if it has none or several. It leaves the body
// unchanged, with the error at its end. After reading the body it waits until the request may
// compute; an error means that the client has gone.
func peeked(w http.ResponseWriter, r *http.Request) (*jsonrpc.Request, error) {
	if r.Method != http.MethodPost {
		return nil, nil
	}
	rest := http.MaxBytesReader(w, r.Body, maxBody)
	body, err := io.ReadAll(rest)
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), rest)) // which keeps failing
	if err != nil {
		return nil, nil
	}
	if err := share.Step(r.Context()); err != nil {
		return nil, err
	}
	msg, _ := jsonrpc.DecodeMessage(body)
	asked, _ := msg.(*jsonrpc.Request)
	return asked, nil
}

// cancelledID returns the id of the request that a notification cancels.
func cancelledID(r *jsonrpc.Request) (id jsonrpc.ID, ok bool) {
	var p mcp.CancelledParams
	if r.Method != methodCancelled || json.Unmarshal(r.Params, &p) != nil {
		return id, false
	}
	id, err := jsonrpc.MakeID(p.RequestID)
	return id, err == nil && id.IsValid()
}

// pending are the requests over HTTP that are being served. The notification that
// cancels one comes in a request of its own, and on a server of its own.
type pending struct {
	mu sync.Mutex
	of map[pendingKey][]*context.CancelCauseFunc // guarded by mu
}

type pendingKey struct {
	owner, session string
	id             jsonrpc.ID
}

func keyOf(v View, r *http.Request, id jsonrpc.ID) pendingKey {
	return pendingKey{v.Owner, r.Header.Get(sessionHeader), id}
}

// ticket identifies the request among its owner's, also for other processes. Without a session it
// is empty.
func (k pendingKey) ticket() string {
	id, err := json.Marshal(k.id.Raw())
	if k.session == "" || err != nil {
		return ""
	}
	return k.session + " " + string(id)
}

// ticketKey is the context key of a request's ticket.
type ticketKey struct{}

// enter registers a request until leave is called. Its context ends with
// errCancelled when the client cancels it.
func (p *pending) enter(ctx context.Context, k pendingKey) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[k] = append(p.of[k], &cancel)
	return ctx, func() {
		defer cancel(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.of[k] = slices.DeleteFunc(p.of[k], func(c *context.CancelCauseFunc) bool { return c == &cancel })
		if len(p.of[k]) == 0 {
			delete(p.of, k)
		}
	}
}

// cancel ends a request that is served here. If several have the key, all continue, since it
// is not known which one is meant.
func (p *pending) cancel(k pendingKey) (here bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	made := p.of[k]
	if len(made) == 1 {
		(*made[0])(errCancelled)
	}
	return len(made) > 0
}

// serve serves a request, and cancels it if its client asks. A cancelled request gets
// no response, but the status for a message without one.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, v View, asked *jsonrpc.Request) {
	r = r.WithContext(context.WithValue(r.Context(), connectedKey{}, r.Context()))
	switch {
	case asked == nil:
	case asked.Method == methodInitialize:
		w.Header().Set(sessionHeader, rand.Text())
	case asked.IsCall():
		key := keyOf(v, r, asked.ID)
		ctx, leave := h.pending.enter(r.Context(), key)
		defer leave()
		ctx = context.WithValue(context.WithValue(ctx, cancelKey{}, ctx), writtenKey{}, asked.Params)
		r = r.WithContext(context.WithValue(ctx, ticketKey{}, key.ticket()))
	default:
		if id, ok := cancelledID(asked); ok {
			key := keyOf(v, r, id)
			if ticket := key.ticket(); !h.pending.cancel(key) && ticket != "" && v.Tools != nil { // another process may serve it
				if err := v.Tools.Cancel(r.Context(), ticket); err != nil {
					h.options.Logger.WarnContext(r.Context(), "mcpsrv: call not cancelled", "error", err)
				}
			}
		}
	}
	out := &answer{ResponseWriter: w, asked: r.Context()}
	h.inner.ServeHTTP(out, r)
	if !out.begun && out.cancelled() {
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusAccepted)
	}
}

// answer writes to the client, unless it has cancelled the request before the answer
// began: the SDK may still answer with the error that the call has ended with.
type answer struct {
	http.ResponseWriter
	asked context.Context // of the request
	begun bool
}

func (a *answer) cancelled() bool { return context.Cause(a.asked) == errCancelled }

// drops reports whether the response is dropped, because the client has cancelled its
// request before it began.
func (a *answer) drops() bool {
	if !a.begun && a.cancelled() {
		return true
	}
	a.begun = true
	return false
}

func (a *answer) WriteHeader(status int) {
	if !a.drops() {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *answer) Write(p []byte) (int, error) {
	if a.drops() {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// Flush implements [http.Flusher].
func (a *answer) Flush() {
	if !a.drops() {
		_ = http.NewResponseController(a.ResponseWriter).Flush()
	}
}

// connectedKey is the key of the context that ends when the client of a request has gone.
type connectedKey struct{}

// cancelKey is the key of the context that ends when a request is cancelled. The SDK
// passes on the values of a request's context, but in the older protocol not its
// end: a lost connection cancels nothing there.
type cancelKey struct{}

// cancellable has requests end that their clients have cancelled.
func cancellable(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		asked, ok := ctx.Value(cancelKey{}).(context.Context)
		if !ok {
			return next(ctx, method, r)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(asked, func() {
			if context.Cause(asked) == errCancelled {
				cancel(errCancelled)
			}
		})()
		return next(ctx, method, r)
	}
}
