package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// runRequest asks for a run: of an agent towards a goal, or of one call of a tool.
type runRequest struct {
	Agent     string          `json:"agent"`
	Goal      string          `json:"goal"`
	Tool      string          `json:"tool"`
	Input     *canon.Doc      `json:"input"`
	Variables json.RawMessage `json:"variables"`
	Caller    json.RawMessage `json:"caller"` // claims, see [event.ParseClaims]
	Priority  int             `json:"priority"`
	Wait      float64         `json:"wait"` // seconds
}

// callRequest asks for one call of the tool that the path names.
type callRequest struct {
	Input     *canon.Doc      `json:"input"`
	Variables json.RawMessage `json:"variables"`
	Caller    json.RawMessage `json:"caller"`
	Priority  int             `json:"priority"`
	Wait      *float64        `json:"wait"` // seconds; absent is as long as the host lets one wait
}

// mostPriority bounds the priority of a run in either direction.
const mostPriority = 100

func (d *Daemon) createRun(w http.ResponseWriter, r *request) error {
	var body runRequest
	raw, err := d.readRun(w, r, &body)
	if err != nil {
		return err
	}
	return d.submit(w, r, body, raw)
}

func (d *Daemon) callTool(w http.ResponseWriter, r *request) error {
	var body callRequest
	raw, err := d.readRun(w, r, &body)
	if err != nil {
		return err
	}
	run := runRequest{Tool: r.PathValue("name"), Input: body.Input, Variables: body.Variables, Caller: body.Caller, Priority: body.Priority, Wait: d.config.Requests.Wait.Seconds()}
	if body.Wait != nil {
		run.Wait = *body.Wait
	}
	return d.submit(w, r, run, raw)
}

// readRun reads the body of a request for a run, see readJSON, unless it is known without the
// body that no run will begin. A request with an idempotency key may have been carried out
// before, and then has its answer.
func (d *Daemon) readRun(w http.ResponseWriter, r *request, body any) (raw []byte, err error) {
	if r.Header.Get("Idempotency-Key") == "" {
		if err := d.admits(r.Context(), r.tenant); err != nil {
			return nil, err
		}
	}
	return d.readJSON(w, r.Request, body)
}

// admits refuses a run that the host or the tenant has no room for.
func (d *Daemon) admits(ctx context.Context, a Account) error {
	if err := d.takesWork(); err != nil {
		return err
	}
	if err := d.disk.need(0, spaceShort); err != nil {
		return err
	}
	return d.volume.check(ctx, a.Tenant)
}

// check returns the error in a request that can be found without the database.
func (q *runRequest) check(maxWait time.Duration) error {
	switch {
	case q.Tool == "" && q.Goal == "" && q.Agent == "":
		return badField.because(`a run has either "tool" and "input", or "agent" and "goal"`)
	case q.Tool != "" && (q.Goal != "" || q.Agent != ""):
		return badField.because(`a run has either "tool" or "agent", not both`).in("tool")
	case q.Tool == "" && strings.TrimSpace(q.Goal) == "":
		return badField.because("the goal is empty").in("goal")
	case q.Tool == "" && q.Input != nil:
		return badField.because("an agent has a goal and no input").in("input")
	case q.Priority < -mostPriority || q.Priority > mostPriority:
		return badField.because("a priority is -%d to %d", mostPriority, mostPriority).in("priority")
	case q.Wait < 0 || q.Wait > maxWait.Seconds():
		return badField.because("wait is 0 to %g seconds", maxWait.Seconds()).in("wait")
	}
	if q.Variables != nil && q.Variables[0] != '{' {
		return badField.because("variables are an object").in("variables")
	}
	return nil
}

