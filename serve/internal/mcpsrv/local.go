package mcpsrv

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/serve/internal/web"
)

// newLocalServer makes the server of one session of a client with a user's view, over a wire. Until
// stop is called, it presents the current tools of a [Mirror], and notifies the client of each
// change.
func newLocalServer(ctx context.Context, v View, o Options, w *wire) (server *mcp.Server, stop func(), err error) {
	o, v.wire = o.normal(), w
	end := func() {}
	if v.Open != nil {
		mirror := v.Open()
		v.Tools, end = mirror, mirror.Close
	}
	v.mirror, _ = v.Tools.(Mirror)
	watching, cancel := context.WithCancel(ctx)
	v.life = watching
	v = v.lasting(o.Logger)
	server, presented, err := newServer(ctx, v, o)
	if err != nil {
		cancel()
		end()
		return nil, nil, err
	}
	var watcher sync.WaitGroup
	if v.mirror != nil {
		var mu sync.Mutex // guards presented
		refresh := func() {
			mu.Lock()
			defer mu.Unlock()
			var err error
			if presented, err = addTools(watching, server, v, presented, o.Logger); err != nil {
				o.Logger.WarnContext(watching, "mcpsrv: the list of tools is out of date", "error", err)
			}
		}
		server.AddReceivingMiddleware(cancellable, v.whole, settling(watching, v, refresh), passing(v, func() []Tool {
			mu.Lock()
			defer mu.Unlock()
			return presented
		}, o.Logger))
		watcher.Go(func() {
			v.mirror.Watch(watching, func() {
				refresh()
				const none = "starling-host:none" // the SDK tells the sessions of a change of its own lists
				if v.mirror.Offers("resources") || v.mirror.Offers("prompts") {
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
	if v.tasks != nil {
		v.tasks.serve(server)
	}
	return server, func() { cancel(); watcher.Wait(); end() }, nil
}

// clientOf returns what the client says of itself in its first request: in the params of initialize,
// or in the _meta of each request.
func clientOf(ctx context.Context, v View, r mcp.Request) Client {
	params := canon.Split(paramsOf(r))
	version, info, capabilities := params["protocolVersion"], params["clientInfo"], params["capabilities"]
	meta := canon.Split(params["_meta"])
	single := meta[mcp.MetaKeyProtocolVersion] != nil
	c := Client{Many: single && v.session != ""}
	if single {
		version, info, capabilities = meta[mcp.MetaKeyProtocolVersion], meta[mcp.MetaKeyClientInfo], meta[mcp.MetaKeyClientCapabilities]
	}
	_ = json.Unmarshal(version, &c.Version) // the SDK has refused another value
	if !slices.Contains(mcp.SupportedProtocolVersions(), c.Version) || !single && c.Version >= sessionless {
		c.Version = lastWithSessions
	}
	c.Info, c.Capabilities = info, canon.Join(canon.Split(capabilities))
	session, ok := r.GetSession().(*mcp.ServerSession)
	if single || !ok {
		return c
	}
	c.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		return v.wire.ask(ctx, session, method, params)
	}
	c.Hear = func(method string, params json.RawMessage) { v.wire.notify(ctx, session, method, params) }
	return c
}

// How long a client waits for servers that are connecting: when it initializes, which is soon
// impatient, when it asks for the tools, and when it calls one. Tools that come later are
// announced.
const (
	greetTime = 2 * time.Second
	listTime  = 5 * time.Second // or as long as the user lets a server take
	callTime  = 30 * time.Second
)

// settling tells a [Mirror] first what the client says of itself, and waits for servers that are connecting
// where their answer counts.
func settling(life context.Context, v View, refresh func()) mcp.Middleware {
	var greeted sync.Once
	var done atomic.Bool
	tools := v.mirror
	patience := max(listTime, tools.Patience())
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
			greeted.Do(func() { tools.Greet(clientOf(life, v, r)) })
			switch asked := r.GetParams().(type) {
			case *mcp.InitializeParams, *mcp.DiscoverParams:
				_ = settle(ctx, greetTime, "")
			case *mcp.ListToolsParams, *mcp.ListResourcesParams, *mcp.ListResourceTemplatesParams, *mcp.ListPromptsParams, *mcp.ReadResourceParams, *mcp.GetPromptParams,
				*mcp.CompleteParams, *mcp.SubscribeParams:
				_ = settle(ctx, patience, "")
			case *mcp.CallToolParamsRaw:
				if err := settle(ctx, callTime, asked.Name); err != nil && ctx.Err() == nil {
					return failed(err.Error()), nil
				}
			}
			result, err := next(ctx, method, r)
			if err != nil {
				return nil, err // the result may be a nil pointer
			}
			switch result.(type) {
			case *mcp.InitializeResult, *mcp.DiscoverResult:
				return greets(tools, result)
			}
			return result, nil
		}
	}
}

// serversKey is the member of the _meta of a greeting that has what each server says of itself.
const serversKey = "io.github.starling-host/servers"

// greets adds to a greeting what the other servers can do and say.
func greets(tools Mirror, ours mcp.Result) (mcp.Result, error) {
	said, err := membersOf(ours)
	if err != nil {
		return nil, err
	}
	if _, sessionless := ours.(*mcp.DiscoverResult); sessionless { // which the SDK adds to its own results
		said["resultType"] = canon.Quote("complete")
	}
	able := canon.Split(said["capabilities"])
	for _, what := range []string{"resources", "prompts"} {
		if tools.Offers(what) {
			able[what] = json.RawMessage(`{"listChanged":true}`)
		}
	}
	servers := members{}
	for name, g := range tools.Greetings() {
		servers[name] = canon.Join(members{"protocolVersion": canon.Quote(g.Version), "serverInfo": canon.Join(canon.Split(g.Server)), "capabilities": canon.Join(g.Capabilities)})
		for what, theirs := range g.Capabilities {
			has := canon.Split(theirs)
			maps.Copy(has, canon.Split(able[what]))
			able[what] = canon.Join(has)
		}
	}
	var instructions string
	_ = json.Unmarshal(said["instructions"], &instructions)                                              // it was just made
	if instructions = strings.TrimSpace(instructions + " " + tools.Instructions()); instructions != "" { // also of all servers above
		said["instructions"] = canon.Quote(instructions)
	}
	if said["capabilities"] = canon.Join(able); len(servers) > 0 {
		set(said, canon.Join(servers), "_meta", serversKey)
	}
	return rawResult{ours, canon.Join(said)}, nil
}

// Bounds of connections and sessions of [ServeLocal].
const (
	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	sessionTimeout = 24 * time.Hour // without a request of a client, which may have left silently
	maxSessions    = 100            // then the least recently used idle session ends
)

// lastWithSessions is the last version of the protocol with sessions.
const lastWithSessions = "2025-11-25"

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
	sessions := &sessions{used: map[string]*use{}}
	wire := newWire()
	sessions.open = func(id string) (*use, error) {
		v.session = id
		server, stop, err := newLocalServer(ctx, v, o, wire)
		if err != nil {
			return nil, err
		}
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
		return &use{id: id, server: server, stop: stop}, nil
	}
	sessions.lasting = mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{MaxRequestBodyBytes: 4 * maxMessage, SessionTimeout: sessionTimeout})
	sessions.single = mcp.NewStreamableHTTPHandler(serverOf, &mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes: 4 * maxMessage, Stateless: true, PropagateRequestCancellation: true,
	})
	mux := http.NewServeMux()
	mux.Handle("/mcp", wire.handler(sessions))
	guard, err := guarded(mux, origins)
	if err != nil {
		return err
	}
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	end := func() { // of streams that stay open otherwise, and of calls
		cancel(errCancelled)
		sessions.end()
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

// sessions are the sessions of all clients, each with a server of its own. Clients of the protocol
// without sessions share one if they say the same of themselves.
type sessions struct {
	open            func(id string) (*use, error)
	lasting, single http.Handler // of the protocol with and without sessions

	mu   sync.Mutex
	used map[string]*use // by the id of the session; guarded by mu
}

// use is the use of one session.
type use struct {
	id     string
	server *mcp.Server
	stop   func()

	open int // requests that are being served; a client that listens has one; guarded by the mu of the sessions, and so is the next
	last time.Time
}

type useKey struct{}

// serverOf returns the server of a request's session.
func serverOf(r *http.Request) *mcp.Server {
	u, _ := r.Context().Value(useKey{}).(*use)
	return u.server
}

// ServeHTTP implements [http.Handler].
func (s *sessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	inner, id := s.lasting, r.Header.Get(sessionHeader)
	if r.Header.Get("Mcp-Protocol-Version") >= sessionless {
		inner, id = s.single, identityOf(r)
	}
	u, err := s.enter(id, inner == s.single || id == "" && r.Method == http.MethodPost)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.leave(u, id == "" && inner == s.lasting)
	inner.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), useKey{}, u)))
}

