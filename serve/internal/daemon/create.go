package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// runRequest asks for a run: of an agent towards a goal, or of one call of a tool.
type runRequest struct {
	Agent string `json:"agent"`
	Goal  string `json:"goal"`
	Tool  string `json:"tool"`
	callRequest
}

// callRequest asks for one call of the tool that the path names.
type callRequest struct {
	Input     *canon.Doc      `json:"input"`
	Variables json.RawMessage `json:"variables"`
	Caller    json.RawMessage `json:"caller"` // claims, see [event.ParseClaims]
	Priority  int             `json:"priority"`
	Wait      *float64        `json:"wait"` // seconds; absent is none, or of a call as long as the host lets one wait
}

// mostPriority bounds the priority of a run in either direction.
const mostPriority = 100

func (d *Daemon) createRun(w http.ResponseWriter, r *request) error {
	q := &runRequest{callRequest: callRequest{Wait: new(float64)}}
	return d.submit(w, r, q, q)
}

func (d *Daemon) callTool(w http.ResponseWriter, r *request) error {
	longest := d.config.Requests.Wait.Seconds()
	q := &runRequest{Tool: r.PathValue("name"), callRequest: callRequest{Wait: &longest}}
	return d.submit(w, r, q, &q.callRequest)
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
	case *q.Wait < 0 || *q.Wait > maxWait.Seconds():
		return badField.because("wait is 0 to %g seconds", maxWait.Seconds()).in("wait")
	}
	if q.Variables != nil && q.Variables[0] != '{' {
		return badField.because("variables are an object").in("variables")
	}
	return nil
}

