package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/logview"
)

// runRequest asks for a run: of an agent towards a goal, or of one call of a tool.
type runRequest struct {
	Agent     string          `json:"agent"`
	Goal      string          `json:"goal"`
	Tool      string          `json:"tool"`
	Input     json.RawMessage `json:"input"`
	Variables json.RawMessage `json:"variables"`
	Priority  int             `json:"priority"`
	Wait      float64         `json:"wait"` // seconds
}

// callRequest asks for one call of the tool that the path names.
type callRequest struct {
	Input     json.RawMessage `json:"input"`
	Variables json.RawMessage `json:"variables"`
	Priority  int             `json:"priority"`
	Wait      *float64        `json:"wait"` // seconds; absent is as long as the host lets one wait
}

// mostPriority bounds the priority of a run in either direction.
const mostPriority = 100

func (d *Daemon) createRun(w http.ResponseWriter, r *request) error {
	var body runRequest
	raw, err := readJSON(w, r.Request, &body)
	if err != nil {
		return err
	}
	return d.submit(w, r, body, raw)
}

func (d *Daemon) callTool(w http.ResponseWriter, r *request) error {
	var body callRequest
	raw, err := readJSON(w, r.Request, &body)
	if err != nil {
		return err
	}
	run := runRequest{Tool: r.PathValue("name"), Input: body.Input, Variables: body.Variables, Priority: body.Priority, Wait: d.config.MaxWait.Seconds()}
	if body.Wait != nil {
		run.Wait = *body.Wait
	}
	return d.submit(w, r, run, raw)
}

// check returns what is wrong with a request, as far as it alone tells.
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

// submit has a run made, and answers with it: at once, or when it has ended if the
// request waits.
func (d *Daemon) submit(w http.ResponseWriter, r *request, q runRequest, raw []byte) error {
	if err := q.check(d.config.MaxWait); err != nil {
		return err
	}
	leave := func() {}
	if q.Wait > 0 {
		var err error
		if leave, err = d.streams.enter(r.tenant.ID, d.config.MaxStreams); err != nil {
			return err
		}
	}
	defer leave()
	key, digest, err := idempotency(r, raw)
	if err != nil {
		return err
	}
	id, err := d.acceptOnce(r.Context(), r.tenant, q, key, digest)
	if err != nil {
		return err
	}
	w.Header().Set("Location", base+"/runs/"+id)
	doc, err := d.outcome(r.Context(), r.view, id, time.Duration(q.Wait*float64(time.Second)))
	if errors.Is(err, context.Canceled) { // who has said all and closed that side may still read
		doc, err = describeRun(context.WithoutCancel(r.Context()), r.view, id)
	}
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if doc.Status != eventlog.StatusOpen && q.Wait > 0 {
		status = http.StatusOK
	}
	writeJSON(w, status, doc)
	return nil
}

// outcome returns the document of a run that was accepted when it has ended, or after a
// time.
func (d *Daemon) outcome(ctx context.Context, view logview.View, id string, most time.Duration) (doc *runDocument, err error) {
	doc, err = d.await(ctx, view, id, most)
	if doc == nil && err == nil {
		doc, err = describeRun(ctx, view, id)
	}
	if err != nil { // the end of an erased tenant's run, for one, is there and cannot be read
		err = cmp.Or(d.inVain(ctx, view, id), err)
	}
	if errors.Is(err, eventlog.ErrRunNotFound) {
		return nil, removed.because("run %s was accepted, and is not there any more", id)
	}
	return doc, err
}

// firstBeat is when a wait looks whether it is in vain for the first time. Before it
// nobody looks, since the run was accepted just now, as a rule.
const firstBeat = time.Second

// await returns the document of a run when it has ended, made of its events as they
// came, or nil after a time: a run that goes on is no error.
func (d *Daemon) await(parent context.Context, view logview.View, id string, most time.Duration) (*runDocument, error) {
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
	doc, at := &runDocument{}, eventlog.Cursor{}
	for {
		select {
		case ev, more := <-events:
			if !more {
				return nil, parent.Err()
			}
			at.Skip(ev)
			if err := doc.add(ev); err != nil {
				return nil, err
			}
			if ev.Kind.Terminal() {
				doc.runLine = newRunLine(at.Run())
				doc.RunID = id
				return doc, nil
			}
		case <-beat.C:
			if err := d.inVain(ctx, view, id); err != nil {
				return nil, err
			}
			beat.Reset(d.config.Heartbeat)
		}
	}
}

// inVain returns why nobody should wait for a run any more, of which no event will
// tell: it was removed, or its tenant may not look at it.
func (d *Daemon) inVain(ctx context.Context, view logview.View, id string) error {
	t, err := d.config.Tenants.Tenant(ctx, view.Namespace)
	if err == nil && (t.Suspended || !t.Erased.IsZero()) {
		return noKey()
	}
	if _, err = view.Run(ctx, id); errors.Is(err, eventlog.ErrRunNotFound) {
		return err
	}
	return nil // or the database does not answer, which passes
}