// identityOf returns what distinguishes clients without sessions: what they say of themselves, and
// their credential.
func identityOf(r *http.Request) string {
	body, _ := io.ReadAll(r.Body) // part of it is no request
	r.Body = io.NopCloser(bytes.NewReader(body))
	meta := canon.Split(canon.Split(canon.Split(body)["params"])["_meta"])
	said := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", meta[mcp.MetaKeyProtocolVersion], meta[mcp.MetaKeyClientInfo], meta[mcp.MetaKeyClientCapabilities], r.Header.Get("Authorization")))
	return fmt.Sprintf("client %x", said)
}

// enter returns the session of a request, a new one if it makes one, or one without a server if there
// is none: the SDK knows what to answer.
func (s *sessions) enter(id string, makes bool) (*use, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.used[id]
	if u == nil && makes {
		if len(s.used) >= maxSessions && !s.forget() {
			return nil, errors.New("there are too many sessions, and none is idle")
		}
		var err error
		if u, err = s.open(cmp.Or(id, rand.Text())); err != nil {
			return nil, err
		}
		s.used[u.id] = u
	}
	if u == nil {
		return &use{}, nil
	}
	u.open, u.last = u.open+1, time.Now()
	return u, nil
}

// forget ends the session that was idle for the longest time, and reports whether there was one. The
// caller holds mu.
func (s *sessions) forget() bool {
	var oldest string
	for id, u := range s.used {
		if u.open == 0 && (oldest == "" || u.last.Before(s.used[oldest].last)) {
			oldest = id
		}
	}
	u := s.used[oldest] // nil for none
	delete(s.used, oldest)
	if u != nil {
		go u.end()
	}
	return u != nil
}

// leave ends a request, which may have begun a session.
func (s *sessions) leave(u *use, begins bool) {
	s.mu.Lock()
	u.open--
	s.mu.Unlock()
	if !begins || u.server == nil {
		return
	}
	go func() {
		for session := range u.server.Sessions() { // the one that has begun, if any
			_ = session.Wait() // until its client or its timeout ends it
		}
		s.mu.Lock()
		if s.used[u.id] == u {
			delete(s.used, u.id)
		}
		s.mu.Unlock()
		u.end()
	}()
}

// end ends a session. It may be called more than once.
func (u *use) end() {
	for session := range u.server.Sessions() {
		_ = session.Close()
	}
	u.stop()
}

// end ends all sessions.
func (s *sessions) end() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.used))
	clear(s.used)
	s.mu.Unlock()
	for _, u := range all {
		u.end()
	}
}