// submit reads the body of a request for a run, queues the run and answers with it: at once, or when it has
// ended if the request waits. The body is q, or the part of it that the path leaves open. It is not read if it
// is known without that no run will begin. A request with an idempotency key may have been carried out before,
// and then has its answer.
func (d *Daemon) submit(w http.ResponseWriter, r *request, q *runRequest, body any) error {
	if r.Header.Get("Idempotency-Key") == "" {
		if err := d.admits(r.Context(), r.tenant); err != nil {
			return err
		}
	}
	raw, err := d.readBody(w, r.Request, "application/json", maxJSON, share.Document)
	if err == nil {
		err = decodeJSON(raw, body)
	}
	if err != nil {
		return err
	}
	if err := q.check(d.config.Requests.Wait); err != nil {
		return err
	}
	wait := time.Duration(*q.Wait * float64(time.Second))
	if wait > 0 {
		leave, err := enter(r.Context(), d.streams, r.tenant.Tenant, d.config.Requests.Streams)
		if err != nil {
			return err
		}
		defer leave()
	}
	by, err := idempotency(r, raw)
	if err != nil {
		return err
	}
	ctx, err := tool.WithCaller(r.Context(), event.Caller{TraceParent: clip(r.Header.Get("traceparent"))})
	if err != nil {
		return err
	}
	id, err := d.accept(ctx, r.tenant, *q, by, false)
	if err != nil {
		return err
	}
	share.Of(r.Context()).Keep(0) // the body is no longer needed
	w.Header().Set("Location", base+"/runs/"+id)
	doc, err := d.outcome(r.Context(), r.view, id, wait)
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

// answersLive is how long an idempotency key is remembered.
const answersLive = 24 * time.Hour

// idempotency returns the key of a request, if it has one, and what tells the
// request from others: its method, its path, and its body byte for byte.
func idempotency(r *request, body []byte) (once, error) {
	switch keys := r.Header.Values("Idempotency-Key"); {
	case len(keys) == 0:
		return once{}, nil
	case len(keys) > 1 || keys[0] == "":
		return once{}, badRequest.because("the request must have exactly one idempotency key").in("Idempotency-Key")
	default:
		return once{keys[0], canon.Sum([]byte(r.Method+" "+r.URL.Path+"\n"), body), answersLive, true}, nil
	}
}

// acceptance is one run with all that decides how it is executed: the order, the account that it is
// charged to, the loaded tool or the agent, and the rules of the policies. The limits of its calls are
// in the account.
//
// [Daemon.accept] makes it of a request, and writes the first event of the run and its job. The job has
// the order alone. So the host that takes the job makes the acceptance again ([Daemon.prepared]), and
// the policies that hold by then decide. Both make it in [Daemon.resolve].
type acceptance struct {
	Account
	order
	runID   string // in the log
	rules   *policy.Run
	tool    *guest.Tool // of a run of one call
	agent   *Agent      // of any other
	release func()      // gives back the module of the tool
}

// order is what a job has of a run beside what its log has.
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
func (o order) encode() []byte {
	text, _ := display.JSON(o, "") // its variables are JSON
	text = append(text, '\n')
	if o.input != nil {
		text = append(text, o.input.JSON...)
	}
	return text
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

// once lets a run be found by a key, which is stored in the transaction that accepts the run.
type once struct {
	key     string // empty for none
	request canon.Hash
	lives   time.Duration
	repeats bool // a request with a key that was used gets the run of that time, not a new one
}

// seenError ends the transaction of a request that was carried out before.
type seenError struct{ id string }

func (e *seenError) Error() string { return "daemon: the request was carried out as run " + e.id }

// accept makes sure that the run will be executed, and returns its id. Unless the request has a key that
// repeats, the caller has asked admits. If the process dies before the transaction, nothing has happened. If
// the error is the database's, the run may have been accepted as well. The database and the loading of the
// tool's module may take answerTime; a caller that waits for the end of the run waits for the module as well.
func (d *Daemon) accept(ctx context.Context, a Account, q runRequest, by once, waits bool) (string, error) {
	limited, cancel := context.WithTimeout(ctx, d.answerTime)
	defer cancel()
	if by.repeats {
		id, found, err := d.config.Tenants.Answered(limited, a.ID, by.key, by.request)
		if err != nil || found {
			return string(id), notAccepted(err)
		}
		if err := d.admits(ctx, a); err != nil {
			return "", err
		}
	}
	id := event.NewID()
	loading := limited
	if waits {
		loading = ctx
	}
	job, first, modules, err := d.prepare(loading, a, q, fullID(a.ID, id))
	if err != nil {
		return "", err
	}
	if waits {
		limited, cancel = context.WithTimeout(ctx, d.answerTime)
		defer cancel()
	}
	share.Of(ctx).Rest()
	var took time.Duration // to append, and not to commit with what others do
	enqueue := func() error {
		return d.config.Queue.Enqueue(limited, job, func(tx eventlog.Tx) error {
			if by.key != "" {
				earlier, err := d.config.Tenants.Once(tx, a.ID, by.key, by.request, []byte(id), by.lives)
				switch {
				case by.repeats && earlier != nil:
					return &seenError{string(earlier)}
				case err != nil && (by.repeats || !errors.Is(err, tenant.ErrKeyReused)):
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
	if errors.Is(err, eventlog.ErrModuleNotFound) {
		if q.Tool != "" { // the tenant has removed it meanwhile
			return "", notFound.plain()
		}
		if err = d.storeModules(limited, modules); err == nil {
			err = enqueue()
		}
	}
	d.countOpening(err, took)
	if seen, ok := errors.AsType[*seenError](err); ok {
		return seen.id, nil
	}
	if err == nil {
		d.volume.add(a.ID, len(first.Payload)+envelopeBytes, len(job.Payload))
	}
	return id, notAccepted(err)
}

// answerTime is how long the database may take to let a request in, and to accept or to cancel a run, for which
// a module may have to be loaded first. Then the client gets 503, within ten seconds. It may try again: an
// idempotency key finds a run that was accepted nevertheless.
const answerTime = 9 * time.Second

// prepare returns the job of a run, the event that it begins with, both encrypted, and the modules that
// the event names.
func (d *Daemon) prepare(ctx context.Context, a Account, q runRequest, runID string) (job queue.Job, first event.Event, modules []canon.Hash, err error) {
	if ctx, err = withCaller(ctx, a, q.Caller); err != nil {
		return job, first, nil, err
	}
	o, err := d.orderOf(ctx, q)
	if err != nil {
		return job, first, nil, err
	}
	x, err := d.resolve(ctx, a, runID, o, d.takeInTime)
	defer x.release()
	if _, never := errors.AsType[*neverError](err); never {
		err = notFound.plain()
	}
	if err == nil {
		first, err = d.opening(ctx, x, q.Goal)
	}
	if err == nil {
		modules, err = first.Modules()
	}
	if err != nil {
		return job, first, nil, err
	}
	if first, err = store.EncryptFirst(a.snapshot.Key, first); err != nil {
		return job, first, nil, err
	}
	payload, err := a.snapshot.Encrypt(purposeJob, x.encode(), runID)
	if n := len(payload); n > queue.MaxPayloadBytes {
		err = tooLarge.because("the run takes %d bytes in the queue; the limit is %d", n, queue.MaxPayloadBytes).
			hint("send less input or fewer variables")
	}
	return queue.Job{RunID: runID, Tenant: a.ID, Priority: q.Priority, MaxAttempts: d.config.MaxAttempts, Payload: payload}, first, modules, err
}

// purposeJob is what the orders of runs are encrypted for while they wait.
const purposeJob = "job"

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

// orderOf returns the order of a request: a tool, whose module resolve finds, or an agent with its
// variables. If there is one agent, it need not be named.
func (d *Daemon) orderOf(ctx context.Context, q runRequest) (o order, err error) {
	o = order{Tool: q.Tool, Variables: q.Variables, Trace: d.config.Tracer.Traceparent(ctx), input: q.Input}
	if q.Tool != "" {
		if o.input == nil {
			o.input, err = canon.Parse([]byte("{}"))
		}
		return o, err
	}
	if q.Agent == "" && len(d.config.Agents) == 1 {
		q.Agent = d.config.Agents[0].Name
	}
	of := d.agents[q.Agent]
	switch {
	case of != nil:
		o.Agent = q.Agent
		o.Variables, err = merge(of.Variables, q.Variables)
		return o, err
	case len(d.config.Agents) == 0:
		return o, badField.because("the host has no agents").in("agent").hint("the operator lists agent files under agents in host.yaml")
	case q.Agent == "":
		return o, badField.because("the host has %d agents: name one", len(d.config.Agents)).in("agent").hint("list them with GET " + base + "/agents")
	}
	return o, badField.because("unknown agent %q", clip(q.Agent)).in("agent").hint("list them with GET " + base + "/agents")
}

// merge returns the members of both objects; members of the second take precedence. Either may be
// nil.
func merge(a, b json.RawMessage) (json.RawMessage, error) {
	if len(a) == 0 || len(b) == 0 {
		return append(slices.Clone(a), b...), nil
	}
	all := canon.Split(a)
	maps.Copy(all, canon.Split(b))
	return canon.JSON(canon.Join(all))
}

// opening returns the first event of the run, if the tool takes the input.
func (d *Daemon) opening(ctx context.Context, x acceptance, goal string) (first event.Event, err error) {
	if ctx, err = tool.WithVariablesJSON(ctx, x.Variables); err != nil {
		return first, err
	}
	if x.agent != nil {
		return d.agentOf(x.agent, d.config.Log).Opening(ctx, x.runID, goal)
	}
	if len(x.input.JSON) > guest.SmallBytes {
		if err := share.Step(ctx); err != nil {
			return first, err
		}
	}
	if err := x.tool.CheckInput(x.input); err != nil {
		return first, err
	}
	return d.direct(x, d.config.Log, nil).Opening(ctx, x.runID, nil)
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

// notAccepted returns the response for a full queue and for an invalid idempotency key.
func notAccepted(err error) error {
	full, _ := errors.AsType[*queue.FullError](err)
	switch {
	case errors.Is(err, queue.ErrTenantFull):
		return tenantFull.plain().retry(full.After)
	case full != nil:
		return queueFull.plain().retry(full.After)
	case errors.Is(err, tenant.ErrKeyReused):
		return otherRequest.plain().hint("use a new key for a new request")
	case errors.Is(err, tenant.ErrInvalid):
		return badRequest.because("the idempotency key is not 1 to 255 bytes of printable text").in("Idempotency-Key")
	}
	return err
}

// resolve finds what executes an order in the account as it is now, and adds the module to the order. The
// caller calls release. A [*neverError] means that no host can execute it any more. take gets the module.
func (d *Daemon) resolve(ctx context.Context, a Account, runID string, o order, take takeFunc) (acceptance, error) {
	x := acceptance{Account: a, order: o, runID: runID, release: func() {}}
	x.rules = policy.NewRun(a.operator, a.snapshot.policy, secrets{d.config.Tenants, a.ID})
	if o.Tool == "" { // its modules were loaded before the run was known
		if x.agent = d.agents[o.Agent]; x.agent == nil {
			return x, &neverError{fmt.Sprintf("the agent %q no longer exists", o.Agent)}
		}
		return x, nil
	}
	m, _, err := a.snapshot.tool(o.Tool)
	if o.Module != "" { // with which it was given
		if m, err = a.snapshot.module(o.Module); err != nil || m.Digest.String() != o.Digest {
			return x, &neverError{fmt.Sprintf("the module %q is not there any more", o.Module)}
		}
	}
	if err = cmp.Or(err, a.snapshot.unreadable); err != nil {
		return x, err
	}
	x.Module, x.Digest = m.Name, m.Digest.String()
	share.Of(ctx).Rest() // another request may be loading it
	module, release, err := take(ctx, moduleKey{a.ID, m.Name, m.Digest, m.Trusted, a.limits})
	if err != nil {
		return x, err
	}
	x.release = release
	found, ok := module.Tool(o.Tool)
	if !ok {
		return x, &neverError{fmt.Sprintf("the module %q has no tool %q", m.Name, o.Tool)}
	}
	x.tool = found.Under(x.rules)
	return x, nil
}

// direct returns the run of one call, which records into a log. begin is called before the tool runs.
func (d *Daemon) direct(x acceptance, log eventlog.EventLog, begin func(context.Context) error) agent.Direct {
	return agent.Direct{
		Log: log, Tool: x.rules.Guard(x.tool.Begin(begin)), Input: x.input, AppVersion: d.config.Version, Logger: d.logger,
		Metrics: d.config.Runs.Share(x.ID, maxToolLabels), Tracer: d.config.Tracer, Commit: d.config.Receipts.Committing(),
	}
}

// maxToolLabels is how many of the labels for tools in metrics one tenant can take. Tenants
// name their tools freely, and one could use up the labels of all others.
const maxToolLabels = observe.MaxNames / 10

// agentOf returns an agent that records into a log.
func (d *Daemon) agentOf(a *Agent, log eventlog.EventLog) *agent.Agent {
	it := a.Agent
	it.Log, it.Metrics, it.Tracer, it.Config.AppVersion, it.Config.Logger = log, d.config.Runs, d.config.Tracer, d.config.Version, d.logger
	it.Config.Commit = d.config.Receipts.Committing()
	return &it
}
