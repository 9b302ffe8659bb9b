package scheduler

import (
	"context"
	"slices"
	"sync"
)

// Pool divides bytes of memory between tenants. A tenant may hold a third of the free bytes:
// a quarter of the pool if it is alone, and less the more others hold. So something is left
// for the next tenant, however many take their maximum: dynamic thresholds (Choudhury and
// Hahne, 1998). A tenant that holds nothing may take all free bytes. It is safe for
// concurrent use. Use [NewPool].
type Pool struct {
	size int64

	mu      sync.Mutex // guards what follows
	used    int64
	of      map[string]int64 // by tenant, without tenants that hold nothing
	waiting []*taker         // in the order of their arrival
}

// taker waits for bytes.
type taker struct {
	tenant string
	bytes  int64
	ready  chan struct{} // closed when it has them
}

// SmallBytes is taken without waiting, even from an exhausted pool: the number of small
// requests is bounded elsewhere, and most other work consists of them.
const SmallBytes = 64 << 10

// NewPool returns a pool of so many bytes.
func NewPool(size int64) *Pool { return &Pool{size: size, of: map[string]int64{}} }

// Share returns the most that one tenant can hold.
func (p *Pool) Share() int64 { return p.size / 4 }

// Take waits for bytes for a tenant, which [Pool.Give] gives back. Its error is ctx's. A
// request beyond a tenant's maximum takes the maximum. It returns the number taken.
func (p *Pool) Take(ctx context.Context, tenant string, bytes int64) (int64, error) {
	bytes = min(bytes, p.Share())
	w := &taker{tenant, bytes, make(chan struct{})}
	p.mu.Lock()
	if bytes <= SmallBytes {
		p.add(tenant, bytes)
		p.mu.Unlock()
		return bytes, nil
	}
	p.waiting = append(p.waiting, w)
	p.grant()
	p.mu.Unlock()
	select {
	case <-w.ready:
		return bytes, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i < 0 { // it was granted at this moment
		return bytes, nil
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.grant()
	return 0, context.Cause(ctx)
}

// Give gives bytes of a tenant back.
func (p *Pool) Give(tenant string, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(tenant, -bytes)
	p.grant()
}

// Held returns how many bytes a tenant holds.
func (p *Pool) Held(tenant string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[tenant]
}

// add changes how many bytes a tenant holds. The caller holds mu.
func (p *Pool) add(tenant string, bytes int64) {
	p.used += bytes
	if p.of[tenant] += bytes; p.of[tenant] == 0 {
		delete(p.of, tenant)
	}
}

// grant gives out the available bytes: to each tenant in the order of its callers. The
// caller holds mu.
func (p *Pool) grant() {
	var behind []string // tenants whose next caller has to wait
	p.waiting = slices.DeleteFunc(p.waiting, func(w *taker) bool {
		held, free := p.of[w.tenant], p.size-p.used
		if slices.Contains(behind, w.tenant) || w.bytes > free || held > SmallBytes && held+w.bytes > free/3 {
			behind = append(behind, w.tenant)
			return false
		}
		p.add(w.tenant, w.bytes)
		close(w.ready)
		return true
	})
}
