package mcpsrv

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/serve/internal/web"
)

// newLocalServer makes the server of one user's view for any number of sessions. Until stop
// is called, it presents tools that are [Changing] as they are, and tells its sessions of
// each change.
func newLocalServer(ctx context.Context, v View, o Options) (server *mcp.Server, stop func(), err error) {
	o = o.normal()
	server, presented, err := newServer(ctx, v, o)
	if err != nil {
		return nil, nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	if changing, ok := v.Tools.(Changing); ok {
		watcher.Go(func() {
			changing.Watch(watching, func() {
				var err error
				if presented, err = addTools(watching, server, v.Tools, presented, o.Logger); err != nil {
					o.Logger.WarnContext(watching, "mcpsrv: the list of tools is out of date", "error", err)
				}
			})
		})
	}
	return server, func() { cancel(); watcher.Wait() }, nil
}

// Bounds of connections and sessions of [ServeLocal].
const (
	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	sessionTimeout = 24 * time.Hour // without a request of a client, which may have gone without a word
)

// sessionless is the first version of the protocol without sessions: each request stands
// for itself, and what the server has to say meanwhile is in the response.
const sessionless = "2026-07-28"

// ServeLocal serves one user's clients over streamable HTTP at /mcp, until ctx ends, which
// cancels the calls in progress. Every program that reaches the listener may call the tools,
// so it has to be one of this machine. Requests for hosts that are in none of the origins,
// and those of pages of other origins, are refused.
//
// Unlike the handler of [NewHandler], it answers with streams, and clients of the protocol
// with sessions have them: so they are told of progress, logs and changes of the tools.
func ServeLocal(ctx context.Context, v View, o Options, origins []string, l net.Listener) error {
	server, stop, err := newLocalServer(ctx, v, o)
	if err != nil {
		return err
	}
	defer stop()
	serverOf := func(*http.Request) *mcp.Server { return server }
	sessions := mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{MaxRequestBodyBytes: maxBody, SessionTimeout: sessionTimeout})
	single := mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes: maxBody, Stateless: true, PropagateRequestCancellation: true,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= sessionless {
			single.ServeHTTP(w, r)
			return
		}
		sessions.ServeHTTP(w, r)
	})
	guard, err := guarded(mux, origins)
	if err != nil {
		return err
	}
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	end := func() { // of streams that stay open otherwise, and of calls
		cancel(errCancelled)
		for session := range server.Sessions() {
			_ = session.Close()
		}
	}
	defer end()
	s := &http.Server{
		Handler: guard, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		// A request ends after its calls, so that its response can be sent.
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.WithoutCancel(ctx), cancelKey{}, calls)
		},
	}
	s.RegisterOnShutdown(end)
	return web.Serve(ctx, s, l)
}
