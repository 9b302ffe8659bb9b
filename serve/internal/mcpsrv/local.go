package mcpsrv

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/serve/internal/web"
)

// newLocalServer makes the server of one user's view for any number of sessions. Until stop
// is called, it presents the current tools of a [Changing], and notifies its sessions of
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
		var mu sync.Mutex // guards presented
		refresh := func() {
			mu.Lock()
			defer mu.Unlock()
			var err error
			if presented, err = addTools(watching, server, v.Tools, presented, o.Logger); err != nil {
				o.Logger.WarnContext(watching, "mcpsrv: the list of tools is out of date", "error", err)
			}
		}
		server.AddReceivingMiddleware(cancellable, whole, settling(changing, refresh), passing(v.Tools, changing, o.Logger))
		watcher.Go(func() {
			changing.Watch(watching, func() {
				refresh()
				const none = "starling-host:none" // the SDK tells the sessions of a change of its own lists
				if changing.Offers("resources") || changing.Offers("prompts") {
					server.AddResource(&mcp.Resource{URI: none, Name: none}, nil)
					server.RemoveResources(none)
					server.AddPrompt(&mcp.Prompt{Name: none}, nil)
					server.RemovePrompts(none)
				}
			}, func(text string) {
				for session := range server.Sessions() {
					//lint:ignore SA1019 clients of the versions before still ask for logs
					_ = session.Log(watching, &mcp.LoggingMessageParams{Level: "warning", Logger: "starling-host", Data: oneLine(text)})
				}
			})
		})
	}
	return server, func() { cancel(); watcher.Wait() }, nil
}

// How long a client waits for servers that are connecting: when it initializes, which is soon
// impatient, when it asks for the tools, and when it calls one. Tools that come later are
// announced.
const (
	greetTime = 2 * time.Second
	listTime  = 5 * time.Second
	callTime  = 30 * time.Second
)

// settling waits for servers that are connecting where their answer counts.
func settling(tools Changing, refresh func()) mcp.Middleware {
	var done atomic.Bool
	settle := func(ctx context.Context, most time.Duration, tool string) error {
		if done.Load() && tool == "" {
			return nil
		}
		settled, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		err := tools.Settle(settled, tool)
		if !done.Load() {
			refresh()
			done.Store(tool == "" && settled.Err() == nil)
		}
		return err
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			switch asked := r.GetParams().(type) {
			case *mcp.InitializeParams, *mcp.DiscoverParams:
				_ = settle(ctx, greetTime, "")
			case *mcp.ListToolsParams, *mcp.ListResourcesParams, *mcp.ListResourceTemplatesParams, *mcp.ListPromptsParams, *mcp.ReadResourceParams, *mcp.GetPromptParams:
				_ = settle(ctx, listTime, "")
			case *mcp.CallToolParamsRaw:
				if err := settle(ctx, callTime, asked.Name); err != nil && ctx.Err() == nil {
					return failed(err.Error()), nil
				}
			}
			result, err := next(ctx, method, r)
			if err != nil {
				return nil, err // the result may be a nil pointer
			}
			var ours *mcp.ServerCapabilities
			var instructions *string
			switch greeting := result.(type) {
			case *mcp.InitializeResult:
				ours, instructions = greeting.Capabilities, &greeting.Instructions
			case *mcp.DiscoverResult:
				ours, instructions = greeting.Capabilities, &greeting.Instructions
			default:
				return result, nil
			}
			*instructions = strings.TrimSpace(*instructions + " " + plain(tools.Instructions()))
			if tools.Offers("resources") {
				ours.Resources = &mcp.ResourceCapabilities{ListChanged: true}
			}
			if tools.Offers("prompts") {
				ours.Prompts = &mcp.PromptCapabilities{ListChanged: true}
			}
			return result, nil
		}
	}
}

// Bounds of connections and sessions of [ServeLocal].
const (
	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	sessionTimeout = 24 * time.Hour // without a request of a client, which may have left silently
	maxSessions    = 100            // then the least recently used idle session ends
)

// sessionless is the first version of the protocol without sessions: each request is independent,
// and its response carries the messages of the server until its end.
const sessionless = "2026-07-28"

// ServeLocal serves one user's clients over streamable HTTP at /mcp, until ctx ends, which
// cancels the calls in progress. At most 100 sessions are open: then the least recently used
// idle session ends for a new one. Every program that reaches the listener may call the tools,
// so it must listen on this machine only. Requests for hosts outside the origins, and requests
// from pages of other origins, are refused.
//
// Unlike the handler of [NewHandler], it answers with streams, and clients of the protocol with
// sessions have sessions: so they receive progress, logs and changes of the tools.
func ServeLocal(ctx context.Context, v View, o Options, origins []string, l net.Listener) error {
	server, stop, err := newLocalServer(ctx, v, o)
	if err != nil {
		return err
	}
	defer stop()
	// A client may ask again, over a connection that is still open, when its stream ends with
	// the server. The new stream would stay.
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if calls, ok := ctx.Value(cancelKey{}).(context.Context); ok && calls.Err() != nil {
				return nil, context.Cause(calls)
			}
			return next(ctx, method, r)
		}
	})
	serverOf := func(*http.Request) *mcp.Server { return server }
	sessions := &sessions{server: server, used: map[string]*use{}}
	sessions.inner = mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{MaxRequestBodyBytes: maxBody, SessionTimeout: sessionTimeout})
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

// sessions bounds the sessions of a server.
type sessions struct {
	server *mcp.Server
	inner  http.Handler

	mu   sync.Mutex
	used map[string]*use // by the id of the session; guarded by mu
}

type use struct {
	open int // requests that are being served; a client that listens has one
	last time.Time
}

// ServeHTTP implements [http.Handler].
func (s *sessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(sessionHeader)
	if id == "" && r.Method == http.MethodPost && !s.room() {
		http.Error(w, "there are too many sessions, and none is idle", http.StatusServiceUnavailable)
		return
	}
	s.count(id, 1)
	defer func() {
		s.count(id, -1)
		if id == "" {
			s.count(w.Header().Get(sessionHeader), 0) // the new one
		}
	}()
	s.inner.ServeHTTP(w, r)
}

func (s *sessions) count(id string, open int) {
	if id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.used[id]
	if u == nil {
		u = &use{}
		s.used[id] = u
	}
	u.open, u.last = u.open+open, time.Now()
	if open < 0 && u.open == 0 && s.live()[id] == nil { // a client may name any
		delete(s.used, id)
	}
}

// live returns the sessions by their ids.
func (s *sessions) live() map[string]*mcp.ServerSession {
	live := map[string]*mcp.ServerSession{}
	for session := range s.server.Sessions() {
		live[session.ID()] = session
	}
	return live
}

// room makes room for one more session, if needed, and reports whether there is room.
func (s *sessions) room() bool {
	s.mu.Lock()
	live, oldest := s.live(), ""
	for id, u := range s.used {
		switch {
		case u.open > 0:
		case live[id] == nil: // ended by its client or its timeout
			delete(s.used, id)
		case oldest == "" || u.last.Before(s.used[oldest].last):
			oldest = id
		}
	}
	full := len(live) >= maxSessions
	if full {
		delete(s.used, oldest)
	}
	s.mu.Unlock()
	if full && oldest != "" {
		_ = live[oldest].Close()
	}
	return !full || oldest != ""
}