// submit queues a run and answers with it: at once, or when it has ended if the
// request waits.
func (d *Daemon) submit(w http.ResponseWriter, r *request, q runRequest, raw []byte) error {
	if err := q.check(d.config.Requests.Wait); err != nil {
		return err
	}
	wait := time.Duration(q.Wait * float64(time.Second))
	if wait > 0 {
		leave, err := enter(r.Context(), d.streams, r.tenant.Tenant, d.config.Requests.Streams)
		if err != nil {
			return err
		}
		defer leave()
	}
	key, digest, err := idempotency(r, raw)
	if err != nil {
		return err
	}
	ctx, err := tool.WithCaller(r.Context(), event.Caller{TraceParent: clip(r.Header.Get("traceparent"))})
	if err != nil {
		return err
	}
	id, err := d.acceptOnce(ctx, r.tenant, q, key, digest)
	if err != nil {
		return err
	}
	share.Of(r.Context()).Keep(0) // the body is no longer needed
	w.Header().Set("Location", base+"/runs/"+id)
	doc, err := d.outcome(r.Context(), r.view, id, wait)
	if errors.Is(err, context.Canceled) { // a client that closed its sending side may still read
		doc, err = describeRun(context.WithoutCancel(r.Context()), r.view, id)
	}
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if doc.Status != eventlog.StatusOpen && wait > 0 {
		status = http.StatusOK
	}
	writeJSON(w, status, doc)
	return nil
}

// outcome returns the document of a run that was accepted when it has ended, or after a
// time.
func (d *Daemon) outcome(ctx context.Context, view eventview.View, id string, most time.Duration) (doc *eventview.RunDocument, err error) {
	doc, err = d.await(ctx, view, id, most)
	if doc == nil && err == nil {
		doc, err = describeRun(ctx, view, id)
	}
	if err != nil { // the end of an erased tenant's run, for one, is there and cannot be read
		err = cmp.Or(d.checkStillExists(ctx, view, id), err)
	}
	if errors.Is(err, eventlog.ErrRunNotFound) {
		return nil, removed.because("run %s was accepted and later removed", id)
	}
	return doc, err
}

// firstBeat is when a wait first checks that the run still exists. Earlier is no use: most
// often the run was accepted just now.
const firstBeat = time.Second

// await returns the document of a run when it has ended, built from its events as they arrive, or
// nil after a time: a run that continues is not an error.
func (d *Daemon) await(parent context.Context, view eventview.View, id string, most time.Duration) (*eventview.RunDocument, error) {
	if most <= 0 {
		return nil, nil
	}
	ctx, stop := d.whileServing(parent)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	events, err := view.Log.Stream(ctx, fullID(view.Namespace, id))
	if err != nil {
		return nil, err
	}
	beat := time.NewTimer(min(firstBeat, d.config.Heartbeat))
	defer beat.Stop()
	b, at, held := span.Builder{Whole: true}, eventlog.Cursor{}, 0
	for {
		share.Of(ctx).Rest()
		select {
		case ev, more := <-events:
			if !more {
				return nil, parent.Err()
			}
			at.Count(ev)
			if err := b.Add(ev); err != nil || b.Run().Encrypted {
				return nil, cmp.Or(err, event.ErrEncrypted)
			}
			need := 0
			if len(ev.Payload) > guest.SmallBytes { // the response will contain it
				need = share.Event * len(ev.Payload)
			}
			if grown := b.Run().Size() - held; grown > guest.SmallBytes {
				held, need = held+grown, need+grown
			}
			if need > 0 {
				err := share.Hold(ctx, int64(need))
				if err == nil {
					err = share.Step(ctx)
				}
				if err != nil {
					return nil, err
				}
			}
			if ev.Kind.Terminal() {
				s := at.Run()
				s.RunID = id
				return &eventview.RunDocument{Document: b.Run().Document(s)}, nil
			}
		case <-beat.C:
			if err := d.checkStillExists(ctx, view, id); err != nil {
				return nil, err
			}
			beat.Reset(d.config.Heartbeat)
		}
	}
}

