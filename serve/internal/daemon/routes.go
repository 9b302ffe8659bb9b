package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
)

// Access is who may ask for a route.
type Access string

// The values of [Access].
const (
	// Open routes reveal nothing about tenants.
	Open Access = "open"
	// ForTenants routes require the key of a tenant, and show only its data.
	ForTenants Access = "tenant"
	// ForOperator routes need the operator's key.
	ForOperator Access = "operator"
	// ForScraper routes need the operator's key, or the one for metrics.
	ForScraper Access = "scraper"
)

// Route is one thing that can be asked for.
type Route struct {
	Method string // empty for all methods of a mounted handler
	Path   string // a pattern of net/http, without the method
	Access Access
	Query  []string // the parameters that it takes; a tenant's route refuses any other, unless a handler is mounted

	serve func(*Daemon, http.ResponseWriter, *request) error
	needs func(Config) http.Handler // nil for a daemon without the route; nil if every daemon has it
}

// Pattern returns the route as net/http writes it, as in "GET /api/v1/runs". It is
// how metrics name the route.
func (r Route) Pattern() string { return strings.TrimPrefix(r.Method+" "+r.Path, " ") }

// base is what the paths of the API begin with.
const base = "/api/v1"

// routes are all routes of the daemon.
var routes = []Route{
	{"GET", base + "/healthz", Open, nil, show((*Daemon).healthz), nil},
	{"GET", base + "/readyz", Open, nil, (*Daemon).readyz, nil},
	{"GET", base + "/openapi.yaml", Open, nil, (*Daemon).openapi, nil},

	{"POST", base + "/runs", ForTenants, nil, (*Daemon).createRun, nil},
	{"GET", base + "/runs", ForTenants, []string{"limit", "cursor", "status", "q", "since"}, show((*Daemon).listRuns), nil},
	{"GET", base + "/runs/{id}", ForTenants, nil, show((*Daemon).getRun), nil},
	{"GET", base + "/runs/{id}/events", ForTenants, []string{"after", "limit"}, (*Daemon).listEvents, nil},
	{"GET", base + "/runs/{id}/stream", ForTenants, []string{"after"}, (*Daemon).streamRun, nil},
	{"GET", base + "/runs/{id}/export", ForTenants, nil, (*Daemon).exportRun, nil},
	{"GET", base + "/runs/{id}/receipt", ForTenants, nil, show((*Daemon).runReceipts), nil},
	{"GET", base + "/receipts", ForTenants, []string{"sha256"}, show((*Daemon).findReceipts), nil},
	{"POST", base + "/runs/{id}/cancel", ForTenants, nil, (*Daemon).cancelRun, nil},
	{"POST", base + "/runs/{id}/replay", ForTenants, nil, show((*Daemon).replayRun), nil},

	{"POST", base + "/modules", ForTenants, []string{"name"}, (*Daemon).uploadModule, nil},
	{"GET", base + "/modules", ForTenants, nil, show((*Daemon).listModules), nil},
	{"GET", base + "/modules/{name}", ForTenants, nil, show((*Daemon).getModule), nil},
	{"DELETE", base + "/modules/{name}", ForTenants, nil, (*Daemon).deleteModule, nil},

	{"GET", base + "/tools", ForTenants, nil, show((*Daemon).listTools), nil},
	{"GET", base + "/tools/{name}", ForTenants, nil, show((*Daemon).getTool), nil},
	{"POST", base + "/tools/{name}/call", ForTenants, nil, (*Daemon).callTool, nil},

	{"GET", base + "/agents", ForTenants, nil, show((*Daemon).listAgents), nil},

	{"GET", base + "/policy", ForTenants, nil, (*Daemon).getPolicy, nil},
	{"PUT", base + "/policy", ForTenants, nil, (*Daemon).putPolicy, nil},
	{"DELETE", base + "/policy", ForTenants, nil, (*Daemon).deletePolicy, nil},

	{"GET", base + "/usage", ForTenants, []string{"days"}, show((*Daemon).ownUsage), nil},

	{"GET", base + "/operator/queue", ForOperator, []string{"tenant", "state", "limit", "after"}, show((*Daemon).listQueue), nil},
	{"POST", base + "/operator/queue/{tenant}/{id}/{what}", ForOperator, nil, (*Daemon).steer, nil},
	{"GET", base + "/operator/usage", ForOperator, []string{"tenant", "days", "limit", "after"}, show((*Daemon).listUsage), nil},
	{"GET", base + "/operator/hosts", ForOperator, nil, show((*Daemon).listHosts), nil},
	{"POST", base + "/operator/hosts/{host}/{what}", ForOperator, nil, (*Daemon).steer, nil},

	mounted("GET", "/metrics", ForScraper, func(c Config) http.Handler { return c.Metrics }),
	mounted("GET", "/{$}", Open, func(c Config) http.Handler { // for a browser that was given the bare address
		if c.Inspector == nil {
			return nil
		}
		return http.RedirectHandler("/inspect/", http.StatusSeeOther)
	}),
	mounted("", "/inspect/", Open, func(c Config) http.Handler { return c.Inspector }), // it authenticates by itself, because browsers hold no keys
	mounted("", "/mcp", ForTenants, func(c Config) http.Handler { return c.MCP }),
}

