package daemon

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/turns"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/egress"
)

// nothing is the policy of whoever has none: no request is allowed.
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
	return operator, a.known.policy, a.known.unreadable
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
	return policy.Narrow(sandbox.DefaultLimits(), operator, own), err
}

// doors are the ways of tenants to the network: what a tenant's tools may ask, its
// policies decide, and here is how many connections they have at once. A door is there
// as long as a loaded module has it.
type doors struct {
	searches *turns.Line // of what computes in the host: the search for secrets in long responses

	mu sync.Mutex
	of map[string]door // by tenant; guarded by mu
}

// newDoors returns doors behind which few search at the same time.
func newDoors() *doors {
	return &doors{searches: turns.New(runtime.GOMAXPROCS(0) / 4), of: map[string]door{}}
}

// door is shared by all modules of a tenant, and is wider or narrower when its limit is.
type door = weak.Pointer[egress.Slots]

// open returns a client that goes through the tenant's door.
func (d *doors) open(t tenant.Tenant) *egress.Client {
	turn := func(ctx context.Context) (func(), error) { return d.search(turns.For(ctx, claimOf(t))) }
	return egress.New(egress.Config{Slots: d.slots(t), Turn: turn})
}

// breather is how many times as long as a search has had its turn nobody has one, so that
// calls of others do not notice that tools ask for what takes long to search.
const breather = 3

// search takes a turn of searching a response for secrets.
func (d *doors) search(ctx context.Context) (end func(), err error) {
	turn, err := d.searches.Take(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	return func() { time.AfterFunc(breather*time.Since(began), turn.End) }, nil
}

// slots returns the tenant's. Less than zero are any number.
func (d *doors) slots(t tenant.Tenant) *egress.Slots {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slots := d.of[t.ID].Value(); slots != nil {
		return slots
	}
	slots := egress.NewSlots(t.Limits.Connections)
	it := weak.Make(slots)
	d.of[t.ID] = it
	runtime.AddCleanup(slots, d.forget, named{t.ID, it})
	return slots
}

// allow has the limit of a tenant whose row was read just now hold, also for modules
// that were loaded before.
func (d *doors) allow(t tenant.Tenant) {
	d.mu.Lock()
	slots := d.of[t.ID].Value()
	d.mu.Unlock()
	if slots != nil {
		slots.Allow(t.Limits.Connections)
	}
}

// named is a door, and whose it is.
type named struct {
	tenant string
	door   door
}

// forget drops a door that nobody has any more, if it is still the tenant's.
func (d *doors) forget(gone named) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of[gone.tenant] == gone.door {
		delete(d.of, gone.tenant)
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
