package daemon

import (
	"context"
	"runtime"
	"sync"

	"github.com/starling-host/starling/host/tenant"
	"github.com/starling-host/starling/host/turns"
)

// compiling has modules compiled one at a time for each tenant, and all of them on a
// quarter of the processors, in turns: a tenant that uploads what takes long to compile
// waits for itself, others wait for one module of it at most, and calls do not notice.
type compiling struct {
	waiting seats
	bodies  lanes       // one upload of each tenant is in memory
	own     lanes       // one module of each tenant has a turn, or is next
	all     *turns.Line // of all tenants
}

func newCompiling() *compiling {
	return &compiling{
		waiting: seats{taken: map[string]int{}}, all: turns.New(runtime.GOMAXPROCS(0) / 4),
		bodies: lanes{of: map[string]chan struct{}{}}, own: lanes{of: map[string]chan struct{}{}},
	}
}

// stand takes a place among the modules of the tenant that wait or are compiled. A
// tenant that has as many as it may is refused.
func (c *compiling) stand(t tenant.Tenant) (leave func(), err error) {
	return c.waiting.enter(t.ID, t.Limits.Compiling)
}

// enter takes a place and waits for the tenant's turn.
func (c *compiling) enter(ctx context.Context, t tenant.Tenant) (leave func(), err error) {
	away, err := c.stand(t)
	if err != nil {
		return nil, err
	}
	end, err := c.turn(ctx, t)
	if err != nil {
		away()
		return nil, err
	}
	return func() { end(); away() }, nil
}

// turn waits for the turn of a tenant, who has a place.
func (c *compiling) turn(ctx context.Context, t tenant.Tenant) (end func(), err error) {
	leave, err := c.own.enter(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	turn, err := c.all.Take(turns.For(ctx, claimOf(t)))
	if err != nil {
		leave()
		return nil, err
	}
	return func() { turn.End(); leave() }, nil
}

// lanes are for what a tenant does one by one, in the order of arrival.
type lanes struct {
	mu sync.Mutex               // guards of
	of map[string]chan struct{} // by tenant, as many as there are; has an element while somebody is in it
}

// enter waits until the tenant's lane is free. To leave it twice is to leave it once.
func (l *lanes) enter(ctx context.Context, id string) (leave func(), err error) {
	lane := l.lane(id)
	select {
	case lane <- struct{}{}:
		return sync.OnceFunc(func() { <-lane }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *lanes) lane(id string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[id] == nil {
		l.of[id] = make(chan struct{}, 1)
	}
	return l.of[id]
}