// mounted is a route that another handler serves.
func mounted(method, path string, access Access, of func(Config) http.Handler) Route {
	return Route{Method: method, Path: path, Access: access, needs: of, serve: func(d *Daemon, w http.ResponseWriter, r *request) error {
		if access == ForTenants {
			if err := d.holdBody(w, r.Request, maxJSON, share.Document); err != nil {
				return err
			}
		}
		of(d.config).ServeHTTP(w, r.Request)
		return nil
	}}
}

// show answers with a document.
func show[T any](of func(*Daemon, *request) (T, error)) func(*Daemon, http.ResponseWriter, *request) error {
	return func(d *Daemon, w http.ResponseWriter, r *request) error {
		doc, err := of(d, r)
		if err == nil {
			writeJSON(w, http.StatusOK, doc)
		}
		return err
	}
}

// newMux returns the mux of the routes that the daemon has something for.
func (d *Daemon) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes {
		if r.needs == nil || r.needs(d.config) != nil {
			mux.Handle(r.Pattern(), d.handler(r))
		}
	}
	return mux
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

// problemBase is what the types of problems begin with. Their names are sections
// of the document there.
const problemBase = "https://github.com/starling-host/starling/blob/main/docs/problems.md#"

// Problem is an error response as defined by RFC 9457, the only form of error that clients see.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"` // what was wrong with this request
	Hint   string `json:"hint,omitempty"`   // what to do about it

	// For an error in a body: the member or JSON pointer, and the position. Excerpt is the line,
	// with a caret below the column.
	Field   string `json:"field,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Excerpt string `json:"excerpt,omitempty"`

	// Problems are what a schema has to say of an input.
	Problems []string `json:"problems,omitempty"`

	// For a refused module: the position, and the exceeded bound.
	Function     *int   `json:"function,omitempty"`
	FunctionName string `json:"function_name,omitempty"`
	Offset       *int   `json:"offset,omitempty"`
	Limit        uint64 `json:"limit,omitempty"`
	Value        uint64 `json:"value,omitempty"`

	retryAfter time.Duration
	allow      string // the methods that there are
	challenge  bool   // ask for a key
}

// Error returns the title and the detail.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// kind is a type of problem.
type kind struct {
	name   string
	status int
	title  string
}

// The kinds of problems. The names are a contract.
var (
	badRequest      = newKind("bad-request", http.StatusBadRequest, "The request cannot be read")
	badJSON         = newKind("invalid-json", http.StatusBadRequest, "The body is not JSON")
	unknownField    = newKind("unknown-field", http.StatusBadRequest, "The body has an unknown field")
	badField        = newKind("invalid-field", http.StatusBadRequest, "A field has an invalid value")
	badQuery        = newKind("invalid-parameter", http.StatusBadRequest, "A parameter has an invalid value")
	unauthorized    = newKind("unauthorized", http.StatusUnauthorized, "A valid key is required")
	policyHeld      = newKind("policy-held", http.StatusForbidden, "The operator has set the policy, and holds it")
	notFound        = newKind("not-found", http.StatusNotFound, "Not found")
	wrongMethod     = newKind("method-not-allowed", http.StatusMethodNotAllowed, "The method is not allowed")
	notSleeping     = newKind("not-sleeping", http.StatusConflict, "The run is not sleeping")
	notEnded        = newKind("not-ended", http.StatusConflict, "The run has not ended")
	alreadyEnded    = newKind("already-ended", http.StatusConflict, "The run has ended")
	unreadable      = newKind("unreadable", http.StatusConflict, "The run cannot be read here")
	removed         = newKind("removed", http.StatusGone, "The run was removed")
	nameTaken       = newKind("name-taken", http.StatusConflict, "The name is taken")
	otherVersion    = newKind("changed", http.StatusPreconditionFailed, "It was changed meanwhile")
	tooLarge        = newKind("too-large", http.StatusRequestEntityTooLarge, "The body is too large")
	wrongType       = newKind("unsupported-media-type", http.StatusUnsupportedMediaType, "The content type is not accepted")
	badInput        = newKind("invalid-input", http.StatusUnprocessableEntity, "The input does not match the schema")
	otherRequest    = newKind("idempotency-key-reused", http.StatusUnprocessableEntity, "The idempotency key belongs to another request")
	moduleRefused   = newKind("module-refused", http.StatusUnprocessableEntity, "The module is not accepted")
	moduleLimit     = newKind("module-limit", http.StatusUnprocessableEntity, "The tenant has reached its limit of modules")
	notReplayable   = newKind("not-replayable", http.StatusUnprocessableEntity, "The run cannot be executed again here")
	badPolicy       = newKind("invalid-policy", http.StatusUnprocessableEntity, "The body is not a policy")
	unconditional   = newKind("precondition-required", http.StatusPreconditionRequired, "The request needs If-Match or If-None-Match")
	rateLimited     = newKind("rate-limited", http.StatusTooManyRequests, "Too many requests")
	tenantFull      = newKind("too-many-waiting", http.StatusTooManyRequests, "The tenant has reached its limit of waiting runs")
	recordedLimit   = newKind("recorded-limit", http.StatusTooManyRequests, "The tenant has reached its limit of recorded bytes")
	queueFull       = newKind("queue-full", http.StatusServiceUnavailable, "The queue of the host is full")
	busy            = newKind("busy", http.StatusServiceUnavailable, "The host is busy with requests of this kind")
	unavailable     = newKind("unavailable", http.StatusServiceUnavailable, "The host cannot do this now")
	noSpace         = newKind("no-space", http.StatusInsufficientStorage, "The host is short of disk space")
	internalFailure = newKind("internal", http.StatusInternalServerError, "The host has failed")
)

// problemKinds are all kinds of problems.
var problemKinds []kind

func newKind(name string, status int, title string) kind {
	k := kind{name, status, title}
	problemKinds = append(problemKinds, k)
	return k
}

// because returns a problem of this kind with a detail.
func (k kind) because(format string, args ...any) *Problem {
	return &Problem{Type: problemBase + k.name, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...)}
}

// plain is a problem of the kind that says the same of every request.
func (k kind) plain() *Problem {
	return &Problem{Type: problemBase + k.name, Title: k.title, Status: k.status}
}

func (p *Problem) in(field string) *Problem           { p.Field = field; return p }
func (p *Problem) hint(text string) *Problem          { p.Hint = text; return p }
func (p *Problem) retry(after time.Duration) *Problem { p.retryAfter = after; return p }

// Is reports a problem that passes when the tenant asks for less as [share.ErrBusy].
func (p *Problem) Is(target error) bool {
	return target == share.ErrBusy && (p.Status == rateLimited.status || p.Type == problemBase+busy.name)
}

// write answers with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	h := w.Header()
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.retryAfter+time.Second-1)/time.Second)))
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.challenge {
		h.Set("WWW-Authenticate", `Bearer realm="starling-host"`)
	}
	writeDocument(w, p.Status, "application/problem+json", p)
}

// writeDocument sends a JSON document. It escapes the characters that an HTML parser would act on,
// in case the client treats it as HTML. The result of a run, which is canonical JSON, is copied
// without parsing.
func writeDocument(w http.ResponseWriter, status int, contentType string, v any) {
	var result json.RawMessage
	if run, ok := v.(*eventview.RunDocument); ok {
		rest := *run
		result, rest.Result = run.Result, nil
		v = &rest
	}
	var body bytes.Buffer
	body.Grow(len(result) + 1<<10)
	if err := json.NewEncoder(&body).Encode(v); err != nil {
		http.Error(w, "", http.StatusInternalServerError) // no document of ours fails here
		return
	}
	if len(result) > 0 {
		body.Truncate(body.Len() - len("}\n"))
		body.WriteString(`,"result":`)
		json.HTMLEscape(&body, result)
		body.WriteString("}\n")
	}
	of := w.(*answer).share
	of.Keep(int64(body.Len())) // what it was made of is not needed while the client reads
	if err := of.Cover(int64(body.Len())); err != nil {
		problemOf(err).write(w)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client may have gone
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	writeDocument(w, status, "application/json", v)
}
