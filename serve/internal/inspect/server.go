package inspect

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
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
	origins  web.Origins
	handler  http.Handler
	sessions cipher.AEAD // its key is nowhere but in this process, so a restart signs everybody out
	tasks    tasks
	built    share.Cache[builtKey, *kept] // so that the next page of a long run need not read all of it again; taken by one page at a time
	alone    chan struct{}                // the pages of runs that are made now, if no host bounds their memory
}

// New returns a server. It is an error if Scope is missing, or if the prefix or an
// origin is not one.
func New(c Config) (*Server, error) {
	if c.Scope == nil {
		return nil, errors.New("inspect: the scope is missing")
	}
	if c.Prefix != "" && (!strings.HasPrefix(c.Prefix, "/") || strings.HasSuffix(c.Prefix, "/") || strings.ContainsAny(c.Prefix, "{}%? ")) {
		return nil, fmt.Errorf("inspect: the prefix %q must be a path that begins with a slash and ends without one", c.Prefix)
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	key := make([]byte, 32)
	_, _ = rand.Read(key)          // never fails
	block, _ := aes.NewCipher(key) // the key has the right length
	s := &Server{config: c}
	s.sessions, _ = cipher.NewGCMWithRandomNonce(block)
	s.built.Most, s.built.For = maxBuilt, builtTime
	var err error
	if s.origins, err = web.ParseOrigins(c.Origins); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	mux := http.NewServeMux()
	for _, route := range routes {
		method, path, _ := strings.Cut(route.Pattern, " ")
		mux.HandleFunc(method+" "+c.Prefix+path, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, route) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, eventview.View{}, eventlog.ErrRunNotFound)
	})
	s.handler = s.guard(mux)
	return s, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

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

	page page
}

// page answers a request from a view, which is empty for an open route.
type page func(s *Server, w http.ResponseWriter, r *http.Request, v eventview.View) error

// routes are all there are.
var routes = []Route{
	{"GET /{$}", false, (*Server).list},
	{"GET /live", false, follow(newestRuns)},
	{"GET /runs/{run}", false, runView(viewWaterfall)},
	{"GET /runs/{run}/events", false, runView(viewEvents)},
	{"GET /runs/{run}/conversation", false, runView(viewConversation)},
	{"GET /runs/{run}/requests", false, runView(viewRequests)},
	{"GET /runs/{run}/events/{seq}", false, (*Server).event},
	{"GET /runs/{run}/live", false, follow(newestEvent)},
	{"GET /runs/{run}/raw/{seq}", false, (*Server).raw},
	{"GET /runs/{run}/fuel", false, runView(viewFuel)},
	{"POST /runs/{run}/fuel", false, (*Server).executeForFuel},
	{"GET /tools", false, (*Server).toolList},
	{"GET /tools/{tool}", false, (*Server).tool},
	{"GET /tools/{tool}/change", false, (*Server).change},
	{"POST /tools/{tool}/change", false, (*Server).change},
	{"GET /diff", false, (*Server).diff},
	{"GET /runs/{run}/validate", false, check("validate")},
	{"POST /runs/{run}/validate", false, check("validate")},
	{"GET /runs/{run}/replay", false, check("replay")},
	{"POST /runs/{run}/replay", false, check("replay")},
	{"GET /usage", false, (*Server).usage},
	{"GET /queue", false, (*Server).queue},
	{"GET /queue/live", false, follow(queueNow)},
	{"POST /queue/{what}", false, (*Server).steer},

	{"GET /assets/{name}", true, (*Server).asset},
	{"GET /sign-in", true, (*Server).signInForm},
	{"POST /sign-in", true, (*Server).signIn},
	{"POST /sign-out", true, (*Server).signOut},
}

// Routes returns all routes. Other paths are answered as missing.
func Routes() []Route { return slices.Clone(routes) }

// The timeouts of a server that is used alone.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10 // bytes
	maxPages      = 4        // of runs, which take 60 MB for 100,000 events, at a time
)

// Serve answers on a listener, which it closes, until ctx ends. Streams end then at
// once; other requests have three seconds to get their answers.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.tasks.stop()
	s.alone = make(chan struct{}, maxPages)
	return web.Serve(ctx, &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}, l)
}
