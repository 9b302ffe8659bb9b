package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/tenant"
)

// Account is a tenant as the host works for it: its row, which is read for each request
// and each run, and what it holds, which is read when it has changed.
type Account struct {
	tenant.Tenant // with the limits that nobody has set
	known         *known
}

// known is what a tenant holds, read and parsed. It is shared and does not change.
type known struct {
	tenant.Holdings
	policy     *policy.Policy // the tenant's own
	unreadable error          // why its policy is none; then nothing of it runs
	modules    []owned        // by name
	size       int            // bytes, about
}

// module returns the module of that name, or [tenant.ErrNotFound].
func (k *known) module(name string) (owned, error) {
	for _, m := range k.modules {
		if m.Name == name {
			return m, nil
		}
	}
	return owned{}, &tenant.NotFoundError{What: "module", Name: name}
}

// account reads the row of a tenant. One that was erased has no account.
func (d *Daemon) account(ctx context.Context, id string) (Account, error) {
	t, err := d.config.Tenants.Tenant(ctx, id)
	if err != nil {
		return Account{}, err
	}
	return d.accountOf(ctx, t)
}

// accountOf returns the account of a tenant whose row was read just now.
func (d *Daemon) accountOf(ctx context.Context, t tenant.Tenant) (Account, error) {
	d.config.Directory.saw(t)
	t.Limits = t.Limits.Or(d.config.Defaults)
	d.doors.allow(t)
	was := d.accounts.find(t)
	if was != nil && was.Revision >= t.Revision {
		return Account{t, was}, nil
	}
	k, err := d.know(ctx, t.ID, was)
	if err != nil {
		return Account{}, err
	}
	d.accounts.keep(t.ID, k)
	return Account{t, k}, nil
}

// know reads what a tenant holds. Neither a version of its policy nor what its modules
// say of themselves changes, and both are taken from what was known before.
func (d *Daemon) know(ctx context.Context, id string, was *known) (k *known, err error) {
	k = &known{policy: nothing}
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

// parse reads the tenant's policy, whose text is not kept, unless it was known before.
func (k *known) parse(id string, was *known) {
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

// describe returns modules with what they say of themselves.
func (d *Daemon) describe(ctx context.Context, list []tenant.Module, was *known) ([]owned, error) {
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
	// maxKnown bounds what is known of all tenants, in bytes: some thousands of them.
	maxKnown = 64 << 20
	// knownFor bounds how long what was read of a tenant is kept, its data key included,
	// and how long a change goes unnoticed that does not raise the revision, as those of
	// older programs do.
	knownFor = time.Minute
)

// accounts has what is known of tenants, of as many as there is room for, and nothing
// for longer than a minute.
type accounts struct {
	most int           // bytes of all
	ends time.Duration // after this

	mu   sync.Mutex
	of   map[string]*kept // by tenant; guarded by mu, and so is what follows
	size int
	asks uint64
}

type kept struct {
	*known
	asked uint64 // which one of the asks was the last for it
	timer *time.Timer
}

func newAccounts(most int, ends time.Duration) *accounts {
	return &accounts{most: most, ends: ends, of: map[string]*kept{}}
}

// find returns what is known of a tenant, or nil. It forgets one that was erased.
func (c *accounts) find(t tenant.Tenant) *known {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of[t.ID]
	if k == nil {
		return nil
	}
	if !t.Erased.IsZero() {
		c.drop(t.ID, k)
		return nil
	}
	c.asks++
	k.asked = c.asks
	return k.known
}

// keep makes room by forgetting the tenants that were asked for longest ago.
func (c *accounts) keep(id string, k *known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id, c.of[id])
	for len(c.of) > 0 && c.size+k.size > c.most {
		oldest := ""
		for id, other := range c.of {
			if oldest == "" || other.asked < c.of[oldest].asked {
				oldest = id
			}
		}
		c.drop(oldest, c.of[oldest])
	}
	c.asks++
	entry := &kept{known: k, asked: c.asks}
	entry.timer = time.AfterFunc(c.ends, func() { c.forget(id, entry) })
	c.of[id] = entry
	c.size += k.size
}

func (c *accounts) forget(id string, k *kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(id, k)
}

// drop forgets what is known of a tenant, if that is still it. The caller holds mu.
func (c *accounts) drop(id string, k *kept) {
	if k != nil && c.of[id] == k {
		k.timer.Stop()
		delete(c.of, id)
		c.size -= k.size
	}
}
