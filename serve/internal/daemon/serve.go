package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/internal/web"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// request is a request that was let in.
type request struct {
	*http.Request
	tenant Account
	view   eventview.View // the log as the tenant sees it, for routes that are the tenant's
	query  *parameters    // of routes that are not mounted, whose handlers read their own
}

// ulid matches one in its one form.
var ulid = lazy.Regexp(`^[0-7][0-9A-HJKMNP-TV-Z]{25}$`)

type accountKey struct{}

// AccountOf returns the authenticated account of a request, for handlers mounted for tenants.
func AccountOf(ctx context.Context) (Account, bool) {
	a, ok := ctx.Value(accountKey{}).(Account)
	return a, ok
}

// writeTimeout is how long a client with a key may take to read a response. A client without a key
// has [Config.HeaderTime].
const writeTimeout = 30 * time.Second

// ServeHTTP implements [http.Handler].
func (d *Daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	if len(r.TransferEncoding) > 0 || d.taking.Err() != nil {
		// net/http leaves out a Content-Length beside a transfer encoding, by which a
		// proxy may have found another end of the request, so what follows cannot be trusted.
		// And a host that is about to end sends its clients to another one.
		h.Set("Connection", "close")
	}
	out := &answer{ResponseWriter: w, conn: connOf(r.Context()), share: share.Of(r.Context()), openTime: d.config.HeaderTime}
	out.conn.begin()
	out.extend()
	bodyWithin(w, r, d.config.HeaderTime)
	if _, pattern := d.mux.Handler(r); pattern == "" || !tidy(r.URL.Path) {
		p := d.noRoute(r)
		bodyWithin(w, r, leftover)
		p.write(out)
		d.config.Observe.ObserveRequest("none", p.Status, 0)
		return
	}
	d.mux.ServeHTTP(out, r)
	if out.dropped {
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
	}
	if out.status == 0 {
		out.WriteHeader(http.StatusOK) // in its own time
	}
}

// leftover is how long the rest of a body may take whose request was refused. net/http
// reads it, as long as it is short, to keep the connection.
const leftover = time.Second

// bodyWithin bounds the time in which the body of a request has to arrive: as long as the
// headers, and Connections.Request of [Settings] for a module. Without a body there is nothing to wait
// for, and a deadline would end the request itself.
func bodyWithin(w http.ResponseWriter, r *http.Request, within time.Duration) {
	if r.ContentLength != 0 {
		until, c := time.Now().Add(within), http.NewResponseController(w)
		_ = c.SetReadDeadline(until)  // which a test's writer has not
		_ = c.SetWriteDeadline(until) // for "100 Continue"
	}
}

// handler is the way of every request of a route.
func (d *Daemon) handler(route Route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		out := w.(*answer)
		defer func() {
			switch failed := recover(); {
			case failed == http.ErrAbortHandler: // which cuts the connection on purpose
				panic(failed)
			case failed != nil:
				d.logger.Error("request panicked", "route", route.Pattern(), "panic", failed, "stack", string(debug.Stack()))
				if out.status == 0 {
					internalFailure.plain().write(out)
				}
			}
			d.config.Observe.ObserveRequest(route.Pattern(), out.status, time.Since(began))
		}()
		ctx, of := d.host.Begin(r.Context(), guest.Claim{Tenant: unnamed})
		defer of.End()
		r, out.share = r.WithContext(ctx), of
		req, err := d.admit(route, r)
		if err == nil {
			if route.Access == ForTenants { // clients without a key must not fill the traces, and probes say nothing
				ctx, end := d.config.Tracer.StartRequest(req.Request, route.Pattern(), began)
				defer func() { end(out.status) }()
				req.Request = req.WithContext(ctx)
			}
			err = d.ask(route, out, req)
		}
		if err != nil {
			d.fail(r, route, out, err)
		}
	})
}

// unnamed is charged for requests until their tenant is known. It is not a valid tenant id.
const unnamed = ":unnamed"

