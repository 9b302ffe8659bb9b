package inspect

import (
	"net/http"

	"github.com/starling-host/starling/host/logview"
)

// Route is one thing that can be asked for.
type Route struct {
	// Pattern is one of net/http, without the prefix that the server is mounted under.
	// A wildcard {run} is the id of a run, {seq} the number of an event.
	Pattern string

	// Open routes show nothing of a log, and need no credential.
	Open bool

	serve func(*Server) http.HandlerFunc
}

// routes are all there are.
var routes = []Route{
	ofView("GET /{$}", (*Server).list),
	ofView("GET /runs/{run}", (*Server).timeline),
	ofView("GET /runs/{run}/events/{seq}", (*Server).event),
	ofView("GET /runs/{run}/live", (*Server).live),
	ofView("GET /runs/{run}/raw/{seq}", (*Server).raw),
	ofView("GET /diff", (*Server).diff),
	ofView("POST /runs/{run}/validate", (*Server).validate),
	ofView("POST /runs/{run}/replay", (*Server).replay),
	ofView("GET /usage", (*Server).usage),
	ofView("GET /queue", (*Server).queue),
	ofView("POST /queue/{what}", (*Server).steer),

	open("GET /assets/{name}", (*Server).asset),
	open("GET /sign-in", (*Server).signInForm),
	open("POST /sign-in", (*Server).signIn),
	open("POST /sign-out", (*Server).signOut),
}

// Routes returns all routes. Whatever is not in the list is answered as what is absent.
func Routes() []Route {
	public := make([]Route, len(routes))
	for i, r := range routes {
		public[i] = Route{Pattern: r.Pattern, Open: r.Open}
	}
	return public
}

// ofView is a route of what a view shows.
func ofView(pattern string, p func(*Server, http.ResponseWriter, *http.Request, logview.View) error) Route {
	return Route{Pattern: pattern, serve: func(s *Server) http.HandlerFunc {
		return s.scoped(func(w http.ResponseWriter, r *http.Request, v logview.View) error { return p(s, w, r, v) })
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
	mux.HandleFunc("/", s.nowhere)
	return mux
}
