package daemon

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// Access is who may ask for a route.
type Access string

// The values of [Access].
const (
	// Open routes tell nothing about anybody.
	Open Access = "open"
	// ForTenants routes need the key of a tenant, and show what is that tenant's.
	ForTenants Access = "tenant"
	// ForOperator routes need the operator's key.
	ForOperator Access = "operator"
	// ForScraper routes need the operator's key, or the one for metrics.
	ForScraper Access = "scraper"
)

// Route is one thing that can be asked for.
type Route struct {
	Method string // empty for whatever the handler that is mounted takes
	Path   string // a pattern of net/http, without the method
	Access Access
	Query  []string // the parameters that it takes; a tenant's route refuses any other, unless a handler is mounted

	serve func(*Daemon, http.ResponseWriter, *request) error
}

// Pattern returns the route as net/http writes it, as in "GET /api/v1/runs". It is
// how metrics name the route.
func (r Route) Pattern() string { return strings.TrimPrefix(r.Method+" "+r.Path, " ") }

// base is what the paths of the API begin with.
const base = "/api/v1"

// routes are all there are.
var routes = []Route{
	{"GET", base + "/healthz", Open, nil, (*Daemon).healthz},
	{"GET", base + "/readyz", Open, nil, (*Daemon).readyz},
	{"GET", base + "/openapi.yaml", Open, nil, (*Daemon).openapi},

	{"POST", base + "/runs", ForTenants, nil, (*Daemon).createRun},
	{"GET", base + "/runs", ForTenants, []string{"limit", "cursor", "status", "q", "since"}, (*Daemon).listRuns},
	{"GET", base + "/runs/{id}", ForTenants, nil, (*Daemon).getRun},
	{"GET", base + "/runs/{id}/events", ForTenants, []string{"after", "limit"}, (*Daemon).listEvents},
	{"GET", base + "/runs/{id}/stream", ForTenants, []string{"after"}, (*Daemon).streamRun},
	{"GET", base + "/runs/{id}/export", ForTenants, nil, (*Daemon).exportRun},
	{"POST", base + "/runs/{id}/cancel", ForTenants, nil, (*Daemon).cancelRun},
	{"POST", base + "/runs/{id}/replay", ForTenants, nil, (*Daemon).replayRun},

	{"POST", base + "/modules", ForTenants, []string{"name"}, (*Daemon).uploadModule},
	{"GET", base + "/modules", ForTenants, nil, (*Daemon).listModules},
	{"GET", base + "/modules/{name}", ForTenants, nil, (*Daemon).getModule},
	{"DELETE", base + "/modules/{name}", ForTenants, nil, (*Daemon).deleteModule},

	{"GET", base + "/tools", ForTenants, nil, (*Daemon).listTools},
	{"GET", base + "/tools/{name}", ForTenants, nil, (*Daemon).getTool},
	{"POST", base + "/tools/{name}/call", ForTenants, nil, (*Daemon).callTool},

	{"GET", base + "/agents", ForTenants, nil, (*Daemon).listAgents},

	{"GET", base + "/policy", ForTenants, nil, (*Daemon).getPolicy},
	{"PUT", base + "/policy", ForTenants, nil, (*Daemon).putPolicy},
	{"DELETE", base + "/policy", ForTenants, nil, (*Daemon).deletePolicy},

	{"GET", base + "/usage", ForTenants, []string{"days"}, (*Daemon).ownUsage},

	{"GET", base + "/operator/queue", ForOperator, []string{"tenant", "state", "limit", "after"}, (*Daemon).listQueue},
	{"POST", base + "/operator/queue/{tenant}/{id}/{what}", ForOperator, nil, (*Daemon).steer},
	{"GET", base + "/operator/usage", ForOperator, []string{"tenant", "days", "limit", "after"}, (*Daemon).listUsage},
	{"GET", base + "/operator/hosts", ForOperator, nil, (*Daemon).listHosts},
	{"POST", base + "/operator/hosts/{host}/{what}", ForOperator, nil, (*Daemon).steer},

	{"GET", "/metrics", ForScraper, nil, (*Daemon).metrics},
	{"GET", "/{$}", Open, nil, (*Daemon).start},
	{"", "/inspect/", Open, nil, (*Daemon).inspect}, // it has a door of its own, because browsers hold no keys
	{"", "/mcp", ForTenants, nil, (*Daemon).mcp},
}

// Routes returns all routes. What is not in the list is not served.
func Routes() []Route {
	public := make([]Route, len(routes))
	for i, r := range routes {
		public[i] = Route{Method: r.Method, Path: r.Path, Access: r.Access, Query: slices.Clone(r.Query)}
	}
	return public
}

// newMux returns the mux of the routes that the daemon has something for.
func (d *Daemon) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes {
		if d.has(r) {
			mux.Handle(r.Pattern(), d.handler(r))
		}
	}
	return mux
}

// has reports whether the route leads anywhere: what others serve may be left out.
func (d *Daemon) has(r Route) bool {
	switch r.Path {
	case "/inspect/", "/{$}":
		return d.config.Inspector != nil
	case "/mcp":
		return d.config.MCP != nil
	case "/metrics":
		return d.config.Metrics != nil
	}
	return true
}

// noRoute answers a request that has no route: 404, or 405 if the path has other
// methods. net/http would answer with text, and send clients with untidy paths
// elsewhere.
func (d *Daemon) noRoute(r *http.Request) *Problem {
	var allowed []string
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE"} {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, pattern := d.mux.Handler(probe); pattern != "" && tidy(r.URL.Path) {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return notFound.plain()
	}
	p := wrongMethod.because("the methods are %s", strings.Join(allowed, ", "))
	p.allow = strings.Join(allowed, ", ")
	return p
}

// tidy reports whether a path is the shortest way to write it.
func tidy(p string) bool {
	clean := path.Clean(p)
	return p == clean || p == clean+"/"
}