// ask serves a request. A request with a key may have only the parameters of its route; probes and
// scrapers may add others.
func (d *Daemon) ask(route Route, out *answer, r *request) error {
	writes := route.Method != "" && route.Method != http.MethodGet && route.Path != base+"/runs/{id}/replay"
	if writes && route.Access != ForOperator { // the operator has to make room
		if err := d.disk.need(0, spaceFull); err != nil {
			return err
		}
	}
	if route.Method != "" && (route.Access == ForTenants || route.Access == ForOperator) {
		if r.query = parametersOf(r.Request, route.Query); r.query.err != nil {
			return r.query.err
		}
	}
	if route.Access == ForTenants && route.Method == http.MethodGet { // a request with a body has not sent it yet
		if err := share.Step(r.Context()); err != nil {
			return err
		}
	}
	return route.serve(d, out, r)
}

// fail answers a failed request. An error that is not a problem is the host's own; its text is
// logged and not sent.
func (d *Daemon) fail(r *http.Request, route Route, out *answer, err error) {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError && p.Status != noSpace.status && r.Context().Err() == nil { // watch logs the state of the disk
		level := slog.LevelWarn
		if p.Status == http.StatusInternalServerError {
			level = slog.LevelError
		}
		d.logger.Log(r.Context(), level, "request failed", "route", route.Pattern(), "error", err.Error())
	}
	if out.status == 0 {
		bodyWithin(out, r, leftover)
		p.write(out)
	}
	if p.Status >= http.StatusInternalServerError && r.Context().Err() != nil {
		out.status = clientGone
	}
}

// clientGone is what a request is counted as that failed because its client has gone: no
// failure of the host, and what proxies call it.
const clientGone = 499

// problemOf returns the response for an error.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if bad, ok := errors.AsType[*tool.InputError](err); ok {
		kind := badInput
		if bad.Cause == nil {
			kind = tooLarge
		}
		p := kind.because("%v", bad).in("input")
		if schema, ok := bad.Cause.(*tool.SchemaError); ok {
			p.Problems = schema.Brief()
		}
		return p
	}
	if why := eventview.Unreadable(err); why != "" {
		return unreadable.because("%s", why)
	}
	switch {
	case errors.Is(err, share.ErrBusy):
		return busy.because("the memory for requests, of the tenant or of the host, is in use").retry(2 * time.Second)
	case errors.Is(err, eventlog.ErrRunNotFound), errors.Is(err, eventlog.ErrModuleNotFound), errors.Is(err, tenant.ErrNotFound),
		errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrNoHost):
		return notFound.plain()
	case errors.Is(err, queue.ErrNotSleeping):
		return notSleeping.plain()
	case errors.Is(err, tenant.ErrPolicyHeld):
		return policyHeld.plain()
	case errors.Is(err, tenant.ErrPolicyChanged):
		return otherVersion.plain().hint("read the current policy first")
	case errors.Is(err, tenant.ErrErased): // after the request was let in
		return noKey()
	case errors.Is(err, tenant.ErrWrongMasterKey), // this host's; another one may have the right one
		errors.Is(err, eventlog.ErrLogClosed), errors.Is(err, eventlog.ErrLogStopped), errors.Is(err, eventlog.ErrUnavailable),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, tool.ErrHost): // such as no process for a module
		return unavailable.plain().retry(retryElsewhere)
	}
	return internalFailure.plain()
}

// answer is the writer through which every answer of the host leaves: the API's, and those of mounted
// handlers. It remembers how a request was answered, bounds how long the client may take to read each
// piece, and drops a piece for which the request holds no memory and gets none. After the answer to a request without a key the connection is closed: such a
// client has to connect again, behind others that do.
type answer struct {
	http.ResponseWriter
	conn     *conn
	share    *share.Share
	openTime time.Duration // to read an answer to a request without a key
	status   int
	dropped  bool // there was no memory for the answer, or for the rest of it
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
		a.extend()
		if a.conn != nil && !a.conn.hasKey() {
			a.Header().Set("Connection", "close")
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	} else {
		a.extend()
	}
	a.share.Rest() // the client may be slow
	if err := a.share.Cover(int64(len(p))); err != nil {
		a.dropped = true
		return 0, err
	}
	return a.ResponseWriter.Write(p)
}

