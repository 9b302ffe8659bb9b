package inspect

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/web"
)

// ErrSignIn is returned, or wrapped, by Scope for a request without a valid
// credential. A browser then shows the sign-in form.
var ErrSignIn = errors.New("inspect: sign in first")

// Config configures what a server shows, and to whom.
type Config struct {
	// Scope returns what a request may see. It is called for every request, so
	// that a withdrawn credential stops working at once. The credential is in the
	// header Authorization: for a browser that has signed in, the server puts it
	// there, as "Bearer" and the typed text. Without a valid one Scope returns
	// [ErrSignIn]. Required; see [Only].
	Scope func(*http.Request) (eventview.View, error)

	// Prefix is the path that the server is mounted under, such as "/inspect",
	// without a slash at the end. The handler expects the whole path. Empty is the
	// root.
	Prefix string

	// Origins are the origins under which browsers reach the server, such as
	// "https://starling.example" or "http://127.0.0.1:8300". A request for another
	// host is refused, which keeps out a page whose name was bound to this address.
	// Empty accepts every host; then the program around the server checks it.
	Origins []string

	// Logger receives failures. Nil discards.
	Logger *slog.Logger
}

// Server is the web view. Use [New].
type Server struct {
	config   Config
	origins  []origin
	handler  http.Handler
	sessions cipher.AEAD // its key lives as long as the process
	verdicts verdicts
	tasks    tasks
}

// origin is a scheme and a host with its port.
type origin struct{ scheme, host string }

// New returns a server. It is an error if Scope is missing, or if the prefix or an
// origin is not one.
func New(c Config) (*Server, error) {
	if c.Scope == nil {
		return nil, errors.New("inspect: the scope is missing")
	}
	if c.Prefix != "" && (!strings.HasPrefix(c.Prefix, "/") || strings.HasSuffix(c.Prefix, "/") || strings.ContainsAny(c.Prefix, "{}%? ")) {
		return nil, fmt.Errorf("inspect: the prefix %q must be a path that begins with a slash and ends without one", c.Prefix)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: c, sessions: newSessionCipher(), verdicts: verdicts{of: map[[2]string]verdict{}}}
	for _, text := range c.Origins {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" {
			return nil, fmt.Errorf("inspect: %q is not an origin such as http://127.0.0.1:8300", text)
		}
		s.origins = append(s.origins, origin{u.Scheme, u.Host})
	}
	s.handler = s.guard(s.mux())
	return s, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// pattern puts the prefix into a pattern of the mux.
func (s *Server) pattern(p string) string {
	method, path, _ := strings.Cut(p, " ")
	return method + " " + s.config.Prefix + path
}

// path is the path of a page; parts are escaped.
func (s *Server) path(parts ...string) string {
	path := s.config.Prefix
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	if path == s.config.Prefix {
		path += "/"
	}
	return path
}

// Route is one thing that can be asked for.
type Route struct {
	// Pattern is a net/http pattern, without the prefix that the server is mounted
	// under. A wildcard {run} is the id of a run, {seq} the number of an event.
	Pattern string

	// Open routes show nothing of a log, and need no credential.
	Open bool

	serve func(*Server) http.HandlerFunc
}

// routes are all there are.
var routes = []Route{
	ofView("GET /{$}", (*Server).list),
	ofView("GET /live", follow(newestRuns)),
	ofView("GET /runs/{run}", runView(viewWaterfall)),
	ofView("GET /runs/{run}/events", runView(viewEvents)),
	ofView("GET /runs/{run}/conversation", runView(viewConversation)),
	ofView("GET /runs/{run}/requests", runView(viewRequests)),
	ofView("GET /runs/{run}/events/{seq}", (*Server).event),
	ofView("GET /runs/{run}/live", (*Server).live),
	ofView("GET /runs/{run}/raw/{seq}", (*Server).raw),
	ofView("GET /runs/{run}/fuel", runView(viewFuel)),
	ofView("POST /runs/{run}/fuel", (*Server).executeForFuel),
	ofView("GET /modules/{digest}/coverage", (*Server).coverage),
	ofView("POST /modules/{digest}/coverage", (*Server).coverage),
	ofView("GET /tools", (*Server).toolList),
	ofView("GET /tools/{tool}", (*Server).tool),
	ofView("GET /tools/{tool}/change", (*Server).change),
	ofView("POST /tools/{tool}/change", (*Server).change),
	ofView("GET /diff", (*Server).diff),
	ofView("GET /runs/{run}/validate", checked("validate")),
	ofView("POST /runs/{run}/validate", check("validate")),
	ofView("GET /runs/{run}/replay", checked("replay")),
	ofView("POST /runs/{run}/replay", check("replay")),
	ofView("GET /usage", (*Server).usage),
	ofView("GET /queue", (*Server).queue),
	ofView("GET /queue/live", follow(queueNow)),
	ofView("POST /queue/{what}", (*Server).steer),

	open("GET /assets/{name}", (*Server).asset),
	open("GET /sign-in", (*Server).signInForm),
	open("POST /sign-in", (*Server).signIn),
	open("POST /sign-out", (*Server).signOut),
}

// Routes returns all routes. Other paths are answered as missing.
func Routes() []Route { return slices.Clone(routes) }

// ofView returns a route of a page from a view.
func ofView(pattern string, p func(*Server, http.ResponseWriter, *http.Request, eventview.View) error) Route {
	return Route{Pattern: pattern, serve: func(s *Server) http.HandlerFunc {
		return s.scoped(func(w http.ResponseWriter, r *http.Request, v eventview.View) error { return p(s, w, r, v) })
	}}
}

func open(pattern string, h func(*Server, http.ResponseWriter, *http.Request)) Route {
	return Route{Pattern: pattern, Open: true, serve: func(s *Server) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { h(s, w, r) }
	}}
}

// mux makes the table a handler.
func (s *Server) mux() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(s.pattern(r.Pattern), r.serve(s))
	}
	mux.HandleFunc("/", s.notFound)
	return mux
}

// The timeouts of a server that is used alone.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10 // bytes
)

// Serve answers on a listener, which it closes, until ctx ends. Streams end then at
// once; other requests have three seconds to get their answers.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.tasks.stop()
	return web.Serve(ctx, &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}, l)
}