// checkStillExists returns an error if a wait for a run should end although no event says
// so: the run was removed, or its tenant may not see it any more.
func (d *Daemon) checkStillExists(ctx context.Context, view eventview.View, id string) error {
	t, err := d.config.Tenants.Tenant(ctx, view.Namespace)
	if err == nil && (t.Suspended || !t.Erased.IsZero()) {
		return noKey()
	}
	if _, err = view.Run(ctx, id); errors.Is(err, eventlog.ErrRunNotFound) {
		return err
	}
	return nil // or the database does not answer, which passes
}

// order is what a worker needs to know of a run beside what its log has.
type order struct {
	Agent     string          `json:"agent,omitempty"`
	Module    string          `json:"module,omitempty"` // name
	Digest    string          `json:"digest,omitempty"`
	Tool      string          `json:"tool,omitempty"`
	Variables json.RawMessage `json:"variables,omitempty"`
	Trace     string          `json:"trace,omitempty"` // where the request was in its trace

	input *canon.Doc // of the tool
}

// encode writes the order on a line, followed by the input. It does not escape for HTML, which
// would take six bytes of a job's limit for each <.
func (o order) encode() ([]byte, error) {
	var b bytes.Buffer
	if o.input != nil {
		b.Grow(len(o.input.JSON) + 1<<10)
	}
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(o)
	if o.input != nil {
		b.Write(o.input.JSON)
	}
	return b.Bytes(), err
}

// decode reads what encode wrote.
func (o *order) decode(text []byte) error {
	line, input, _ := bytes.Cut(text, []byte("\n"))
	err := json.Unmarshal(line, o)
	if err == nil && len(input) > 0 {
		o.input, err = canon.Parse(input)
	}
	return err
}

// answersLive is how long an idempotency key is remembered.
const answersLive = 24 * time.Hour

// seenError ends the transaction of a request that was carried out before.
type seenError struct{ id string }

func (e *seenError) Error() string { return "daemon: the request was carried out as run " + e.id }

// alongside is written down in the transaction that makes sure of a run.
type alongside func(tx eventlog.Tx, id string) error

// acceptOnce accepts a request once for each idempotency key. If the process dies before
// the transaction, nothing has happened; after it, the same request has the same answer.
func (d *Daemon) acceptOnce(ctx context.Context, a Account, q runRequest, key string, request canon.Hash) (string, error) {
	if key == "" {
		return d.accept(ctx, a, q, nil)
	}
	id, found, err := d.config.Tenants.Answered(ctx, a.ID, key, request)
	if err != nil || found {
		return string(id), keyError(err)
	}
	accepted, err := d.accept(ctx, a, q, func(tx eventlog.Tx, id string) error {
		earlier, err := d.config.Tenants.Once(tx, a.ID, key, request, []byte(id), answersLive)
		if err == nil && earlier != nil {
			err = &seenError{string(earlier)}
		}
		return err
	})
	if seen, ok := errors.AsType[*seenError](err); ok {
		return seen.id, nil
	}
	return accepted, keyError(err)
}

// accept makes sure that the run will be executed, and returns its id. If the error is
// the database's, the run may have been accepted as well.
func (d *Daemon) accept(ctx context.Context, a Account, q runRequest, also alongside) (string, error) {
	if err := d.admits(ctx, a); err != nil {
		return "", err
	}
	id := event.NewID()
	job, first, modules, err := d.prepare(ctx, a, q, fullID(a.ID, id))
	if err != nil {
		return "", err
	}
	share.Of(ctx).Rest()
	var took time.Duration // to append, and not to commit with what others do
	enqueue := func() error {
		return d.config.Queue.Enqueue(ctx, job, func(tx eventlog.Tx) error {
			if also != nil {
				if err := also(tx, id); err != nil {
					return err
				}
			}
			if err := eventlog.UseModules(tx, job.RunID, modules...); err != nil {
				return err
			}
			began := time.Now()
			err := tx.Append(job.RunID, first)
			took = time.Since(began)
			return err
		})
	}
	err = enqueue()
	if errors.Is(err, eventlog.ErrModuleNotFound) && q.Tool != "" { // the tenant has removed it meanwhile
		return "", notFound.plain()
	}
	if errors.Is(err, eventlog.ErrModuleNotFound) {
		if err = d.storeModules(ctx, modules); err == nil {
			err = enqueue()
		}
	}
	d.countOpening(err, took)
	if err == nil {
		d.volume.add(a.ID, len(first.Payload)+envelopeBytes, len(job.Payload))
	}
	return id, withRetryTime(err)
}

