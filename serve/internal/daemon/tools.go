package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
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

// Assistant returns what the MCP clients of a tenant see and call: its runs and its tools.
func (d *Daemon) Assistant(a Account) (mcpsrv.View, error) {
	log, err := d.View(a)
	return mcpsrv.View{Log: &log, Tools: tools{d, a, log}, Owner: a.ID}, err
}

// tools are the tools of a tenant for MCP clients.
type tools struct {
	*Daemon
	account Account
	view    eventview.View
}

var _ mcpsrv.Lasting = tools{}

// List implements [mcpsrv.Tools].
func (t tools) List(context.Context) (all []mcpsrv.Tool, err error) {
	for _, m := range t.account.snapshot.modules {
		for _, tool := range m.tools {
			all = append(all, mcpsrv.ToolOf(tool, !t.account.reaches(tool.Name)))
		}
	}
	return all, nil
}

// Call implements [mcpsrv.Tools], as the HTTP request does. If ctx ends while the daemon serves, the
// caller has given up, and the run is cancelled. If the caller passes a ticket of its own, Cancel can
// cancel it too, on any host.
func (t tools) Call(ctx context.Context, c mcpsrv.Call) (r mcpsrv.Result, err error) {
	defer func() { err = forClients(err) }()
	leave, err := enter(ctx, t.streams, t.account.Tenant, t.config.Requests.Streams)
	if err != nil {
		return r, err
	}
	defer leave()
	var out mcpsrv.Outcome
	id, err := t.begin(ctx, c, true)
	if err == nil {
		share.Of(ctx).Keep(int64(3 * len(c.Arguments))) // the body, its message and the input are kept
		out, err = t.state(ctx, id, t.config.Requests.Wait)
	}
	if err == nil && out.Status == eventlog.StatusOpen {
		err = cmp.Or[error](ctx.Err(), busy.because("run %s is still in progress", id))
	}
	if err != nil {
		t.giveUp(ctx, fullID(t.account.ID, id)) // it may be there although it did not begin
	}
	return out.End, err
}

// Begin implements [mcpsrv.Lasting].
func (t tools) Begin(ctx context.Context, c mcpsrv.Call) (id string, err error) {
	c.Ticket = "" // a task is cancelled by its id
	id, err = t.begin(ctx, c, false)
	return id, forClients(err)
}

// begin starts a run of one call of a tool and returns its id. With an error, too, the run may be there. A
// caller that waits for its end waits for its module as well.
func (t tools) begin(ctx context.Context, c mcpsrv.Call, waits bool) (id string, err error) {
	doc, err := step.ParseInput(c.Arguments, nil)
	if err != nil {
		return "", err
	}
	if err := t.admits(ctx, t.account); err != nil {
		return "", err
	}
	var by once
	if c.Ticket != "" { // kept for as long as a client may wait
		by = once{key: ticketKey(c.Ticket), request: ticketRequest, lives: t.config.Requests.Wait + ticketSlack}
	}
	return t.accept(ctx, t.account, runRequest{Tool: c.Name, callRequest: callRequest{Input: doc}}, by, waits)
}

// Outcome implements [mcpsrv.Lasting].
func (t tools) Outcome(ctx context.Context, id string, most time.Duration) (o mcpsrv.Outcome, err error) {
	leave := func() {}
	if most > 0 {
		leave, err = enter(ctx, t.streams, t.account.Tenant, t.config.Requests.Streams)
	}
	if err == nil {
		defer leave()
		o, err = t.state(ctx, id, most)
	}
	if p, ok := errors.AsType[*Problem](err); ok && (p.Status == notFound.status || p.Status == removed.status) {
		err = mcpsrv.ErrNoTask
	}
	return o, forClients(err)
}

// state returns the state of a run of a call when it has ended, or after a time.
func (t tools) state(ctx context.Context, id string, most time.Duration) (o mcpsrv.Outcome, err error) {
	if !ulid().MatchString(id) {
		return o, notFound.plain()
	}
	run, err := t.outcome(ctx, t.view, id, most)
	if err == nil && run.Tool == "" {
		err = notFound.plain()
	}
	if err != nil {
		return o, err
	}
	o = mcpsrv.Outcome{Document: run.Document, End: mcpsrv.Result{RunID: id, Output: run.Result}}
	if run.Error != nil {
		o.End.Error = run.Error.Message
	}
	if run.Status != eventlog.StatusOpen {
		all, err := t.view.Receipts(ctx, id)
		if err != nil && !errors.Is(err, eventview.ErrNoReceipts) { // the call has its result in any case
			t.logger.Error("no receipt", "run_id", fullID(t.account.ID, id), "error", err.Error())
		}
		o.End.Receipt = receipt.OfCall(all, "")
	}
	return o, nil
}

// Recent implements [mcpsrv.Lasting].
func (t tools) Recent(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	return t.view.Runs(ctx, o)
}

// Stop implements [mcpsrv.Lasting].
func (t tools) Stop(ctx context.Context, id string) error {
	if err := t.config.Queue.Cancel(ctx, fullID(t.account.ID, id)); !errors.Is(err, queue.ErrNotFound) {
		return err
	}
	return nil
}

// forClients returns the error to an MCP client for one of the daemon.
func forClients(err error) error {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		return err
	}
	reason := mcpsrv.ErrRefused
	switch p.Status {
	case http.StatusNotFound:
		reason = mcpsrv.ErrNoTool
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		reason = mcpsrv.ErrBusy
	case http.StatusGone, http.StatusUnauthorized:
		reason = mcpsrv.ErrLost
	case http.StatusInternalServerError:
		reason = errors.New("the host has failed")
	}
	return fmt.Errorf("%w: %s", reason, cmp.Or(p.Detail, p.Title))
}

// ticketSlack is for hosts whose clocks differ.
const ticketSlack = time.Minute

// ticketRequest distinguishes tickets from the idempotency keys stored with them.
var ticketRequest = canon.Sum([]byte("ticket of a call"))

func ticketKey(ticket string) string { return "ticket " + canon.Sum([]byte(ticket)).String() }

// Cancel implements [mcpsrv.Tools], on this host or another.
func (t tools) Cancel(ctx context.Context, ticket string) error {
	id, found, err := t.config.Tenants.Answered(ctx, t.account.ID, ticketKey(ticket), ticketRequest)
	if err != nil || !found {
		return err
	}
	return t.Stop(ctx, string(id))
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
