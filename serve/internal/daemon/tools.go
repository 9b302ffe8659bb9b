package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/share"
	"github.com/starling-host/starling/serve/queue"
)

// toolDocument is a tool of a tenant.
type toolDocument struct {
	guest.ToolDocument
	Module  string `json:"module"`
	Digest  string `json:"digest"`
	Trusted bool   `json:"trusted"`
}

func newToolDocument(m owned, t abi.ToolDescription) toolDocument {
	return toolDocument{guest.NewToolDocument(t), m.Name, m.Digest.String(), m.Trusted}
}

func (d *Daemon) listTools(r *request) (list[toolDocument], error) {
	page := list[toolDocument]{Items: []toolDocument{}}
	for _, m := range r.tenant.snapshot.modules {
		for _, t := range m.tools {
			page.Items = append(page.Items, newToolDocument(m, t))
		}
	}
	return page, nil
}

func (d *Daemon) getTool(r *request) (toolDocument, error) {
	m, t, err := r.tenant.snapshot.tool(r.PathValue("name"))
	return newToolDocument(m, t), err
}

// Tools returns what the tenant's tools say of themselves.
func (a Account) Tools() []abi.ToolDescription {
	return slices.Concat(lists.Map(a.snapshot.modules, func(m owned) []abi.ToolDescription { return m.tools })...)
}

// Outcome is the state of a run of one call. Its id is as the tenant knows it.
type Outcome struct {
	span.Document
	Receipt *receipt.Receipt // of a run that has ended; nil if the host signs none
}

// Call starts a run of one call of a tool and waits for its end, as the HTTP request does. An error
// means that there is no run, or that it has not ended; errors of the caller are a *tool.InputError or
// a [*Problem]. If
// ctx ends while the daemon serves, the caller has given up, and the run is cancelled. If the
// caller passes a ticket of its own, [Daemon.CancelCall] can cancel it too, on any host.
func (d *Daemon) Call(ctx context.Context, a Account, name string, input json.RawMessage, ticket string) (Outcome, error) {
	leave, err := enter(ctx, d.streams, a.Tenant, d.config.Requests.Streams)
	if err != nil {
		return Outcome{}, err
	}
	defer leave()
	id, err := d.Begin(ctx, a, name, input, ticket, true)
	if err != nil {
		d.giveUp(ctx, fullID(a.ID, id)) // it may be there nevertheless
		return Outcome{}, err
	}
	share.Of(ctx).Keep(int64(3 * len(input))) // the body, its message and the input are kept
	out, err := d.state(ctx, a, id, d.config.Requests.Wait)
	if err == nil && out.Status == eventlog.StatusOpen {
		err = cmp.Or[error](ctx.Err(), busy.because("run %s is still in progress", id))
	}
	if err != nil {
		d.giveUp(ctx, fullID(a.ID, id))
	}
	return out, err
}

// Begin starts a run of one call of a tool, as Call does, and returns its id. With an error, too, the
// run may be there. A caller that waits for its end waits for its module as well.
func (d *Daemon) Begin(ctx context.Context, a Account, name string, input json.RawMessage, ticket string, waits bool) (id string, err error) {
	doc, err := step.ParseInput(input, nil)
	if err != nil {
		return "", err
	}
	if err := d.admits(ctx, a); err != nil {
		return "", err
	}
	var by once
	if ticket != "" { // kept for as long as a client may wait
		by = once{key: ticketKey(ticket), request: ticketRequest, lives: d.config.Requests.Wait + ticketSlack}
	}
	return d.accept(ctx, a, runRequest{Tool: name, callRequest: callRequest{Input: doc}}, by, waits)
}

// Outcome returns the state of a run of a call when it has ended, or after a time.
func (d *Daemon) Outcome(ctx context.Context, a Account, id string, most time.Duration) (Outcome, error) {
	if most > 0 {
		leave, err := enter(ctx, d.streams, a.Tenant, d.config.Requests.Streams)
		if err != nil {
			return Outcome{}, err
		}
		defer leave()
	}
	return d.state(ctx, a, id, most)
}

// state is Outcome for a caller that has entered.
func (d *Daemon) state(ctx context.Context, a Account, id string, most time.Duration) (out Outcome, err error) {
	out.RunID = id
	view, err := d.View(a)
	if err == nil && !ulid().MatchString(id) {
		err = notFound.plain()
	}
	if err != nil {
		return out, err
	}
	run, err := d.outcome(ctx, view, id, most)
	if err == nil && run.Tool == "" {
		err = notFound.plain()
	}
	if err != nil {
		return out, err
	}
	if out.Document = run.Document; out.Status != eventlog.StatusOpen {
		out.Receipt = d.receiptOf(ctx, view, id)
	}
	return out, nil
}

// Stop cancels a run. If it has ended or does not exist, nothing happens.
func (d *Daemon) Stop(ctx context.Context, a Account, id string) error {
	if err := d.config.Queue.Cancel(ctx, fullID(a.ID, id)); !errors.Is(err, queue.ErrNotFound) {
		return err
	}
	return nil
}

// ticketSlack is for hosts whose clocks differ.
const ticketSlack = time.Minute

// ticketRequest distinguishes tickets from the idempotency keys stored with them.
var ticketRequest = canon.Sum([]byte("ticket of a call"))

func ticketKey(ticket string) string { return "ticket " + canon.Sum([]byte(ticket)).String() }

// CancelCall cancels the run that [Daemon.Call] started with a ticket, on this host or another. If
// it does not exist or has ended, nothing happens.
func (d *Daemon) CancelCall(ctx context.Context, a Account, ticket string) error {
	id, found, err := d.config.Tenants.Answered(ctx, a.ID, ticketKey(ticket), ticketRequest)
	if err != nil || !found {
		return err
	}
	return d.Stop(ctx, a, string(id))
}

// giveUp cancels a run whose caller has stopped waiting.
func (d *Daemon) giveUp(ctx context.Context, runID string) {
	if ctx.Err() == nil || d.serving.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTime)
	defer cancel()
	if err := d.config.Queue.Cancel(ctx, runID); err != nil && !errors.Is(err, queue.ErrNotFound) { // which has ended
		d.logger.Warn("run not cancelled", "run_id", runID, "error", err.Error())
	}
}

// giveUpTime is how long the database may take to note that a run is cancelled.
const giveUpTime = 10 * time.Second

// agentDocument is an agent that runs can be made of.
type agentDocument struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Provider    string   `json:"provider"`
	Model       string   `json:"model"`
	Tools       []string `json:"tools"`
}

func (d *Daemon) listAgents(*request) (list[agentDocument], error) {
	return list[agentDocument]{Items: lists.Map(d.config.Agents, func(a Agent) agentDocument {
		return agentDocument{a.Name, a.Description, a.Agent.Provider.Info().ID, a.Agent.Config.Model, lists.Map(a.Agent.Tools, tool.Tool.Name)}
	})}, nil
}
