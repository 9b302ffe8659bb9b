package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// Account is a tenant with its current state: its row, which is read for each request and each run,
// and a snapshot of its data key, policy and modules, which is read when they have changed.
type Account struct {
	tenant.Tenant // with the default limits filled in
	snapshot      *snapshot
	operator      *policy.Policy // of the host, as it was when the row was read
	limits        sandbox.Limits // of each call of a tool, as the policies lower them
	key           string         // id of the key that the request has; empty for the host itself
}

// snapshot is what a tenant holds, read and parsed. It is shared and never changes.
type snapshot struct {
	tenant.Holdings
	policy     *policy.Policy // the tenant's own
	unreadable error          // the reason why its policy cannot be read; then nothing runs
	modules    []owned        // by name
	size       int            // bytes, about
}

// module returns the module of that name, or [tenant.ErrNotFound].
func (k *snapshot) module(name string) (owned, error) {
	for _, m := range k.modules {
		if m.Name == name {
			return m, nil
		}
	}
	return owned{}, &tenant.NotFoundError{What: "module", Name: name}
}

// tool returns the module that has the tool.
func (k *snapshot) tool(name string) (owned, abi.ToolDescription, error) {
	for _, m := range k.modules {
		for _, t := range m.tools {
			if t.Name == name {
				return m, t, nil
			}
		}
	}
	return owned{}, abi.ToolDescription{}, notFound.plain().hint("upload the tool's module with POST /api/v1/modules?name=NAME; run_js, run_py and the tools of MCP servers can only be called by agents of the host")
}

// account reads the row of a tenant. An erased tenant has no account.
func (d *Daemon) account(ctx context.Context, id string) (Account, error) {
	t, err := d.config.Tenants.Tenant(ctx, id)
	if err != nil {
		return Account{}, err
	}
	return d.accountOf(ctx, t)
}

// accountOf returns the account of a tenant whose row was just read.
func (d *Daemon) accountOf(ctx context.Context, t tenant.Tenant) (Account, error) {
	d.config.Directory.update(t)
	t.Limits = t.Limits.Or(d.config.Limits)
	d.outbound.allow(t)
	if !t.Erased.IsZero() {
		d.accounts.Take(t.ID)
	}
	k := d.accounts.Find(t.ID)
	if k == nil || k.Revision < t.Revision {
		var err error
		if k, err = d.readSnapshot(ctx, t.ID, k); err != nil {
			return Account{}, err
		}
		d.accounts.Put(t.ID, k, k.size)
	}
	return d.bounded(t, k), nil
}

// bounded returns the account of a tenant with the limits that the policies set. A tenant whose own policy
// cannot be read has limits, and resolve executes nothing for it.
func (d *Daemon) bounded(t tenant.Tenant, k *snapshot) Account {
	a := Account{Tenant: t, snapshot: k, operator: nothing()}
	if d.config.Policy != nil {
		if p := d.config.Policy(); p != nil {
			a.operator = p
		}
	}
	calls := event.SandboxLimits(d.config.Calls)
	calls.Depth = 0 // that of the module or the engine
	a.limits = sandbox.Limits(policy.Narrow(calls, a.operator, k.policy))
	return a
}

// reaches reports whether there are requests that the policies allow a tool of the tenant.
func (a Account) reaches(tool string) bool {
	return a.snapshot.unreadable == nil && a.operator.Opens(tool) && a.snapshot.policy.Opens(tool)
}

// readSnapshot reads a tenant's data key, policy and modules. Versions of policies and descriptions
// of modules never change, so both are taken from the previous snapshot if it has them.
func (d *Daemon) readSnapshot(ctx context.Context, id string, was *snapshot) (k *snapshot, err error) {
	k = &snapshot{policy: nothing()}
	if k.Holdings, err = d.config.Tenants.Holdings(ctx, id); err != nil {
		if errors.Is(err, tenant.ErrWrongMasterKey) { // which was the right one when the host began
			err = fmt.Errorf("%w; it was changed: put the new one into the key file, and send SIGHUP", err)
		}
		return nil, err
	}
	k.parse(id, was)
	k.modules, err = d.describe(ctx, k.Modules, was)
	for _, m := range k.modules {
		k.size += m.size
	}
	return k, err
}

