package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/share"
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
	by, err := idempotency(r, raw)
	if err != nil {
		return err
	}
	ctx, err := tool.WithCaller(r.Context(), event.Caller{TraceParent: clip(r.Header.Get("traceparent"))})
	if err != nil {
		return err
	}
	id, err := d.accept(ctx, r.tenant, q, by)
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