// storeModules stores modules of the host's agents that were removed from the log, because no
// run used them.
func (d *Daemon) storeModules(ctx context.Context, modules []canon.Hash) error {
	for _, a := range d.config.Agents {
		for _, digest := range modules {
			if wasm, ok := a.Modules[digest]; ok {
				if _, err := d.config.Log.PutModule(ctx, wasm); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// withRetryTime returns the response for a full queue.
func withRetryTime(err error) error {
	e, ok := errors.AsType[*queue.FullError](err)
	switch {
	case !ok:
		return err
	case errors.Is(e, queue.ErrTenantFull):
		return tenantFull.plain().retry(e.After)
	}
	return queueFull.plain().retry(e.After)
}

// keyError returns the response for an invalid idempotency key.
func keyError(err error) error {
	switch {
	case errors.Is(err, tenant.ErrKeyReused):
		return otherRequest.plain().hint("use a new key for a new request")
	case errors.Is(err, tenant.ErrInvalid):
		return badRequest.because("the idempotency key is not 1 to 255 bytes of printable text").in("Idempotency-Key")
	}
	return err
}

// idempotency returns the key of a request, if it has one, and what tells the
// request from others: its method, its path, and its body byte for byte.
func idempotency(r *request, body []byte) (key string, request canon.Hash, err error) {
	switch keys := r.Header.Values("Idempotency-Key"); {
	case len(keys) == 0:
		return "", request, nil
	case len(keys) > 1 || keys[0] == "":
		return "", request, badRequest.because("the request must have exactly one idempotency key").in("Idempotency-Key")
	default:
		return keys[0], canon.Sum([]byte(r.Method+" "+r.URL.Path+"\n"), body), nil
	}
}

// prepare returns the job of a run, the event that it begins with, and the modules that the
// event names.
func (d *Daemon) prepare(ctx context.Context, a Account, q runRequest, runID string) (job queue.Job, first event.Event, modules []canon.Hash, err error) {
	if ctx, err = withCaller(ctx, a, q.Caller); err != nil {
		return job, first, nil, err
	}
	var o order
	if q.Tool != "" {
		o, first, err = d.openTool(ctx, a, q, runID)
	} else {
		o, first, err = d.openAgent(ctx, q, runID)
	}
	if err == nil {
		modules, err = first.Modules()
	}
	if err != nil {
		return job, first, nil, err
	}
	o.Trace = d.config.Tracer.Traceparent(ctx)
	payload, err := o.encode()
	if err != nil {
		return job, first, nil, fmt.Errorf("daemon: encode a job: %w", err)
	}
	job = queue.Job{RunID: runID, Tenant: a.ID, Priority: q.Priority, MaxAttempts: d.config.MaxAttempts, Payload: payload}
	job, first, err = a.encryptJob(job, first)
	return job, first, modules, err
}

// withCaller returns a context whose run records who asked for it: the claims of the request, what ctx
// has beside them, and the key of the request.
func withCaller(ctx context.Context, a Account, claims json.RawMessage) (context.Context, error) {
	var c event.Caller
	if known := tool.GetCaller(ctx); known != nil {
		c = *known
	}
	if claims != nil {
		claimed, err := event.ParseClaims(claims)
		if err != nil {
			return nil, badField.because("%v", err).in("caller")
		}
		c.Issuer, c.Subject, c.Actor, c.Delegation = claimed.Issuer, claimed.Subject, claimed.Actor, claimed.Delegation
	}
	c.KeyID = a.key
	return tool.WithCaller(ctx, c)
}

// openTool opens a run of one call.
func (d *Daemon) openTool(ctx context.Context, a Account, q runRequest, runID string) (o order, first event.Event, err error) {
	m, _, err := a.snapshot.tool(q.Tool)
	if err != nil {
		return o, first, err
	}
	module, release, err := d.take(ctx, a, m.Module)
	if err != nil {
		return o, first, err
	}
	defer release()
	found, ok := module.Tool(q.Tool)
	if !ok {
		return o, first, notFound.plain()
	}
	if q.Input == nil {
		if q.Input, err = canon.Parse([]byte("{}")); err != nil {
			return o, first, err
		}
	}
	if len(q.Input.JSON) > guest.SmallBytes {
		if err := share.Step(ctx); err != nil {
			return o, first, err
		}
	}
	if err := found.CheckInput(q.Input); err != nil {
		return o, first, err
	}
	if ctx, err = tool.WithVariablesJSON(ctx, q.Variables); err != nil {
		return o, first, err
	}
	run, err := d.rules(ctx, a, runID, nil)
	if err != nil {
		return o, first, err
	}
	o = order{Module: m.Name, Digest: m.Digest.String(), Tool: q.Tool, input: q.Input, Variables: q.Variables}
	first, err = agent.Direct{Log: d.config.Log, Tool: run.Guard(found.Under(run)), Input: q.Input, AppVersion: d.config.Version}.Opening(ctx, runID, nil)
	return o, first, err
}

// openAgent opens a run of an agent. If there is one agent, it need not be named.
func (d *Daemon) openAgent(ctx context.Context, q runRequest, runID string) (order, event.Event, error) {
	if q.Agent == "" && len(d.config.Agents) == 1 {
		q.Agent = d.config.Agents[0].Name
	}
	a := d.agents[q.Agent]
	if a == nil {
		return order{}, event.Event{}, d.noAgent(q.Agent)
	}
	variables, err := merge(a.Variables, q.Variables)
	if err != nil {
		return order{}, event.Event{}, err
	}
	if ctx, err = tool.WithVariablesJSON(ctx, variables); err != nil {
		return order{}, event.Event{}, err
	}
	first, err := d.agent(a, d.config.Log).Opening(ctx, runID, q.Goal)
	return order{Agent: a.Name, Variables: variables}, first, err
}

// noAgent is the answer to a goal for an agent that the host has not.
func (d *Daemon) noAgent(name string) error {
	switch {
	case len(d.config.Agents) == 0:
		return badField.because("the host has no agents").in("agent").hint("the operator lists agent files under agents in host.yaml")
	case name == "":
		return badField.because("the host has %d agents: name one", len(d.config.Agents)).in("agent").hint("list them with GET " + base + "/agents")
	}
	return badField.because("unknown agent %q", clip(name)).in("agent").hint("list them with GET " + base + "/agents")
}

// agent returns an agent that records into a log.
func (d *Daemon) agent(a *Agent, log eventlog.EventLog) *agent.Agent {
	it := a.Agent
	it.Log, it.Metrics, it.Tracer, it.Config.AppVersion, it.Config.Logger = log, d.config.Runs, d.config.Tracer, d.config.Version, d.logger
	it.Config.Commit = d.config.Receipts.Committing()
	return &it
}

// merge returns the members of both objects; members of the second take precedence. Either may be
// nil.
func merge(a, b json.RawMessage) (json.RawMessage, error) {
	if len(a) == 0 || len(b) == 0 {
		return append(slices.Clone(a), b...), nil
	}
	all := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(a, &all), json.Unmarshal(b, &all)); err != nil {
		return nil, fmt.Errorf("daemon: variables: %w", err)
	}
	doc, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("daemon: variables: %w", err)
	}
	return canon.JSON(doc)
}