// extend gives the client more time to read the data being written.
func (a *answer) extend() {
	within := writeTimeout
	if a.conn != nil && !a.conn.hasKey() {
		within = a.openTime
	}
	_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(within)) // which a test's writer has not
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// admit lets a request in: with a key if the route asks for one, and as long as
// the tenant does not ask too often.
func (d *Daemon) admit(route Route, r *http.Request) (*request, error) {
	req := &request{Request: r}
	if hosts := d.config.Hosts; hosts != nil && !slices.Contains(hosts, strings.ToLower(r.Host)) { // a page of another site may have sent it
		return nil, badRequest.because("this host does not serve the name %q, only %s", r.Host, strings.Join(hosts, " and "))
	}
	switch route.Access {
	case ForScraper:
		if d.config.OpenMetrics {
			return req, nil
		}
		return req, hasKey(r, d.config.MetricsKey, d.config.OperatorKey)
	case ForOperator:
		return req, d.AuthenticateOperator(r)
	case ForTenants:
		a, err := d.Authenticate(r)
		if err != nil {
			return nil, err
		}
		req.tenant = a
		req.Request = r.WithContext(context.WithValue(guest.WithClaim(r.Context(), claimOf(a.Tenant)), accountKey{}, a))
		req.view, err = d.View(a)
		return req, err
	}
	return req, nil
}

// Authenticate returns the account of the tenant whose key the request has, within the tenant's
// rate of requests. The error is the same for a missing key, an unknown key, and a key of a
// suspended tenant. Keys that were never valid are looked up in slots shared by all such requests,
// so that clients who guess keys wait for each other.
func (d *Daemon) Authenticate(r *http.Request) (Account, error) {
	key, ok := web.Bearer(r)
	digest := sha256.Sum256([]byte(key))
	if _, known := d.validKeys.find(digest, nil); !known {
		if err := share.Step(r.Context()); err != nil {
			return Account{}, err
		}
	}
	if !ok {
		return Account{}, noKey()
	}
	var a Account
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	who, err := d.config.Tenants.Authenticate(ctx, key)
	if err == nil {
		a, err = d.accountOf(ctx, who)
	}
	if errors.Is(err, tenant.ErrUnauthorized) || errors.Is(err, tenant.ErrErased) { // just now
		return Account{}, noKey()
	}
	if err != nil {
		return Account{}, err
	}
	a.key = tenant.KeyID(key)
	d.validKeys.find(digest, func() (valid struct{}) { return valid })
	share.Of(r.Context()).Claim(claimOf(a.Tenant))
	c := connOf(r.Context())
	c.claim(a.ID)
	if most, more := c.crowded(); more {
		return Account{}, rateLimited.because("%d requests of the tenant are in progress", most).retry(time.Second)
	}
	if wait := d.requests.wait(a.ID, a.Limits.RequestsPerSecond, time.Second); wait > 0 {
		return Account{}, rateLimited.plain().retry(wait)
	}
	return a, nil
}

func noKey() *Problem {
	p := unauthorized.plain().hint("send it as Authorization: Bearer KEY")
	p.challenge = true
	return p
}

// hasKey returns nil if the request has one of the keys. Empty keys match nothing. It compares
// hashes, so that the time reveals nothing about a key.
func hasKey(r *http.Request, keys ...string) error {
	key, _ := web.Bearer(r)
	got := sha256.Sum256([]byte(key))
	for _, k := range keys {
		want := sha256.Sum256([]byte(k))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 && k != "" {
			connOf(r.Context()).claim(":operator") // no id of a tenant
			return nil
		}
	}
	return noKey()
}