// parse reads the tenant's policy, unless the snapshot before has it. The text is not kept.
func (k *snapshot) parse(id string, was *snapshot) {
	text := k.Policy.Text
	k.Policy.Text = ""
	switch {
	case text == "":
		return
	case was != nil && was.Policy.Version == k.Policy.Version && was.Policy.Digest == k.Policy.Digest:
		k.policy, k.unreadable = was.policy, was.unreadable
	default:
		p, err := policy.Parse(fmt.Sprintf("policy of %s, version %d", id, k.Policy.Version), []byte(text))
		if err != nil {
			k.unreadable = err
			return
		}
		k.policy = p
	}
	k.size += k.policy.Size()
}

// describe returns modules with their descriptions.
func (d *Daemon) describe(ctx context.Context, list []tenant.Module, was *snapshot) ([]owned, error) {
	all := make([]owned, len(list))
	for i, m := range list {
		if was != nil {
			before, err := was.module(m.Name)
			if err == nil && before.Digest == m.Digest {
				all[i] = owned{m, before.tools, before.size}
				continue
			}
		}
		text, err := d.config.Tenants.Description(ctx, m.Digest, m.Name)
		if err != nil {
			return nil, err
		}
		all[i] = owned{Module: m, size: len(text)}
		if text == "" { // which no module has that is in the list
			continue
		}
		if err := json.Unmarshal([]byte(text), &all[i].tools); err != nil {
			return nil, fmt.Errorf("daemon: the description of module %s: %w", m.Digest, err)
		}
	}
	return all, nil
}

const (
	// maxCached bounds the snapshots of all tenants, in bytes: some thousands of them.
	maxCached = 64 << 20
	// cachedFor bounds how long the data of a tenant is cached, including its data key.
	cachedFor = time.Minute
)

// Directory has the limits of all tenants in memory for the queue, which asks inside
// transactions. It reads them again every few seconds, and the daemon updates it in
// between. Use [NewDirectory].
type Directory struct {
	store    *tenant.Store
	defaults tenant.Limits
	logger   *slog.Logger

	mu sync.RWMutex
	of map[string]queue.Limits // by tenant; guarded by mu
}

// refresh is how often the tenants are read.
const refresh = 3 * time.Second

// NewDirectory reads the tenants. Limits that a tenant does not set come from defaults.
func NewDirectory(ctx context.Context, store *tenant.Store, defaults tenant.Limits, logger *slog.Logger) (*Directory, error) {
	d := &Directory{store: store, defaults: defaults.Or(tenant.DefaultLimits()), logger: logger}
	return d, d.read(ctx)
}

// Keep reads the tenants periodically until ctx ends. While the database does not answer, the last
// result stays valid.
func (d *Directory) Keep(ctx context.Context) {
	for range await.Every(ctx, refresh) {
		if err := d.read(ctx); err != nil && ctx.Err() == nil {
			d.logger.Warn("tenants not read", "error", err.Error())
		}
	}
}

func (d *Directory) read(ctx context.Context) error {
	all, err := d.store.Tenants(ctx)
	if err != nil {
		return err
	}
	of := make(map[string]queue.Limits, len(all))
	for _, t := range all {
		of[t.ID] = d.limits(t)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of = of
	return nil
}

// update stores a tenant whose row was just read. A nil directory ignores it.
func (d *Directory) update(t tenant.Tenant) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[t.ID] = d.limits(t)
}

func (d *Directory) limits(t tenant.Tenant) queue.Limits {
	l := t.Limits.Or(d.defaults)
	return queue.Limits{Weight: float64(t.Weight), MaxRunning: max(l.Running, 0), MaxWaiting: max(l.Waiting, 0),
		Paused: t.Suspended && t.Erased.IsZero()} // so that the runs of an erased tenant end
}

// Len returns how many tenants there are.
func (d *Directory) Len() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.of)
}

// Limits is the Limits of a queue.Config. A tenant that was created just now, and has
// asked for nothing here, has the defaults.
func (d *Directory) Limits(id string) queue.Limits {
	d.mu.RLock()
	defer d.mu.RUnlock()
	l, ok := d.of[id]
	if !ok {
		return d.limits(tenant.Tenant{Weight: 1})
	}
	return l
}
