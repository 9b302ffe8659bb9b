package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/serve/tenant"
)

// nothing is the policy of a tenant without one: no request is allowed.
var nothing = policy.None()

// policies returns those that decide about what the runs of a tenant do: the
// operator's and the tenant's.
func (d *Daemon) policies(a Account) (operator, own *policy.Policy, err error) {
	operator = nothing
	if d.config.Policy != nil {
		if p := d.config.Policy(); p != nil {
			operator = p
		}
	}
	return operator, a.snapshot.policy, a.snapshot.unreadable
}

// rules returns what the policies have to do with one run of a tenant. Without a
// log the run has not begun; of one that has, what it has used counts.
func (d *Daemon) rules(ctx context.Context, a Account, runID string, log eventlog.EventLog) (*policy.Run, error) {
	operator, own, err := d.policies(a)
	if err != nil {
		return nil, err
	}
	run := policy.NewRun(operator, own, secrets{d.config.Tenants, a.ID})
	if log == nil {
		return run, nil
	}
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil, err
	}
	return run, run.Resume(events)
}

// Reaches reports whether there are requests that the policies allow a tool of the
// tenant.
func (d *Daemon) Reaches(a Account, tool string) bool {
	operator, own, err := d.policies(a)
	return err == nil && operator.Opens(tool) && own.Opens(tool)
}

// limits returns the bounds of each call of the tenant's tools.
func (d *Daemon) limits(a Account) (sandbox.Limits, error) {
	operator, own, err := d.policies(a)
	return sandbox.Limits(policy.Narrow(event.SandboxLimits(sandbox.DefaultLimits()), operator, own)), err
}

// connectionLimits bound how many connections a tenant's tools have at once. What they may
// ask, the tenant's policies decide. There are as many as there are tenants.
type connectionLimits struct{ of sync.Map } // of *egress.Slots by tenant, shared by all its modules

// client returns a client for a module of a tenant. Less than zero is no bound.
func (c *connectionLimits) client(t tenant.Tenant) *egress.Client {
	slots, _ := c.of.LoadOrStore(t.ID, egress.NewSlots(t.Limits.Connections))
	return egress.New(egress.Config{Slots: slots.(*egress.Slots)})
}

// allow has the limit of a tenant whose row was read just now hold, also for modules
// that were loaded before.
func (c *connectionLimits) allow(t tenant.Tenant) {
	if slots, ok := c.of.Load(t.ID); ok {
		slots.(*egress.Slots).Allow(t.Limits.Connections)
	}
}

// guarded returns an agent whose calls the policies of a run have to allow.
func guarded(a *agent.Agent, run *policy.Run) *agent.Agent {
	it := *a
	it.Tools = slices.Clone(a.Tools)
	for i, t := range it.Tools {
		it.Tools[i] = run.Guard(t)
	}
	return &it
}

// secrets are those of one tenant. The policies say where they may be sent, and so
// does what is stored with each.
type secrets struct {
	store  *tenant.Store
	tenant string
}

// Secret implements [policy.Secrets].
func (s secrets) Secret(ctx context.Context, name string) ([]byte, bool, error) {
	_, value, err := s.store.Secret(ctx, s.tenant, name)
	if errors.Is(err, tenant.ErrNotFound) {
		return nil, false, nil
	}
	return []byte(value.Reveal()), err == nil, err
}

// Same implements [policy.Keeper].
func (s secrets) Same(ctx context.Context, name string, since time.Time) (bool, error) {
	kept, _, err := s.store.Secret(ctx, s.tenant, name)
	if errors.Is(err, tenant.ErrNotFound) {
		return false, nil
	}
	return kept.Updated.Before(since), err
}

// MaySend implements [policy.Keeper].
func (s secrets) MaySend(ctx context.Context, at egress.Placeholder, to egress.Access) (bool, error) {
	kept, _, err := s.store.Secret(ctx, s.tenant, at.Name)
	if errors.Is(err, tenant.ErrNotFound) {
		return false, nil
	}
	return kept.For(at, to), err
}
